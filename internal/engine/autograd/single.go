package autograd

import (
	"errors"
	"runtime"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// What plays operators one by one, as they were recorded below autograd: who recorded
// them says which run and when memory goes.

// Enter says for which layer, by which thread and on which stream the following
// operators run.
func (p *Player) Enter(layer string, backward bool, stream int16) {
	p.Layer, p.stream, p.thread = p.names.layer(layer), stream, 0
	if backward {
		p.thread = 1
	}
}

// Derive runs the derivative formula of a row by itself, of gradients and of what its
// Save lists, at the index of the input or result. The caller owns what it returns, the
// gradients of the inputs.
func (p *Player) Derive(r *op.Op, args any, grads, in, out []*op.Tensor, inM, outM []op.Meta, needs []bool) []*op.Tensor {
	p.Meter.Work(nodeWork)
	outer := p.Push()
	p.Op = p.names.node(r)
	b := &op.Back{
		Call: op.Call{Exec: p, Op: r, Args: args}, Grads: grads, InM: inM, OutM: outM, Needs: needs, Results: make([]*op.Tensor, len(inM)),
	}
	b.Hold(in, out)
	p.depth++
	p.names.derived[r] = true
	r.Grad(b)
	b.End()
	p.Pop(outer)
	return b.Results
}

// Elsewhere is a tensor that lies in the host's memory, which nothing counts.
func (p *Player) Elsewhere(l tensor.Layout, d tensor.DType) *op.Tensor {
	st := p.storages.Get(p.Meter)
	st.host = true
	return &p.newObject(st, l, d).Tensor
}

// Try runs f, which may fail as rows do: then nothing of it happened, and what it made
// is not to be used. It returns why.
func (p *Player) Try(f func()) (err error) {
	scope, live, next := p.Scope, p.live, p.nextID
	events, host := len(p.tr.Events), len(p.host.Events)
	libraries := p.libraries
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		switch e := r.(type) {
		case *program.Error:
			err = e
		case tensor.RankError:
			err = e
		case runtime.Error: // tensors or arguments that no program calls the row with
			err = errors.New("a call that the row does not expect")
		default:
			panic(r)
		}
		p.Scope, p.live, p.nextID = scope, live, next
		p.tr.Events, p.host.Events = p.tr.Events[:events], p.host.Events[:host]
		p.tr.Categories = p.tr.Categories[:next+1]
		p.libraries = libraries
	}()
	f()
	return nil
}

// Resize makes t's block one of n bytes from the beginning.
func (p *Player) Resize(t *op.Tensor, n tensor.Bytes) {
	st := Of(t).st
	for i := len(p.tr.Events) - 1; i >= 0; i-- {
		if e := &p.tr.Events[i]; e.ID == st.id && e.Kind == trace.Alloc {
			p.live += n - e.Bytes
			e.Bytes, st.bytes = n, n
			return
		}
	}
}

// Counts makes the meter count what the player does.
func (p *Player) Counts(m *limit.Meter) { p.Meter = m }

// Into is Do of an operator whose first result of its size lies in out, which the caller
// made; nil: it makes its own.
func (p *Player) Into(out *op.Tensor, r *op.Op, args any, in ...*op.Tensor) []*op.Tensor {
	p.into = out
	defer func() { p.into = nil }()
	return p.Do(r, args, in...)
}
