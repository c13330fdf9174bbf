package autograd

import (
	"github.com/memplan/memplan/internal/op"
)

// What follows is for functions of Python that make nodes of their own: subclasses of
// torch.autograd.Function that are not rows, and hooks of nodes.

// context is what arguments of a row are if they keep something beside saved tensors.
type context interface {
	// Release gives it up, as the node is destroyed.
	Release()
}

// Function is an autograd.Function that unpacks what it saved by itself, and runs
// also where no gradient came.
type Function interface {
	context
	Backward(n *Node, b *op.Back)
}

// NewFunction makes the node of a function that is applied to some tensors. It
// belongs to the caller until a result refers to it (Result), or Abandon.
func (p *Player) NewFunction(row *op.Op, ts []*op.Tensor) *Node {
	n := p.newNode(row, nil, p.names.node(row), 0)
	n.edges, n.inM = p.edges.Zeroed(n.edges, len(ts)), p.metas.Zeroed(n.inM, len(ts))
	for k, t := range ts {
		o := Of(t)
		n.inM[k] = metaOf(o)
		if o.Requires {
			n.edges[k] = p.gradEdge(o)
		}
	}
	n.seq = p.nextSeq()
	return n
}

// SaveFor is ctx.save_for_backward.
func (p *Player) SaveFor(n *Node, ts []*op.Tensor) {
	n.saved = p.savings.Zeroed(n.saved, len(ts))
	for k, t := range ts {
		p.save(&n.saved[k], op.Save{Index: k}, t)
	}
}

// Own makes f the function that n runs.
func (n *Node) Own(f Function) { n.custom = f }

// Result makes n the gradient function of its next result; nil is one that is no
// tensor.
func (p *Player) Result(n *Node, t *op.Tensor) {
	if t == nil {
		n.outM = append(n.outM, op.Meta{})
		return
	}
	o := Of(t)
	n.outM = append(n.outM, metaOf(o))
	if o.DType.IsFloating() {
		p.setFn(o, n, len(n.outM)-1)
	}
}

// Abandon gives up a node that no tensor refers to.
func (p *Player) Abandon(n *Node) {
	if n != nil {
		n.refs++
		p.dropNode(n)
	}
}

// UnpackInput returns the tensor that a function saved of its argument k, with a
// reference for the caller. What a hook returns becomes a tensor with the gradient
// function that the argument had (SavedVariable::unpack).
func (p *Player) UnpackInput(n *Node, k int) *op.Tensor {
	s := &n.saved[k]
	if s.packed == nil {
		if Of(s.t).st.version != s.version {
			p.refuseChanged(n, s.t)
		}
		return p.Keep(s.t)
	}
	t := s.packed.Unpack()
	if Of(t).refs > 1 || Of(t).fn != nil {
		x := p.Alias(t, t.Layout, t.DType)
		p.Drop(t)
		t = x
	}
	o, e := Of(t), n.edges[k]
	switch {
	case e.fn == nil:
		o.Requires = false
	case e.fn.leaf != nil:
		o.Requires, o.acc = true, e.fn
	default:
		p.setFn(o, e.fn, e.nr)
	}
	return t
}

// NewPassage makes the node of a function that returns its inputs, which Through puts
// through it.
func (p *Player) NewPassage(row *op.Op, args any) *Node {
	n := p.newNode(row, args, p.names.node(row), p.nextSeq())
	n.wraps = p.Wraps
	return n
}

// Through returns a view of t that n made, which may not be changed in place.
func (p *Player) Through(n *Node, t *op.Tensor) *op.Tensor {
	l, _ := t.View(t.Size) // view_as: dimensions of one element may get other strides
	o := Of(p.ViewOf(t, l))
	n.edges = append(n.edges, p.gradEdge(Of(t)))
	n.inM, n.outM = append(n.inM, metaOf(o)), append(n.outM, metaOf(o))
	o.Requires, o.returned, o.fn, o.nr = true, true, n, len(n.outM)-1
	n.refs++
	return &o.Tensor
}

// Derived reports whether t has a gradient function.
func (p *Player) Derived(t *op.Tensor) bool { return p.gradFn(Of(t)) != nil }

// KeptBy reports whether the gradient function of t is a call of a row with these
// arguments.
func KeptBy(t *op.Tensor, args any) bool {
	fn := Of(t).fn
	return fn != nil && fn.args == args
}

// BeforeBackward runs a hook when the gradients of t's gradient function are there
// (Node.register_prehook); a leaf has none.
func (p *Player) BeforeBackward(t *op.Tensor, hook func()) {
	if !Of(t).Requires {
		return
	}
	if fn := p.gradFn(Of(t)); fn != nil {
		fn.before = append(fn.before, hook)
	}
}

// HookAccumulate has a hook run when the AccumulateGrad node that t, a leaf, has now has run
// (t.expand_as(t).grad_fn.next_functions[0][0].register_hook). The node lives until release is
// called, which removes the hook.
func (p *Player) HookAccumulate(t *op.Tensor, hook func()) (release func()) {
	fn := p.gradEdge(Of(t)).fn
	fn.posthook = hook
	return func() {
		fn.posthook = nil
		p.dropNode(fn)
	}
}

// HookGradient puts what f makes of the gradient of t in its place, before t's gradient
// function runs (Tensor.register_hook); of a tensor that has none nothing.
func (p *Player) HookGradient(t *op.Tensor, f func(grad *op.Tensor) *op.Tensor) {
	o := Of(t)
	if !o.Requires {
		return
	}
	fn := p.gradFn(o)
	if fn == nil {
		return
	}
	nr := o.nr
	fn.before = append(fn.before, func() {
		if g := fn.grads[nr]; g != nil {
			fn.grads[nr] = f(g)
			p.Drop(g)
		}
	})
}

// Unreached lists the leaves, by their places, to which no gradient function of some
// tensors leads.
func (p *Player) Unreached(from, leaves []*op.Tensor) []int {
	seen := map[*Node]bool{}
	var stack []*Node
	for _, t := range from {
		if fn := p.gradFn(Of(t)); fn != nil {
			stack = append(stack, fn)
		}
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range n.edges {
			if e.fn != nil && !seen[e.fn] {
				seen[e.fn] = true
				stack = append(stack, e.fn)
			}
		}
	}
	var out []int
	for i, t := range leaves {
		if acc := Of(t).acc; acc == nil || !seen[acc] {
			out = append(out, i)
		}
	}
	return out
}

// Pass is the number of the backward pass under way, from 1.
func (p *Player) Pass() int { return p.task.id }

// AfterNode runs f when the node at work has run, before its gradients are handed on
// (Node.register_hook).
func (p *Player) AfterNode(f func()) { p.task.node.after = append(p.task.node.after, f) }

// RunningNode is the node at work, by the number of its creation.
func (p *Player) RunningNode() uint64 { return p.task.node.seq }

// AfterPass runs f when the backward pass under way is over (Engine::queue_callback).
func (p *Player) AfterPass(f func()) { p.task.callbacks = append(p.task.callbacks, f) }
