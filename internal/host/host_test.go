package host

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

const gib = 1024 * mib

func TestPinnedSize(t *testing.T) {
	for _, c := range []struct{ in, want tensor.Bytes }{{0, 0}, {1, 1}, {2, 2}, {3, 4}, {4096, 4096}, {4097, 8192}, {100 * mib, 128 * mib}} {
		if got := PinnedSize(c.in); got != c.want {
			t.Errorf("PinnedSize(%d) = %d, want %d", c.in, got, c.want)
		}
	}
}

// The loader's batches as they were counted in runs of PyTorch 2.6.
func TestLoader(t *testing.T) {
	for _, c := range []struct {
		workers, prefetch int64
		pinned            bool
		batches, inPinned int64
	}{
		{0, 2, false, 2, 0}, {0, 2, true, 1, 2},
		{1, 2, false, 4, 0}, {2, 2, false, 6, 0}, {4, 2, false, 10, 0}, {2, 4, false, 10, 0},
		{1, 2, true, 3, 3}, {2, 2, true, 5, 5}, {4, 2, true, 9, 9}, {2, 4, true, 9, 9},
	} {
		u, err := Estimate(&Job{Batch: []tensor.Bytes{3 * mib, 10}, Workers: c.workers, Prefetch: c.prefetch, Pinned: c.pinned})
		if err != nil {
			t.Fatal(err)
		}
		each := 3*mib + 10
		if c.workers > 0 {
			each = 3*mib + 4096 // whole pages
		}
		if want := each * tensor.Bytes(c.batches); u.Loader != want || (u.SharedMemory == want) != (c.workers > 0) {
			t.Errorf("%+v: loader %d, in shared memory %d, want %d", c, u.Loader, u.SharedMemory, want)
		}
		if want := (4*mib + 16) * tensor.Bytes(c.inPinned); u.Pinned != want {
			t.Errorf("%+v: pinned %d, want %d", c, u.Pinned, want)
		}
	}
}

func TestPhases(t *testing.T) {
	for _, c := range []struct {
		name       string
		job        Job
		phase      Phase
		low, value tensor.Bytes
		high       tensor.Bytes
	}{
		{"start", Job{Model: 10 * gib, Static: true}, Start, Process.Low + 10*gib, Process.Value + 10*gib, Process.High + 10*gib},
		{"start with data", Job{Model: 10 * gib, Dataset: gib, Static: true}, Start, Process.Low + 11*gib, Process.Value + 11*gib, Process.High + 11*gib},
		{"training", Job{Model: gib, Dataset: 8 * gib, Workers: 2, Prefetch: 2, Offloaded: 3 * gib, PinnedOff: gib}, Training,
			Process.Low + 2*Worker.Low + 12*gib, Process.Value + 2*Worker.Value + 12*gib, Process.High + 2*Worker.High + 12*gib},
		{"copied", Job{Dataset: 8 * gib, Workers: 2, Prefetch: 2, Copied: true}, Training,
			Process.Low + 2*Worker.Low + 24*gib, Process.Value + 2*Worker.Value + 24*gib, Process.High + 2*Worker.High + 24*gib},
		{"saving", Job{Saving: 5 * gib, Model: gib, Static: true}, Saving, Process.Low + 5*gib, Process.Value + 5*gib, Process.High + 5*gib},
	} {
		u, err := Estimate(&c.job)
		if err != nil {
			t.Fatal(err)
		}
		if u.Phase != c.phase || u.One != (Range{c.low, c.value, c.high}) || u.All != u.One || u.Request != c.high {
			t.Errorf("%s: %s %v, %v to %v, want %s %v, %v to %v", c.name, u.Phase, u.One.Value, u.One.Low, u.One.High, c.phase, c.value, c.low, c.high)
		}
	}
}

// How a model is loaded: an 8-billion model in bfloat16 that goes to the GPU weight by
// weight needs no room for itself, and of 8 processes that share one only the first
// has it, unless each builds it.
func TestLoading(t *testing.T) {
	const model, large = 15 * gib, 6 * gib
	for _, c := range []struct {
		loading   Loading
		processes int64
		tensor    tensor.Bytes
		one, all  Range // beside processes
		request   tensor.Bytes
	}{
		{Built, 1, gib, Range{model, model, model}, Range{model, model, model}, model},
		{Built, 8, gib, Range{model, model, model}, Range{8 * model, 8 * model, 8 * model}, 8 * model},
		{Streamed, 1, gib, Range{gib, gib, Shard}, Range{gib, gib, Shard}, Shard},
		{Streamed, 1, large, Range{large, large, large}, Range{large, large, large}, large}, // beyond a file's usual size
		{Sharded, 8, gib, Range{0, model, model}, Range{0, model, 8 * model}, model},
	} {
		u, err := Estimate(&Job{Loading: c.loading, Processes: c.processes, Model: model, Tensor: c.tensor, Static: true})
		if err != nil {
			t.Fatal(err)
		}
		n := tensor.Bytes(c.processes)
		one := Range{u.One.Low - Process.Low, u.One.Value - Process.Value, u.One.High - Process.High}
		all := Range{u.All.Low - n*Process.Low, u.All.Value - n*Process.Value, u.All.High - n*Process.High}
		if one != c.one || all != c.all || u.Request-n*Process.High != c.request || u.Phase != Start {
			t.Errorf("%s by %d: one %v, all %v, request %v, %s", c.loading, c.processes, one, all, u.Request-n*Process.High, u.Phase)
		}
	}
}

// Processes of a machine train together, each with workers and data of its own; each
// worker, or else the process, has one sample in hand.
func TestProcesses(t *testing.T) {
	for _, workers := range []int64{0, 2} {
		u, err := Estimate(&Job{Processes: 4, Workers: workers, Prefetch: 2, Dataset: gib, Transform: mib})
		if err != nil {
			t.Fatal(err)
		}
		n := tensor.Bytes(workers)
		if one := Process.Value + n*Worker.Value + gib + max(n, 1)*mib; u.One.Value != one || u.All.Value != 4*one || u.Phase != Training {
			t.Errorf("%d workers: one %v, all %v, %s; want %v each", workers, u.One.Value, u.All.Value, u.Phase, one)
		}
	}
}

func TestOverflow(t *testing.T) {
	for _, j := range []Job{
		{Model: math.MaxInt64}, {Model: math.MaxInt64 / 4, Processes: 8}, {Workers: math.MaxInt64, Prefetch: 2}, {Batch: []tensor.Bytes{1 << 62}, Workers: 100, Prefetch: 2},
		{Batch: []tensor.Bytes{1 << 62}, Pinned: true},
	} {
		if _, err := Estimate(&j); err == nil {
			t.Errorf("%+v: no error", j)
		}
	}
}
