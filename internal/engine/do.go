package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// Do implements op.Exec: it runs one operator and records it for autograd.
func (p *Player) Do(r *op.Row, args any, in ...*op.Tensor) []*op.Tensor {
	if p.env.Autocast && r.Cast != op.CastNone {
		return p.doAutocast(r, args, in)
	}
	saveOp := p.op
	if p.depth == 0 || !r.Composite {
		p.op = p.names.row(r)
	}
	p.depth++
	c := op.Call{Exec: p, Row: r, In: in, Args: args}
	if r.Composite {
		r.Run(&c)
		c.End()
	} else {
		p.primitive(r, &c)
	}
	p.depth--
	p.op = saveOp
	if p.depth == 0 && p.thread == 0 && p.phase == trace.Forward {
		for _, t := range c.Out {
			p.mark(obj(t), trace.Activations)
		}
	}
	return c.Out
}

// primitive runs a row that autograd sees as one node.
func (p *Player) primitive(r *op.Row, c *op.Call) {
	record := false
	if p.env.GradMode && r.Grad != nil {
		for _, t := range c.In {
			if t != nil && obj(t).requires {
				record = true
				break
			}
		}
	}
	var original *op.Tensor
	switch {
	case r.View != nil:
		for _, l := range r.View(c) {
			c.Return(p.ViewOf(c.In[0], l))
		}
	case r.InPlace:
		if record {
			original = p.original(r, c)
		}
		r.Run(c)
		c.Return(p.Keep(c.In[0]))
	default:
		r.Run(c)
	}
	if record {
		p.record(r, c, original)
	}
	c.End()
}

// original is a copy of what an in-place operator is about to overwrite, if a
// gradient uses it (original_self in tools/autograd/gen_variable_type.py).
func (p *Player) original(r *op.Row, c *op.Call) *op.Tensor {
	for _, s := range r.Save {
		if s.Out || s.Index != 0 {
			continue
		}
		need := len(s.IfNeeds) == 0
		for _, i := range s.IfNeeds {
			need = need || (i < len(c.In) && c.In[i] != nil && obj(c.In[i]).requires)
		}
		if need {
			return p.New(c.In[0].LikeDense(), c.In[0].DType)
		}
	}
	return nil
}

// record makes the gradient node of a call and hangs it on the results;
// original stands for the input that an in-place operator overwrote.
func (p *Player) record(r *op.Row, c *op.Call, original *op.Tensor) {
	if r.InPlace {
		p.refuseLeaf(obj(c.In[0]))
	}
	n := p.newNode(r, c.Args, p.names.node(r), p.nextSeq())
	n.edges = zeroed(n.edges, len(c.In))
	n.inM = zeroed(n.inM, len(c.In))
	for i, t := range c.In {
		if t == nil {
			continue
		}
		o := obj(t)
		n.inM[i] = metaOf(o)
		if o.requires {
			n.edges[i] = p.gradEdge(o)
		}
	}
	for _, s := range r.Save {
		t := original
		if t == nil || s.Out || s.Index != 0 {
			t = p.savedTensor(n, c, s)
		}
		if t != nil {
			p.mark(obj(t), trace.Activations)
			p.countSaved(obj(t).st)
			n.saved = append(n.saved, saved{t: t, out: s.Out, idx: s.Index})
		}
	}
	n.outM = zeroed(n.outM, len(c.Out))
	for i, t := range c.Out {
		n.outM[i] = metaOf(obj(t))
	}
	if r.InPlace {
		p.rebase(obj(c.Out[0]), n)
		return
	}
outputs:
	for i, t := range c.Out {
		o := obj(t)
		if !o.DType.IsFloating() {
			continue
		}
		for _, k := range r.NoGrad {
			if k == i {
				continue outputs
			}
		}
		o.requires, o.fn, o.nr = true, n, i
		n.refs++
	}
}

