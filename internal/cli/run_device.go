package cli

import (
	"fmt"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/cuda"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// openDevice opens the device of a backend: auto is a GPU where there is one, else
// the CPU. why says why it is the CPU although there is a GPU.
func openDevice(backend string, capacity tensor.Bytes) (d runtime.Device, name, why string, err error) {
	if backend != "cpu" {
		_, missing := cuda.Available()
		if missing == nil {
			gpu, err := cuda.Open(0)
			if err == nil {
				gpu.Limit(capacity)
				return gpu, "cuda", "", nil
			}
			missing, why = err, fmt.Sprintf("trained on the CPU: %v", err)
		}
		if backend == "cuda" {
			return nil, "", "", fmt.Errorf("no GPU to run on: %w", missing)
		}
	}
	return cpu.New(capacity), "cpu", why, nil
}

// enoughMemory refuses what would make the kernel end memplan, or another process,
// in the middle of a run.
func enoughMemory(need tensor.Bytes) error {
	if have, known := cpu.Available(); known && need > have {
		return fmt.Errorf("the job takes %v, and %v of this machine's memory are available; a smaller batch or --capacity makes it less", need, have)
	}
	return nil
}
