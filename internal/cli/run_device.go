package cli

import (
	"fmt"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// openDevice opens the device of a backend.
func openDevice(backend string, capacity tensor.Bytes) (d runtime.Device, name, why string, err error) {
	if backend == "cuda" {
		return nil, "", "", fmt.Errorf("no GPU to run on")
	}
	return cpu.New(capacity), "cpu", why, nil
}
