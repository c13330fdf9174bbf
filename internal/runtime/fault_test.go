package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// faulty is a device on which the n-th call of a kind fails, and, if it is gone,
// every call after it.
type faulty struct {
	*cpu.Device
	mallocs, maps, launches, writes, reads int // calls left until one fails; negative: none does
	gone                                   bool
	dead                                   bool
}

var errInjected = errors.New("injected fault")

func (f *faulty) fails(left *int) bool {
	if f.dead {
		return true
	}
	*left--
	if *left == -1 {
		f.dead = f.gone
		return true
	}
	return false
}

func (f *faulty) Malloc(n tensor.Bytes) (allocsim.Address, error) {
	if f.fails(&f.mallocs) {
		return 0, fmt.Errorf("%w: %w", errInjected, allocsim.ErrOutOfMemory)
	}
	return f.Device.Malloc(n)
}

func (f *faulty) Map(a allocsim.Address, n, granule tensor.Bytes) error {
	if f.fails(&f.maps) {
		return fmt.Errorf("%w: %w", errInjected, allocsim.ErrOutOfMemory)
	}
	return f.Device.Map(a, n, granule)
}

func (f *faulty) Launch(c *kernel.Call) error {
	if f.fails(&f.launches) {
		return errInjected
	}
	return f.Device.Launch(c)
}

func (f *faulty) Write(to allocsim.Address, from []byte) error {
	if f.fails(&f.writes) {
		return errInjected
	}
	return f.Device.Write(to, from)
}

func (f *faulty) Read(to []byte, from allocsim.Address) error {
	if f.fails(&f.reads) {
		return errInjected
	}
	return f.Device.Read(to, from)
}

// TestFaults makes each call of the device fail once in a run of its own: the
// run ends with an error, and all memory is given back. A segment that the device
// refuses once is asked for again after the cache was released, so that a run may
// also survive.
func TestFaults(t *testing.T) {
	j := job(t, "lenet", "train.batch_size=2", "device.gpu=a100-40gb")
	expandable := job(t, "lenet", "train.batch_size=2", "device.gpu=a100-40gb", "device.alloc_conf=expandable_segments:True")
	try := func(name string, j *estimate.Job, f *faulty) (failed bool) {
		f.Device = cpu.New(tensor.GiB)
		r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: f, Config: j.Machine.Conf, Steps: 2, Seed: 1})
		if err == nil && len(r.Steps) != 2 {
			t.Errorf("%s: %d steps and no error", name, len(r.Steps))
		}
		if oom := (*allocsim.OOMError)(nil); err != nil && !errors.Is(err, errInjected) && !errors.As(err, &oom) {
			t.Errorf("%s: another error: %v", name, err)
		}
		if now, _ := f.Device.Reserved(); now != 0 {
			t.Errorf("%s: %v are still reserved", name, now)
		}
		if err := f.Device.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return err != nil
	}
	none := faulty{mallocs: -1, maps: -1, launches: -1, writes: -1, reads: -1}
	for _, kind := range []struct {
		name string
		job  *estimate.Job
		set  func(f *faulty, n int)
		left func(f *faulty) int
	}{
		{"map", expandable, func(f *faulty, n int) { f.maps = n }, func(f *faulty) int { return f.maps }},
		{"malloc", j, func(f *faulty, n int) { f.mallocs = n }, func(f *faulty) int { return f.mallocs }},
		{"launch", j, func(f *faulty, n int) { f.launches = n }, func(f *faulty) int { return f.launches }},
		{"write", j, func(f *faulty, n int) { f.writes = n }, func(f *faulty) int { return f.writes }},
		{"read", j, func(f *faulty, n int) { f.reads = n }, func(f *faulty) int { return f.reads }},
	} {
		for _, gone := range []bool{false, true} {
			n, failures := 0, 0
			for ; ; n++ {
				f := none
				f.gone = gone
				kind.set(&f, n)
				if try(fmt.Sprintf("%s %d, gone %v", kind.name, n, gone), kind.job, &f) {
					failures++
				}
				if kind.left(&f) >= 0 {
					break // the run made fewer calls
				}
			}
			if n == 0 || gone && failures < n {
				t.Errorf("%s: %d calls, %d of which failed the run", kind.name, n, failures)
			}
			t.Logf("%s, gone %v: %d calls, %d fail the run", kind.name, gone, n, failures)
		}
	}
}

// TestCapacity checks where a run fails: it lives in the memory that the
// simulator says is enough, and not in one segment less.
func TestCapacity(t *testing.T) {
	for _, c := range [][2]string{{"mlp", ""}, {"lenet", ""}, {"lenet", "expandable_segments:True"}} {
		preset := c[0] + " " + c[1]
		j := job(t, c[0], "train.batch_size=8", "device.gpu=a100-40gb", "train.steps=3", "device.alloc_conf="+c[1])
		run := func(capacity tensor.Bytes) error {
			device := cpu.New(capacity)
			_, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: 3, Seed: 1})
			return errors.Join(err, device.Close())
		}
		least := smallest(t, j)
		if err := run(least); err != nil {
			t.Errorf("%s: %v are not enough: %v", preset, least, err)
		}
		oom := (*allocsim.OOMError)(nil)
		if err := run(least - 2*tensor.MiB); !errors.As(err, &oom) {
			t.Errorf("%s: %v are enough, or end otherwise: %v", preset, least-2*tensor.MiB, err)
		}
	}
}

// smallest is the least memory, in steps of 2 MiB, in which the simulation of a
// job does not run out.
func smallest(t *testing.T, j *estimate.Job) tensor.Bytes {
	t.Helper()
	played, err := engine.Play(j.Program, j.Machine.Env, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	for capacity := 2 * tensor.MiB; capacity < tensor.GiB; capacity += 2 * tensor.MiB {
		r, err := allocsim.Replay(played.Trace.Events, allocsim.ReplayOptions{Config: j.Machine.Conf, Capacity: capacity, StopAtOOM: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.OOMs) == 0 {
			return capacity
		}
	}
	t.Fatal("nothing is enough")
	return 0
}
