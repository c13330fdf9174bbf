package autograd

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// pretended is the state of a player on a pretended GPU.
type pretended struct {
	within bool    // an operator
	asked  int     // operators that were run
	copies []int32 // blocks that autograd makes of inputs, by an operator of their own
}

// kernel runs a row that is one operator.
func (p *Player) kernel(r *op.Op, c *op.Call) {
	run := func() { p.primitive(r, c) }
	if r.Composite {
		run = func() { p.composite(r, c) }
	}
	if _, statements := c.Args.(op.Application); statements {
		run()
		return
	}
	p.Within(run)
}

// Within runs what a pretended GPU sees as one operator.
func (p *Player) Within(run func()) {
	if !p.env.Pretended || p.within {
		run()
		return
	}
	first := len(p.tr.Events)
	p.within = true
	defer func() { // of a row that is interrupted, too
		p.within = false
		p.unseen(first)
	}()
	run()
}

// derivative runs a formula. One that calls no operators is one itself.
func (p *Player) derivative(r *op.Op, statements bool, run func()) {
	if aten.OneDerivative(r) {
		p.Within(run)
		return
	}
	first, asked := len(p.tr.Events), p.asked
	run()
	if p.env.Pretended && !statements && !r.Steps && p.asked == asked {
		p.unseen(first)
	}
}

// unseen takes out of the trace what is allocated and freed within one operator.
func (p *Player) unseen(first int) {
	born, gone := map[int32]bool{}, map[int32]bool{}
	for _, e := range p.tr.Events[first:] {
		born[e.ID] = born[e.ID] || e.Kind == trace.Alloc
		gone[e.ID] = gone[e.ID] || e.Kind == trace.Free
	}
	kept := p.tr.Events[:first]
	for _, e := range p.tr.Events[first:] {
		if !born[e.ID] || !gone[e.ID] || slices.Contains(p.copies, e.ID) {
			kept = append(kept, e)
		}
	}
	p.tr.Events = kept
	p.copies = p.copies[:0]
}
