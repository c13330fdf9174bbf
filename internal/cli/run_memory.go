package cli

import (
	"fmt"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Of the memory of a process that trains on the CPU.
const (
	// processBytes are memplan itself: its code, what it knows of the job, and the buffers of
	// its kernels.
	processBytes = 64 * tensor.MiB
	// garbage is how large the heap of Go becomes beside what is in use (GOGC is 100).
	garbage = 2
	// ahead is how many batches there are: the one that is loaded, and the next.
	ahead = 2
	// near is the share of the memory that is available from which on a run says so.
	near = 0.8
)

// processMemory is what a process takes of host memory that trains on the CPU: the segments
// of the allocator, tensors that the job itself keeps there, and, on the heap of Go, the data
// of files, batches, of which one is made of numbers in float64, and what the largest call copies.
func processMemory(j *estimate.Job, o *estimate.Outcome, reserved tensor.Bytes, set *data.Set) (tensor.Bytes, error) {
	uses, err := runtime.Probe(j.Program, j.Machine.Env, cpu.New(0))
	if err != nil {
		return 0, err
	}
	heap := uses.Scratch
	if set != nil {
		heap += set.Bytes()
	}
	for _, in := range j.Program.Inputs {
		heap += tensor.Bytes(tensor.D(in.Size...).Numel() * (ahead*in.DType.Size() + tensor.Float64.Size()))
	}
	host, err := segmentsOf(o.Played.Host.Events)
	return reserved + host + garbage*heap + processBytes, err
}

// segmentsOf are those of the allocator that divides host memory for such blocks, at their peak.
func segmentsOf(events []trace.Event) (tensor.Bytes, error) {
	a, err := allocsim.New(allocsim.Config{}, allocsim.NewVirtualDriver(0), allocsim.Options{})
	if err != nil {
		return 0, err
	}
	live := map[int32]allocsim.Block{}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case trace.Alloc:
			if live[e.ID], err = a.Alloc(e.Bytes, e.Stream); err != nil {
				return 0, err
			}
		case trace.Free:
			a.Free(live[e.ID])
			delete(live, e.ID)
		}
	}
	return a.Stats().ReservedBytes.All.Peak, nil
}

// enoughMemory refuses what would make the kernel end memplan, or another process, in the
// middle of a run, and notes what comes near it.
func enoughMemory(rep *report.Run, need, segments tensor.Bytes) error {
	rep.Host = &report.RunHost{ExpectedBytes: need}
	have, known := cpu.Available()
	if !known {
		return nil
	}
	return judged(rep, need, segments, have)
}

// judged holds what a run takes against what there is.
func judged(rep *report.Run, need, segments, have tensor.Bytes) error {
	switch {
	case need > have:
		return fmt.Errorf("the run takes about %v of host memory, %v of it for the job's segments, and %v of this machine's are available; a smaller batch or --capacity makes it less",
			need, segments, have)
	case float64(need) > near*float64(have):
		rep.Add(note.HostMemory.New("the run takes about %v of host memory, and %v are available", need, have))
	}
	return nil
}
