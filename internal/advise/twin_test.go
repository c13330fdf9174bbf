package advise

import (
	"reflect"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
)

// A job that differs from another in its allocator alone is as if it were played, for less
// than half of the work; one that cannot be played takes none.
func TestOfAllocatorAlone(t *testing.T) {
	r := with(t, "gpt", "device.gpu=a100-40gb", "train.batch_size=8")
	r.Budget = limit.New(t.Context(), limit.Limits{Work: 1 << 40})
	defer r.Budget.Close()
	b := base(t, r)
	f := &fixer{ctx: t.Context(), base: b, makes: map[string]bool{}, known: map[string]outcome{}, programs: map[string]*estimate.Outcome{}, played: map[string]*estimate.Outcome{}, bounds: newBounds(b.Job.Machine.Usable())}
	find := func(id string) *Option {
		for _, group := range b.options(some(id)) {
			f.options = append(f.options, group...)
			return group[0]
		}
		t.Fatalf("no options of %s", id)
		return nil
	}
	wide, accumulated := find("expandable-segments"), find("accumulate")
	if !wide.ofAllocator() || accumulated.ofAllocator() {
		t.Fatal("which options are of the allocator is not told")
	}
	without, with := b.combine([]*Option{accumulated}), b.combine([]*Option{wide, accumulated})
	if without.program() != with.program() {
		t.Fatalf("programs %q and %q", without.program(), with.program())
	}
	work := func(do func()) int64 {
		before := r.Budget.Work()
		do()
		return r.Budget.Work() - before
	}
	var played, replayed *estimate.Outcome
	whole := work(func() { played, _ = f.try(with) })
	f.simulate([]*combination{without})
	again := work(func() { replayed, _ = f.try(with) })
	if played == nil || !played.Whole() || f.programs[with.program()] == nil {
		t.Fatal("not all steps were played")
	}
	if replayed.Played == played.Played || !reflect.DeepEqual(replayed.Played.Trace.Events, played.Played.Trace.Events) || !reflect.DeepEqual(replayed.OnGPU, played.OnGPU) {
		t.Error("what is not played again is another job")
	}
	if 2*again > whole {
		t.Errorf("%d steps of work in place of %d", again, whole)
	}
	f.programs[with.program()] = nil
	if n := work(func() { played, _ = f.try(with) }); n > 0 || played != nil {
		t.Errorf("%d steps of work for a job that cannot be played", n)
	}
}
