package engine

import (
	"github.com/memplan/memplan/internal/op"
)

// What follows is for functions of Python that make nodes of their own: subclasses of
// torch.autograd.Function that are not rows, and hooks of nodes.

// context is what arguments of a row are if they keep something beside saved tensors.
type context interface {
	// Release gives it up, for the node dies.
	Release()
}

// function is an autograd.Function that unpacks what it saved by itself, and runs
// also where no gradient came.
type function interface {
	context
	Backward(n *node, b *op.Back)
}

// newFunction makes the node of a function that is applied to some tensors. It
// belongs to the caller until a result refers to it, or drop.
func (p *Player) newFunction(row *op.Op, ts []*op.Tensor) *node {
	n := p.newNode(row, nil, p.names.node(row), 0)
	n.edges, n.inM = p.edges.zeroed(n.edges, len(ts)), p.metas.zeroed(n.inM, len(ts))
	for k, t := range ts {
		o := obj(t)
		n.inM[k] = metaOf(o)
		if o.requires {
			n.edges[k] = p.gradEdge(o)
		}
	}
	n.seq = p.nextSeq()
	return n
}

// saveFor is ctx.save_for_backward.
func (p *Player) saveFor(n *node, ts []*op.Tensor) {
	n.saved = p.savings.zeroed(n.saved, len(ts))
	for k, t := range ts {
		p.save(&n.saved[k], op.Save{Index: k}, t)
	}
}

// own makes f the function that n runs.
func (n *node) own(f function) { n.custom = f }

// result makes n the gradient function of its next result; nil is one that is no
// tensor.
func (p *Player) result(n *node, t *op.Tensor) {
	if t == nil {
		n.outM = append(n.outM, op.Meta{})
		return
	}
	o := obj(t)
	n.outM = append(n.outM, metaOf(o))
	if o.DType.IsFloating() {
		p.setFn(o, n, len(n.outM)-1)
	}
}

// abandon gives up a node that no tensor refers to.
func (p *Player) abandon(n *node) {
	if n != nil {
		n.refs++
		p.dropNode(n)
	}
}

// unpackInput returns the tensor that a function saved of its argument k, with a
// reference for the caller. What a hook returns becomes a tensor with the gradient
// function that the argument had (SavedVariable::unpack).
func (p *Player) unpackInput(n *node, k int) *op.Tensor {
	s := &n.saved[k]
	if s.packed == nil {
		if obj(s.t).st.version != s.version {
			p.refuseChanged(n, s.t)
		}
		return p.Keep(s.t)
	}
	t := s.packed.Unpack()
	if obj(t).refs > 1 || obj(t).fn != nil {
		x := p.Alias(t, t.Layout, t.DType)
		p.Drop(t)
		t = x
	}
	o, e := obj(t), n.edges[k]
	switch {
	case e.fn == nil:
		o.requires = false
	case e.fn.leaf != nil:
		o.requires, o.acc = true, e.fn
	default:
		p.setFn(o, e.fn, e.nr)
	}
	return t
}

// newPassage makes the node of a function that returns its inputs, which through puts
// through it.
func (p *Player) newPassage(row *op.Op, args any) *node {
	return p.newNode(row, args, p.names.node(row), p.nextSeq())
}

// through returns a view of t that n made, which may not be changed in place.
func (p *Player) through(n *node, t *op.Tensor) *op.Tensor {
	l, _ := t.View(t.Size) // view_as: dimensions of one element may get other strides
	o := obj(p.ViewOf(t, l))
	n.edges = append(n.edges, p.gradEdge(obj(t)))
	n.inM, n.outM = append(n.inM, metaOf(o)), append(n.outM, metaOf(o))
	o.requires, o.returned, o.fn, o.nr = true, true, n, len(n.outM)-1
	n.refs++
	return &o.Tensor
}

// derived reports whether t has a gradient function.
func (p *Player) derived(t *op.Tensor) bool { return p.gradFn(obj(t)) != nil }

// keptBy reports whether the gradient function of t is a call of a row with these
// arguments.
func keptBy(t *op.Tensor, args any) bool {
	fn := obj(t).fn
	return fn != nil && fn.args == args
}

// beforeBackward runs a hook when the gradients of t's gradient function are there
// (Node.register_prehook); a leaf has none.
func (p *Player) beforeBackward(t *op.Tensor, hook func()) {
	if !obj(t).requires {
		return
	}
	if fn := p.gradFn(obj(t)); fn != nil {
		fn.before = append(fn.before, hook)
	}
}

// unreached lists the leaves, by their places, to which no gradient function of some
// tensors leads.
func (p *Player) unreached(from, leaves []*op.Tensor) []int {
	seen := map[*node]bool{}
	var stack []*node
	for _, t := range from {
		if fn := p.gradFn(obj(t)); fn != nil {
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
		if acc := obj(t).acc; acc == nil || !seen[acc] {
			out = append(out, i)
		}
	}
	return out
}

// pass is the number of the backward pass under way, from 1.
func (p *Player) pass() int { return p.task.id }

// afterPass runs f when the backward pass under way is over (Engine::queue_callback).
func (p *Player) afterPass(f func()) { p.task.callbacks = append(p.task.callbacks, f) }
