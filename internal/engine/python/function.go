package python

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// application is one call of a torch.autograd.Function.
type application struct {
	p    *Interp
	self *Module
	fn   *program.Func // forward
	args []Value
	kept []*op.Tensor // attributes of ctx

	required []bool // of what is saved, whether it required grad: an input
}

// applyFunction plays F.apply(args...). The caller of forward holds the
// arguments until the call has returned, as that of a module does.
func (p *Interp) applyFunction(fr *Frame, e *program.Expr) Value {
	a := &application{p: p, self: fr.Self}
	from := len(p.trail.temps)
	var room [4]Value // args itself must not keep what it gets: callers have it on their stacks
	a.args = append(a.args, p.args(room[:0], fr, e)...)
	ins := make([]*op.Tensor, len(a.args))
	for i, v := range a.args {
		ins[i] = v.T
	}
	a.fn = e.Func
	if f := a.fn.Autograd.Unkept; f != nil && !p.NeedsGrad(ins[0]) {
		a.fn = f
	}
	p.trail.running = from
	outs := p.Do(a.fn.Autograd.Row, a, ins...)
	p.trail.running = -1
	p.trail.pop(from)
	n, kept := a.fn.Autograd.Results, len(outs)-len(a.fn.Autograd.Kept)
	if p.checkpointed() && slices.ContainsFunc(a.fn.Autograd.Row.Save, func(s op.Save) bool { return s.Index < n }) {
		p.Warn(note.CheckpointedFunction.New("%s saves its own result for the backward pass, in a checkpoint with use_reentrant: false: "+
			"its tensors are freed in another order, and may live until Python collects its garbage", a.fn.Autograd.Row.Name))
	}
	a.kept = outs[kept:]
	if autograd.KeptBy(outs[0], a) {
		p.Drop(outs[n:kept]...)
	} else { // no node holds ctx, which is freed with the tuple of what it would save, from the last on
		for i := kept - 1; i >= n; i-- {
			p.Drop(outs[i])
		}
		a.Release()
	}
	for _, v := range a.args {
		p.LetGo(v)
	}
	a.args = nil
	if n == 1 {
		return Value{T: outs[0]}
	}
	l := &List{refs: 1, Items: make([]Value, n)}
	for i := range l.Items {
		l.Items[i] = Value{T: outs[i]}
	}
	return Value{List: l}
}

// play runs a function of the class with its first slots bound, which take over what
// is given up.
func (a *application) play(fn *program.Func, args []Value, wanted []bool, given ...*op.Tensor) []*op.Tensor {
	p := a.p
	outer := p.Push()
	p.Env().GradMode = false
	fr := p.newFrame(a.self, fn)
	fr.wanted = wanted
	for i, v := range args {
		fr.Slots[i] = p.Hold(v)
	}
	p.Drop(given...)
	v := p.call(fr)
	p.Pop(outer)
	if v.List == nil {
		return []*op.Tensor{v.T}
	}
	outs := make([]*op.Tensor, len(v.List.Items))
	for i, it := range v.List.Items { // the tuple is destroyed
		outs[i] = it.T
	}
	return outs
}

// Release gives up the attributes of ctx.
func (a *application) Release() {
	a.p.Drop(a.kept...)
	a.kept = nil
}

// Forward implements op.Application.
func (a *application) Forward(c *op.Call) {
	outs := a.play(a.fn, a.args, nil)
	for i := range outs { // c notes what it owns; should it fail, the results die first, from the last on
		if t := outs[(i+a.fn.Autograd.Results)%len(outs)]; t != nil {
			c.Keep(t)
		}
	}
	a.required = a.required[:0]
	for _, s := range a.fn.Autograd.Row.Save {
		a.required = append(a.required, outs[s.Index] != nil && autograd.Of(outs[s.Index]).Requires)
	}
	a.p.Drop(outs...)
	c.Return(outs...)
}

// Materialize implements op.Application: a gradient that did not come is zeros
// (set_materialize_grads).
func (a *application) Materialize(b *op.Back) {
	b.Grads = slices.Clone(b.Grads)
	for i := range a.fn.Autograd.Results {
		if b.Grads[i] == nil {
			b.Grads[i] = b.Local(b.New(tensor.Contiguous(b.OutM[i].Size), b.OutM[i].DType))
			a.p.Fill(b.Grads[i], 0)
		}
	}
}

// Backward implements op.Application.
func (a *application) Backward(b *op.Back) {
	var args []Value
	for i := range a.fn.Autograd.Results {
		args = append(args, Value{T: b.Grads[i]})
	}
	for k, s := range b.Op.Save {
		t := b.SavedOut(s.Index)
		if t != nil && a.required[k] {
			autograd.Of(t).Requires = true
		}
		args = append(args, Value{T: t})
	}
	for _, t := range a.kept {
		args = append(args, Value{T: t})
	}
	for i, g := range a.play(a.fn.Autograd.Backward, args, b.Needs, b.Unpacked...) {
		b.Set(i, g)
	}
}
