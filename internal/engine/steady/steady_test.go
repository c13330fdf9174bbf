package steady

import (
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// fake is a job whose step takes a block and gives it back; in every tenth step another
// block takes the place of an old one.
type fake struct {
	list  []trace.Event
	next  int32
	old   int32
	live  tensor.Bytes
	leak  bool  // each step leaves its block
	first int64 // number of the first step
	rest  int64 // of the steps that differ
}

func (f *fake) Events() (device, host []trace.Event) { return f.list, nil }
func (f *fake) Alive() (device, host tensor.Bytes)   { return f.live, 0 }
func (f *fake) Counted() []uint64                    { return nil }
func (f *fake) take(n tensor.Bytes) int32 {
	f.next++
	f.live += n
	f.list = append(f.list, trace.Event{Kind: trace.Alloc, ID: f.next, Bytes: n})
	return f.next
}

func (f *fake) give(id int32, n tensor.Bytes) {
	f.live -= n
	f.list = append(f.list, trace.Event{Kind: trace.Free, ID: id})
}

func (f *fake) step(n int64) {
	id := f.take(512)
	if !f.leak {
		f.give(id, 512)
	}
	if (n-1+f.first)%10 == f.rest {
		now := f.take(1024)
		if f.old > 0 {
			f.give(f.old, 1024)
		}
		f.old = now
	}
}

// TestLeaveOut plays a job until all that comes is known: the steps are those that were
// played and those that were left out.
func TestLeaveOut(t *testing.T) {
	for i := range int64(4) {
		first, rest := i%2, i/2*3
		f := &fake{first: first, rest: rest}
		h := New(f, []Interval{{Every: 10, Rest: rest}}, first, true)
		if n := (rest+10-first)%10 + 1; h.Begins(h.Intervals[0]) != n {
			t.Errorf("from step %d: the interval begins with step %d, not %d", first, h.Begins(h.Intervals[0]), n)
		}
		played, left := 0, int64(0)
		for {
			n := h.Last().Last + 1
			f.step(n)
			h.Add(n)
			if played++; played > 100 {
				t.Fatal("100 steps were played")
			}
			l := h.LeaveOut()
			if l == nil {
				continue
			}
			if l.Turns == 0 {
				if l.Steps != 10 {
					t.Errorf("from step %d: what goes on for ever has %d steps", first, l.Steps)
				}
				break
			}
			left += l.Turns * l.Steps
		}
		if h.Last().Step != int64(played)+left {
			t.Errorf("from step %d: step %d is the last of %d that were played and %d that were left out", first, h.Last().Step, played, left)
		}
		if left == 0 {
			t.Errorf("from step %d: no step was left out before all were known", first)
		}
	}
}

// TestAlike compares steps of which each leaves a block, and one that is larger.
func TestAlike(t *testing.T) {
	f := &fake{first: 1, leak: true}
	h := New(f, nil, 1, true)
	for n := int64(1); n <= 3; n++ {
		f.step(n)
		h.Add(n)
		if got := h.Alike(1); got != (n > 1) {
			t.Errorf("step %d is like the one before: %v", n, got)
		}
	}
	if h.Tracks || h.Last().Live-h.Of(2).Live != 512 {
		t.Errorf("a step leaves %v", h.Last().Live-h.Of(2).Live)
	}
	f.take(4096)
	h.Add(4)
	if h.Alike(1) {
		t.Error("a step with a block of another size is alike")
	}
}

// TestAlikeAfterTheFirst: the first step makes what lasts, so the block that it leaves to the
// second is at another place of it. The third is like the second all the same, if each frees
// all that the one before left.
func TestAlikeAfterTheFirst(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		f := &fake{}
		h := New(f, nil, 1, false)
		var left int32
		for n := int64(1); n <= 3; n++ {
			if n == 1 {
				f.take(4096) // states of an optimizer
				f.take(4096)
			}
			if left > 0 {
				f.give(left, 512)
			}
			left = f.take(512)
			if keeps { // beside it, what nothing frees
				f.take(512)
			}
			h.Add(n)
		}
		if got := h.Alike(1); got == keeps {
			t.Errorf("keeps %v: alike %v", keeps, got)
		}
	}
}

// TestSwapped: two blocks of one size are left to each step. Where one frees the younger of
// them before it takes another block, and the next the older, the steps are not alike: the
// block may take the place of another.
func TestSwapped(t *testing.T) {
	for _, every := range []bool{false, true} {
		for _, swap := range []bool{false, true} {
			f := &fake{}
			var intervals []Interval
			if every {
				intervals = []Interval{{Every: 10}}
			}
			h := New(f, intervals, 1, true)
			var left [2]int32
			var class int32
			for n := int64(1); n <= 3; n++ {
				if n == 1 {
					f.take(4096) // states of an optimizer
				}
				first, second := left[0], left[1]
				if n == 3 && swap {
					first, second = second, first
				}
				if n > 1 {
					f.give(first, 512)
				}
				now := f.take(512)
				if n > 1 {
					f.give(second, 512)
				}
				left = [2]int32{now, f.take(512)}
				h.Add(n)
				if n == 2 {
					class = h.Last().class
				}
			}
			if got := h.Alike(1); got == swap {
				t.Errorf("every %v, swapped %v: alike %v", every, swap, got)
			}
			if got := h.Last().class == class; every && got == swap {
				t.Errorf("swapped %v: of one class: %v", swap, got)
			}
		}
	}
}
