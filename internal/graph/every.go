package graph

import (
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/spec"
)

// intervals say in which steps statements run and names are bound.
type intervals struct {
	every int64         // the statement under way runs in every n-th step; 1: in each
	own   bool          // by the every of its entry alone
	at    spec.Span     // of the entry that says so
	rare  map[int]int64 // the n of slots that are bound in every n-th step only
}

// inSteps elaborates an entry in the steps in which it runs: every of an entry
// inside of another's holds beside that.
func (f *fn) inSteps(e *spec.Entry, sc *scope, statement func()) {
	if e.Every == nil {
		statement()
		return
	}
	el := f.u.el
	n := el.evalInt(e.Every, sc, "every")
	outer, from, cur := f.steps, len(f.f.Body), f.cur
	switch {
	case f.inner:
		el.fail(e.Every.Span, "a closure runs when its optimizer_step does; every belongs there")
	case n < 1:
		el.fail(e.Every.Span, "every must be at least 1, not %d", n)
	case n > spec.MaxEvery || n/common(n, outer.every) > spec.MaxEvery/outer.every:
		el.fail(e.Every.Span, "every must be at most %d, not %d", int64(spec.MaxEvery), n)
	}
	f.steps.every, f.steps.at = n/common(n, outer.every)*outer.every, e.Every.Span
	f.steps.own = outer.every == 1
	defer func() { f.steps.every, f.steps.at, f.steps.own = outer.every, outer.at, outer.own }()
	statement()
	if f.steps.every == outer.every {
		return
	}
	for k := from; k < len(f.f.Body); k++ {
		if st := &f.f.Body[k]; st.Every == 0 { // those within have their own
			st.Every = f.steps.every
		}
	}
	if f.cur.Expr != cur.Expr {
		f.cur, f.why = value.Value{}, "the entry before runs in some steps only"
	}
}

// common is the greatest common divisor.
func common(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// binds notes in which steps a slot is bound. One that is bound before keeps what
// it is in the other steps, so that both must be alike.
func (f *fn) binds(slot int, m value.Meta) {
	n := f.steps.every
	before := int64(1)
	if r := f.steps.rare[slot]; r > 0 {
		before = r
	}
	switch old := f.metas[slot]; {
	case n == 1 || before%n == 0:
		delete(f.steps.rare, slot)
		if n > 1 {
			f.steps.rare[slot] = n
		}
	case !f.bound[slot] || n%before != 0:
		f.steps.rare[slot] = n
	case !old.Lost && !m.Lost && old.Key() != m.Key():
		is, was := m.Describe(), old.Describe()
		if is == was && m.Tensor != nil && old.Tensor != nil {
			is, was = is+" and type "+m.Tensor.DType.String(), was+" and type "+old.Tensor.DType.String()
		}
		f.u.el.fail(f.steps.at, "%q would be %s in the steps of every: %d and %s in others; give it another name", f.f.Slots[slot], is, n, was)
	}
}

// reads refuses a slot that is not bound in all steps in which the statement under
// way runs.
func (f *fn) reads(slot int, at spec.Span) {
	if n := f.steps.rare[slot]; n > 0 && f.steps.every%n != 0 {
		f.u.el.fail(at, "%q is bound in the steps of every: %d only; what takes it needs every: %d, too", f.f.Slots[slot], n, n)
	}
}

// changesList refuses to change a list in some of the steps in which it is there.
func (f *fn) changesList(slot int, at spec.Span) {
	f.reads(slot, at)
	if n := f.steps.every; n > 1 && f.steps.rare[slot] != n {
		f.u.el.fail(at, "the list %q would have other items in the steps of every: %d; make it with the same every", f.f.Slots[slot], n)
	}
}
