package engine

import (
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// checkpointFunction is CheckpointFunction of torch/utils/checkpoint.py, which
// use_reentrant=True means: the function runs without gradients, its arguments
// are saved; the node's backward runs it again on detached arguments and calls
// backward for what it returns.
var checkpointFunction = &op.Op{Name: "CheckpointFunction", Node: "CheckpointFunctionBackward"}

// reentrant is the context of a call.
type reentrant struct {
	p      *interp
	callee callee
	args   []value // None in the place of tensors, which the node saves
	places []int   // of its tensors among args
	outs   []bool  // which results are tensors

	autocast bool // as it was
	lower    tensor.DType
	random   uint64 // the state of random numbers, as it was
}

// checkpointReentrant is CheckpointFunction.apply; args stay the caller's. Only
// arguments that are tensors themselves take part in autograd: without one that
// requires grad, neither do the results.
func (p *interp) checkpointReentrant(to callee, args []value) value {
	a := &reentrant{p: p, callee: to, autocast: p.Env().Autocast, lower: p.Env().AutocastDType, random: p.random()}
	records := false
	var tensors []*op.Tensor
	for i, x := range args {
		if x.t != nil {
			a.places, tensors = append(a.places, i), append(tensors, x.t)
			records = records || p.NeedsGrad(x.t)
		}
	}
	if !records && p.Env().GradMode {
		p.warn(note.NoGradients.New("the checkpoint of %s has use_reentrant: true and no input that requires grad, so that its parameters get no gradients", to.name()))
	}
	var n *node
	if records {
		n = p.newFunction(checkpointFunction, tensors)
	}
	own := &frame{node: n, slots: to.keywords, held: p.holdAll(args)}
	p.trail.enter(*own)
	outer := p.push()
	p.Env().GradMode = false
	v := p.invoke(to, args)
	p.pop(outer)
	if !records {
		p.trail.leave()
		p.letGoEach(to.keywords)
		p.letGoAll(own.held)
		return v
	}
	from := len(p.trail.temps)
	p.trail.push(v)
	p.saveFor(n, tensors)
	p.trail.pop(from)
	for _, x := range args {
		if x.t != nil {
			x = value{}
		}
		a.args = append(a.args, p.hold(x))
	}
	n.own(a)
	p.trail.leave()
	p.letGoAll(own.held)
	return a.wrapOutputs(n, v, args)
}

// wrapOutputs makes n the gradient function of what it returned (_wrap_outputs
// in torch/csrc/autograd/custom_function.cpp). An argument that comes back is
// replaced by a view of it.
func (a *reentrant) wrapOutputs(n *node, v value, args []value) value {
	p := a.p
	wrap := func(x *value) {
		a.outs = append(a.outs, x.t != nil)
		for _, arg := range args {
			if x.t != nil && arg.t == x.t {
				t := p.ViewOf(x.t, x.t.Layout)
				p.Drop(x.t)
				x.t = t
				break
			}
		}
		p.result(n, x.t)
	}
	if v.list == nil {
		wrap(&v)
		return v
	}
	for i := range v.list.items {
		wrap(&v.list.items[i])
	}
	return v
}

// Backward is CheckpointFunction.backward.
func (a *reentrant) Backward(n *node, b *op.Back) {
	p := a.p
	grads := make([]*op.Tensor, len(b.OutM))
	for i, m := range b.OutM {
		if g := b.Grads[i]; g != nil {
			grads[i] = p.Keep(g)
		} else if a.outs[i] { // materialized
			grads[i] = p.New(tensor.Contiguous(m.Size), m.DType)
		}
	}
	inputs := make([]*op.Tensor, len(a.places)) // ctx.saved_tensors
	for k := range inputs {
		inputs[k] = p.unpackInput(n, k)
	}
	args := p.holdAll(a.args)
	for k, i := range a.places {
		t := p.Alias(inputs[k], inputs[k].Layout, inputs[k].DType)
		obj(t).requires = obj(inputs[k]).requires
		args[i] = value{t: t}
	}
	outer, random := p.push(), p.random()
	p.forkRNG(args, a.random)
	p.Env().GradMode = true
	p.enterCheckpoint(a.autocast, a.lower)
	v := p.invoke(a.callee, args)
	p.clearCasts()
	p.pop(outer)
	p.forkRNG(args, random)

	outs := []value{v}
	if v.list != nil {
		outs = v.list.items
	}
	var roots, rootGrads []*op.Tensor
	for i, o := range outs {
		if o.t != nil && obj(o.t).requires {
			roots, rootGrads = append(roots, o.t), append(rootGrads, grads[i])
		}
	}
	if len(roots) == 0 {
		p.Fail("none of the results of a checkpoint requires grad, which use_reentrant=True does not allow, PyTorch says")
	}
	p.runBackward(roots, rootGrads, false)
	for k, i := range a.places {
		if g := obj(args[i].t).grad; g != nil && b.Need(k) {
			b.Set(k, p.Keep(&g.Tensor))
		}
	}
	// The locals of backward in the order of their slots: inputs, detached_inputs,
	// outputs; the gradients live as long as the node's call, in a tuple.
	for k := len(inputs) - 1; k >= 0; k-- {
		p.Drop(inputs[k])
	}
	p.letGoAll(args)
	p.letGo(v)
	for i := len(grads) - 1; i >= 0; i-- {
		p.Drop(grads[i])
	}
}

// Release drops what the context of a dying node holds.
func (a *reentrant) Release() {
	a.p.letGoEach(a.callee.keywords)
	a.p.letGoAll(a.args)
}

// name is what messages call c.
func (c *callee) name() string {
	switch {
	case c.fn != nil:
		return c.fn.Name
	case c.chain != nil:
		return c.chain[0].path
	}
	return c.self.path
}
