package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/cuda"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// limitedDevice is a device that gives no more memory than a limit.
type limitedDevice interface {
	runtime.Device
	Limit(tensor.Bytes)
}

// foundGPU is a GPU that a job is executed on.
type foundGPU struct {
	name      string
	arch, sms int
	memory    tensor.Bytes
	free      tensor.Bytes        // with the context that executes
	used      func() tensor.Bytes // by all processes, as the driver says now
}

// sayCompiling says that the driver compiles kernels, if it has surely kept none.
func sayCompiling(say io.Writer, surely bool) {
	if surely {
		fmt.Fprintln(say, "memplan: the driver compiles each kernel for this GPU when the job first uses it, which takes seconds in the first step; it keeps them for the next start")
	}
}

// openDevice opens the device of a backend: auto is a GPU where there is one, else
// the CPU, with which gpu is nil. why says why it is the CPU although there is a GPU.
func openDevice(backend string, say io.Writer) (d limitedDevice, gpu *foundGPU, why string, err error) {
	if backend != "cpu" {
		_, missing := cuda.Available()
		if missing == nil {
			opened, err := cuda.Open(0)
			if err == nil {
				sayCompiling(say, cuda.Uncompiled())
				free, total := opened.MemInfo()
				return opened, &foundGPU{opened.Name(), opened.Arch(), opened.SMs(), total, free, opened.Used}, "", nil
			}
			missing, why = err, fmt.Sprintf("trained on the CPU: %v", err)
		}
		if backend == "cuda" {
			return nil, nil, "", fmt.Errorf("no GPU to run on: %w", missing)
		}
	}
	return cpu.New(0), nil, why, nil
}

// keys are the keys of a spec that describe the GPU: its row of the table, where it has one.
func (g *foundGPU) keys() []estimate.Key {
	keys := []estimate.Key{
		{Path: "device.arch", Value: fmt.Sprintf("sm_%d", g.arch)},
		{Path: "device.sms", Value: strconv.Itoa(g.sms)},
		{Path: "device.memory", Value: strconv.FormatInt(int64(g.memory), 10)},
	}
	if row, err := device.Lookup(g.name); err == nil && row.Arch == g.arch && row.SMs == g.sms {
		keys = append(keys, estimate.Key{Path: "device.gpu", Value: strconv.Quote(row.Name)})
	}
	return keys
}

// otherGPU says that a spec names another GPU than the one that the job is executed on.
func otherGPU(named *estimate.Machine, g *foundGPU) []note.Note {
	if !named.Given || named.GPU.Arch == g.arch && named.GPU.SMs == g.sms {
		return nil
	}
	return []note.Note{note.ExecutedOn.New("the spec is for %s (sm_%d, %d SMs); it was executed on, and predicted for, %s (sm_%d, %d SMs)",
		named.GPU.Display, named.GPU.Arch, named.GPU.SMs, g.name, g.arch, g.sms)}
}
