package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// closure elaborates the closure of optimizer_step: a function within the step,
// which takes names from around it and has names of its own.
func (f *fn) closure(st *program.Stmt, e *spec.Entry, sc *scope) {
	el := f.u.el
	row := el.job.Optimizers[st.Optimizer].Row
	at := e.At
	if el.spec.Step == nil && el.spec.Train.Optimizer != nil { // the keys of train say so
		at = el.spec.Train.Optimizer.Name.At
	}
	switch {
	case row.Closure && el.spec.Train.GradAccumulation.V > 1 && el.spec.Step == nil:
		el.fail(el.spec.Train.GradAccumulation.At, "%s evaluates its closure several times for the same batch; write step: to say which microbatches it goes over", row.Name)
	case len(e.Body) == 0 && row.Closure:
		el.fail(e.At, "%s needs a closure, such as {optimizer_step: {closure: [zero_grad, {forward: {model: model}, name: out}, ..., {backward: loss}, {return: loss}]}}", row.Name)
	case len(e.Body) == 0:
		return
	case el.job.Scaler:
		el.fail(at, "the closure of %s and GradScaler (amp-fp16) exclude each other; amp-bf16 needs none", row.Name)
	}
	used := map[string]bool{}
	spec.Words(e.Body, func(w string) { used[w] = true })
	for _, m := range el.ms {
		for _, in := range m.inputs {
			used[in] = true
		}
	}
	var names []string
	var ins []value.Value
	for slot, name := range f.f.Slots {
		if f.bound[slot] && used[name] {
			names, ins = append(names, name), append(ins, f.local(name))
			st.Captured = append(st.Captured, slot)
		}
	}
	c := f.u.newFn("closure", program.StepFunc, sc, names, ins, e.At)
	c.special = (*fn).stepStatement
	for i, slot := range st.Captured {
		c.holds[i] = f.holds[slot]
	}
	c.inner, c.cur, c.why = true, value.Value{}, "nothing precedes it in the closure"
	c.statements(e.Body, c.scope)
	if n := len(c.f.Body); n == 0 || c.f.Body[n-1].Kind != program.Return || c.f.Body[n-1].Value == nil {
		el.fail(e.At, "a closure ends with the loss: {return: loss}")
	}
	for i := range c.f.Body {
		if k := c.f.Body[i].Kind; k == program.OptStep || k == program.Batch {
			el.fail(e.At, "a closure evaluates the model for one batch; optimizer_step and batch stand outside of it")
		}
	}
	st.Closure = c.f
	for slot := range reads(c.f) { // which makes cells of them
		if slot < len(st.Captured) && st.Captured[slot] >= f.f.Globals && !slices.Contains(f.f.Cells, st.Captured[slot]) {
			f.f.Cells = append(f.f.Cells, st.Captured[slot])
		}
	}
	slices.SortFunc(f.f.Cells, func(a, b int) int { return strings.Compare(f.f.Slots[a], f.f.Slots[b]) })
}

// reads are the slots that the expressions of a function name.
func reads(f *program.Func) map[int]bool {
	slots := map[int]bool{}
	var expr func(e *program.Expr)
	expr = func(e *program.Expr) {
		if e == nil {
			return
		}
		switch e.Kind {
		case program.Local, program.Item, program.Pop:
			slots[e.Slot] = true
		}
		for _, a := range e.Args {
			expr(a)
		}
	}
	for i := range f.Body {
		expr(f.Body[i].Value)
		for _, v := range f.Body[i].Values {
			expr(v)
		}
	}
	return slots
}
