package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
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
	p      *Interp
	callee callee
	args   []Value // None in the place of tensors, which the node saves
	places []int   // of its tensors among args
	outs   []bool  // which results are tensors

	autocast bool // as it was
	lower    tensor.DType
	random   uint64 // the state of random numbers, as it was
	eval     *bool  // of the model at work
}

// checkpointReentrant is CheckpointFunction.apply; args stay the caller's. Only
// arguments that are tensors themselves take part in autograd: without one that
// requires grad, neither do the results.
func (p *Interp) checkpointReentrant(to callee, args []Value) Value {
	a := &reentrant{p: p, callee: to, autocast: p.Env().Autocast, lower: p.Env().AutocastDType, random: p.Random(), eval: p.eval}
	records := false
	var tensors []*op.Tensor
	for i, x := range args {
		if x.T != nil {
			a.places, tensors = append(a.places, i), append(tensors, x.T)
			records = records || p.NeedsGrad(x.T)
		}
	}
	if !records && p.Env().GradMode {
		p.Warn(note.NoGradients.New("the checkpoint of %s has use_reentrant: true and no input that requires grad, so that its parameters get no gradients", to.name()))
	}
	var n *autograd.Node
	if records {
		n = p.NewFunction(checkpointFunction, tensors)
	}
	own := &Frame{node: n, Slots: to.keywords, held: p.HoldAll(args)}
	p.trail.enter(*own)
	outer := p.Push()
	p.Env().GradMode = false
	v := p.invoke(to, args)
	p.Pop(outer)
	if !records {
		p.trail.leave()
		p.letGoEach(to.keywords)
		p.LetGoAll(own.held)
		return v
	}
	from := len(p.trail.temps)
	p.trail.push(v)
	p.SaveFor(n, tensors)
	p.trail.pop(from)
	for _, x := range args {
		if x.T != nil {
			x = Value{}
		}
		a.args = append(a.args, p.Hold(x))
	}
	n.Own(a)
	p.trail.leave()
	p.LetGoAll(own.held)
	return a.wrapOutputs(n, v, args)
}

// wrapOutputs makes n the gradient function of what it returned (_wrap_outputs
// in torch/csrc/autograd/custom_function.cpp). An argument that comes back is
// replaced by a view of it.
func (a *reentrant) wrapOutputs(n *autograd.Node, v Value, args []Value) Value {
	p := a.p
	wrap := func(x *Value) {
		a.outs = append(a.outs, x.T != nil)
		for _, arg := range args {
			if x.T != nil && arg.T == x.T {
				t := p.ViewOf(x.T, x.T.Layout)
				p.Drop(x.T)
				x.T = t
				break
			}
		}
		p.Result(n, x.T)
	}
	if v.List == nil {
		wrap(&v)
		return v
	}
	for i := range v.List.Items {
		wrap(&v.List.Items[i])
	}
	return v
}

// Backward is CheckpointFunction.backward.
func (a *reentrant) Backward(n *autograd.Node, b *op.Back) {
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
		inputs[k] = p.UnpackInput(n, k)
	}
	args := p.HoldAll(a.args)
	for k, i := range a.places {
		t := p.Alias(inputs[k], inputs[k].Layout, inputs[k].DType)
		autograd.Of(t).Requires = autograd.Of(inputs[k]).Requires
		args[i] = Value{T: t}
	}
	outer, random := p.Push(), p.Random()
	p.forkRNG(args, a.random)
	p.Env().GradMode = true
	p.modeNow(a.eval)
	p.enterCheckpoint(a.autocast, a.lower)
	v := p.invoke(a.callee, args)
	p.ClearCasts()
	p.Pop(outer)
	p.forkRNG(args, random)

	outs := []Value{v}
	if v.List != nil {
		outs = v.List.Items
	}
	var roots, rootGrads []*op.Tensor
	for i, o := range outs {
		if o.T != nil && autograd.Of(o.T).Requires {
			roots, rootGrads = append(roots, o.T), append(rootGrads, grads[i])
		}
	}
	if len(roots) == 0 {
		p.Fail("none of the results of a checkpoint requires grad, which use_reentrant=True does not allow, PyTorch says")
	}
	p.RunBackward(roots, rootGrads, false)
	for k, i := range a.places {
		if g := autograd.Of(args[i].T).Grad; g != nil && b.Need(k) {
			b.Set(k, p.Keep(&g.Tensor))
		}
	}
	// The locals of backward in the order of their slots: inputs, detached_inputs,
	// outputs; the gradients live as long as the node's call, in a tuple.
	for k := len(inputs) - 1; k >= 0; k-- {
		p.Drop(inputs[k])
	}
	p.LetGoAll(args)
	p.LetGo(v)
	for i := len(grads) - 1; i >= 0; i-- {
		p.Drop(grads[i])
	}
}

// Release drops what the context of a dying node holds.
func (a *reentrant) Release() {
	a.p.letGoEach(a.callee.keywords)
	a.p.LetGoAll(a.args)
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