// refuseLeaf fails if o is a leaf that requires a gradient, or a view of one:
// PyTorch does not let an operator change those in place (check_inplace in
// torch/csrc/autograd/VariableTypeUtils.h).
func (p *Player) refuseLeaf(o *object) {
	if o.base != nil {
		o = o.base
	}
	if o.requires && o.fn == nil {
		p.Fail("a parameter, or a view of one, is changed in place while gradients are recorded")
	}
}

// savedTensor packs what s names, with a reference of its own; nil if it is
// absent or no wanted gradient uses it.
func (p *Player) savedTensor(n *node, c *op.Call, s op.Save) *op.Tensor {
	if len(s.IfNeeds) > 0 {
		need := false
		for _, i := range s.IfNeeds {
			need = need || (i < len(n.edges) && n.edges[i].fn != nil)
		}
		if !need {
			return nil
		}
	}
	if !s.Out {
		if s.Index >= len(c.In) || c.In[s.Index] == nil {
			return nil
		}
		return p.Keep(c.In[s.Index])
	}
	if s.Index >= len(c.Out) || c.Out[s.Index] == nil {
		return nil
	}
	// A result is saved without its gradient function, which would be a cycle.
	o := obj(c.Out[s.Index])
	return p.Alias(&o.Tensor, o.Layout, o.DType)
}

// rebase gives an in-place result its new gradient function. On a view it is
// the base that gets one; the view's own is renewed when it is next asked for.
func (p *Player) rebase(o *object, n *node) {
	if o.base != nil {
		b := o.base
		cs := p.newNode(copySlicesRow, nil, p.names.op("CopySlices"), p.nextSeq())
		cs.slices = &copySlices{fn: n, base: metaOf(b), view: o.Layout}
		cs.inM = append(cs.inM, n.inM...)
		cs.outM = append(cs.outM, metaOf(b))
		cs.edges = zeroed(cs.edges, len(n.edges))
		n.refs++
		for i := 1; i < len(n.edges); i++ {
			if g := n.edges[i].fn; g != nil {
				g.refs++
				cs.edges[i] = n.edges[i]
			}
		}
		if b.requires {
			cs.edges[0] = p.gradEdge(b)
		}
		p.setFn(b, cs, 0)
		b.version++
		p.gradFn(o)
		return
	}
	p.setFn(o, n, 0)
	o.version++
}

// setFn replaces o's gradient function.
func (p *Player) setFn(o *object, n *node, nr int) {
	old := o.fn
	o.requires, o.fn, o.nr = true, n, nr
	n.refs++
	if old != nil {
		p.dropNode(old)
	}
}

// gradFn returns o's gradient function, or nil for a leaf. A view whose base
// was modified since gets a new one: AsStridedBackward0 from the base's.
func (p *Player) gradFn(o *object) *node {
	if o.base == nil || o.version == o.base.version {
		return o.fn
	}
	o.version = o.base.version
	if !o.base.requires {
		return o.fn
	}
	b := o.base
	n := p.newNode(asStridedRow, &asStrided{view: o.Layout}, p.names.op("AsStridedBackward0"), p.nextSeq())
	n.inM = append(n.inM, metaOf(b))
	n.outM = append(n.outM, metaOf(o))
	n.edges = append(n.edges, p.gradEdge(b))
	p.setFn(o, n, 0)
	return n
}

func (p *Player) nextSeq() uint64 {
	p.seq++
	return p.seq
}

// NeedsGrad implements op.Exec.
func (p *Player) NeedsGrad(t *op.Tensor) bool {
	return p.env.GradMode && t != nil && obj(t).requires
}

// Requires implements op.Exec. A view requires grad if its base does, even
// one that was made without gradients.
func (p *Player) Requires(t *op.Tensor) bool {
	if t == nil {
		return false
	}
	o := obj(t)
	return o.requires || (o.base != nil && o.base.requires)
}

// Env implements op.Exec.
func (p *Player) Env() *op.Env { return &p.env }
