package autograd

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

// Do implements op.Exec: it runs one operator and records it for autograd.
func (p *Player) Do(r *op.Op, args any, in ...*op.Tensor) []*op.Tensor {
	if p.OfSpread != nil && !p.Wraps && len(in) > 0 && in[0] != nil && Of(in[0]).Spread != nil {
		return p.doSpread(r, args, in)
	}
	if r.Casts(&p.env) {
		return p.doAutocast(r, args, in)
	}
	asked := r
	if x := p.Instead[r]; x != nil {
		r = x
	}
	p.Meter.Work(opWork)
	outer := p.Push()
	if p.depth == 0 || !r.Composite {
		p.Op = p.names.row(r)
	} else if !p.names.inner[r] {
		p.names.inner[r] = true
	}
	p.depth++
	p.asked++
	c := p.calls.Get(nil)
	c.Exec, c.Op, c.In, c.Args = p, asked, in, args
	guarded := p.Recomputing > 0
	if guarded {
		c.Exec = p.guard(c)
	}
	if r.Unfused != nil {
		if text := r.Unfused(args, in); text != "" {
			p.Warn(note.Unfused.New("%s", text).OfOp(r.Name))
		}
	}
	if r.Passed != nil {
		if text := r.Passed(args); text != "" {
			p.Warn(note.CudnnPassed.New("%s", text).OfOp(r.Name))
		}
	}
	switch {
	case p.env.Pretended && aten.One(r):
		p.kernel(r, c)
	case r.Composite:
		p.composite(r, c)
	default:
		p.primitive(r, c)
	}
	if guarded {
		p.unguard()
	}
	p.Pop(outer)
	if p.depth == 0 && p.thread == 0 && p.Phase == trace.Forward {
		for _, t := range c.Out {
			if t != nil {
				p.Mark(t, trace.Activations)
			}
		}
	}
	out := p.tensors.Take(len(c.Out))
	copy(out, c.Out)
	*c = op.Call{}
	p.calls.Put(c)
	return out
}

// doSpread runs an operator of a DTensor outside of modules. Those that are modelled leave
// what is divided the last dimension.
func (p *Player) doSpread(r *op.Op, args any, in []*op.Tensor) []*op.Tensor {
	outer := p.Push()
	p.Wraps, p.env.TorchDispatch, p.Instead = true, true, p.OfSpread
	out := p.Do(r, args, in...)
	p.Pop(outer)
	if o := Of(out[0]); o.Spread == nil {
		at := Of(in[0]).Spread.Placement
		if at.Shard {
			at.Dim = o.Rank() - 1
		}
		if o.Rank() == 0 {
			at = program.Placement{}
		}
		o.Spread = &Spread{Placement: at}
	}
	return out
}

// Variable is what op.Call.Variable asks for: it keeps t for the caller of an operator
// that Python itself called.
func (p *Player) Variable(t *op.Tensor) bool {
	if p.depth != 1 || p.Recomputing > 0 {
		return false
	}
	p.variables = append(p.variables, t)
	return true
}

// DropVariables drops what Variable kept, once the arguments of the call are dropped.
func (p *Player) DropVariables() {
	if len(p.variables) > 0 {
		p.Drop(p.variables...)
		p.variables = p.variables[:0]
	}
}

// composite runs a row that is made of others.
func (p *Player) composite(r *op.Op, c *op.Call) {
	if p.Executes() && !p.backend.Composes(r) {
		p.runRow(r, c)
	} else {
		r.Run(c)
	}
	c.End()
}

// primitive runs a row that autograd sees as one node, where its first input
// lies.
func (p *Player) primitive(r *op.Op, c *op.Call) {
	if len(c.In) > 0 && c.In[0] != nil && Of(c.In[0]).st.host != p.onHost {
		p.On(!p.onHost, false, func() { p.primitive(r, c) })
		return
	}
	record := false
	if p.env.GradMode && r.Grad != nil {
		for _, t := range c.In {
			if p.Requires(t) {
				record = true
				break
			}
		}
	}
	var n *Node
	if record {
		var original *op.Tensor
		if r.InPlace {
			original = p.original(r, c)
		}
		n = p.begin(r, c, original)
	}
	switch {
	case r.View != nil:
		for _, l := range r.View(c) {
			c.Return(c.ViewOf(c.In[0], l))
		}
	case r.InPlace:
		p.Changes(c.In[0])
		p.runRow(r, c)
		c.Return(c.Keep(c.In[0]))
	case len(p.dispatch) > 0:
		p.runDispatched(r, c)
	default:
		p.runRow(r, c)
	}
	p.countFlops(c)
	c.End() // the kernel returns before autograd saves results
	if record {
		p.record(n, r, c)
	}
}

// original is a copy of what an in-place operator is about to overwrite, if a
// gradient uses it (original_self in tools/autograd/gen_variable_type.py).
func (p *Player) original(r *op.Op, c *op.Call) *op.Tensor {
	for _, s := range r.Save {
		if s.Out || s.Index != 0 {
			continue
		}
		need := len(s.IfNeeds) == 0
		for _, i := range s.IfNeeds {
			need = need || (i < len(c.In) && p.Requires(c.In[i]))
		}
		if need {
			x := c.Local(c.New(c.In[0].LikeDense(), c.In[0].DType))
			p.CopyTo(x, c.In[0])
			if p.env.Pretended {
				p.copies = append(p.copies, Of(x).st.id)
			}
			return x
		}
	}
	return nil
}

// begin makes the gradient node of a call and saves its inputs, before the
// operator runs; original stands for the input that an in-place operator will
// overwrite.
func (p *Player) begin(r *op.Op, c *op.Call, original *op.Tensor) *Node {
	if r.InPlace {
		p.refuseLeaf(Of(c.In[0]))
	}
	n := p.newNode(r, c.Args, p.names.node(r), p.nextSeq())
	p.made(n)
	n.wraps = p.Wraps
	n.edges = p.edges.Zeroed(n.edges, len(c.In))
	n.inM = p.metas.Zeroed(n.inM, len(c.In))
	for i, t := range c.In {
		if t == nil {
			continue
		}
		o := Of(t)
		n.inM[i] = metaOf(o)
		if o.Requires {
			n.edges[i] = p.gradEdge(o)
		}
	}
	saves := r.Saves(len(c.In))
	n.saved = p.savings.Zeroed(n.saved, len(saves)) // in the row's order
	for k, s := range saves {
		switch {
		case s.State:
			if p.rnnState != nil { // another layer's dropout may have made it
				p.save(&n.saved[k], s, p.rnnState)
			}
		case s.Out || r.Late || !n.wants(s):
		case original != nil && s.Index == 0:
			p.save(&n.saved[k], s, original)
		case s.Index < len(c.In) && c.In[s.Index] != nil:
			p.save(&n.saved[k], s, c.In[s.Index])
		}
	}
	return n
}

// wants reports whether a gradient that is asked for uses what s saves.
func (n *Node) wants(s op.Save) bool {
	if len(s.IfNeeds) == 0 {
		return true
	}
	for _, i := range s.IfNeeds {
		if i < len(n.edges) && n.edges[i].fn != nil {
			return true
		}
	}
	return false
}

// record saves the results of a call and hangs its gradient node on them.
func (p *Player) record(n *Node, r *op.Op, c *op.Call) {
	kept := 0
	for k, s := range r.Saves(len(c.In)) {
		if s.Out && n.wants(s) && s.Index < len(c.Out) && c.Out[s.Index] != nil {
			p.save(&n.saved[k], s, c.Out[s.Index])
		} else if r.Late && s.Index < len(c.In) && c.In[s.Index] != nil {
			p.save(&n.saved[k], s, c.In[s.Index])
		}
		if x := n.saved[k]; x.t != nil || x.packed != nil {
			n.saved[k] = saved{} // a hook may stop the run of the loop
			n.saved[kept] = x
			kept++
		}
	}
	n.saved = n.saved[:kept]
	p.saveNumbers(n, r, c)
	p.made(nil)
	n.outM = p.metas.Zeroed(n.outM, len(c.Out))
	for i, t := range c.Out {
		if t != nil { // None that a torch.autograd.Function saves
			n.outM[i] = metaOf(Of(t))
		}
	}
	if r.InPlace {
		p.rebase(Of(c.Out[0]), n)
		return
	}
outputs:
	for i, t := range c.Out {
		if t == nil || !t.DType.IsFloating() {
			continue
		}
		o := Of(t)
		for _, k := range r.NoGrad {
			if k == i {
				continue outputs
			}
		}
		o.Requires, o.fn, o.nr = true, n, i
		n.refs++
	}
}

// refuseLeaf fails if o is a leaf that requires a gradient, or a view of one:
// PyTorch does not let an operator change those in place (check_inplace in
// torch/csrc/autograd/VariableTypeUtils.h).
func (p *Player) refuseLeaf(o *Object) {
	if o.returned {
		p.Fail("output of %s is a view and is being modified inplace, PyTorch says: an argument of a module that fully_shard was called on, or the result of one of parallelize_module", p.tr.Ops[o.fn.op])
	}
	if o.base != nil {
		o = o.base
	}
	if o.Requires && o.fn == nil {
		p.Fail("a parameter, or a view of one, is changed in place while gradients are recorded")
	}
}

// rebase gives an in-place result its new gradient function. On a view it is
// the base that gets one; the view's own is renewed when it is next asked for.
func (p *Player) rebase(o *Object, n *Node) {
	if o.base != nil {
		b := o.base
		cs := p.newNode(copySlicesRow, nil, p.names.op("CopySlices"), p.nextSeq())
		cs.slices = &copySlices{fn: n, base: metaOf(b), view: o.Layout}
		cs.inM = append(cs.inM, n.inM...)
		cs.outM = append(cs.outM, metaOf(b))
		cs.edges = p.edges.Zeroed(cs.edges, len(n.edges))
		n.refs++
		for i := 1; i < len(n.edges); i++ {
			if g := n.edges[i].fn; g != nil {
				g.refs++
				cs.edges[i] = n.edges[i]
			}
		}
		if b.Requires {
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
func (p *Player) setFn(o *Object, n *Node, nr int) {
	old := o.fn
	o.Requires, o.fn, o.nr = true, n, nr
	n.refs++
	if old != nil {
		p.dropNode(old)
	}
}

// gradFn returns o's gradient function, or nil for a leaf. A view whose base
// was modified since gets a new one: AsStridedBackward0 from the base's.
func (p *Player) gradFn(o *Object) *Node {
	if o.base == nil || o.version == o.base.version {
		return o.fn
	}
	o.version = o.base.version
	if !o.base.Requires {
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
	p.seq[p.thread]++
	return p.seq[p.thread]
}

// NeedsGrad implements op.Exec.
func (p *Player) NeedsGrad(t *op.Tensor) bool {
	return p.env.GradMode && p.Requires(t)
}

// Requires implements op.Exec. A view requires grad if its base does, even
// one that was made without gradients.
func (p *Player) Requires(t *op.Tensor) bool {
	if t == nil {
		return false
	}
	o := Of(t)
	return o.Requires || (o.base != nil && o.base.Requires && !o.base.Inference)
}

// RequireGrad implements op.Exec.
func (p *Player) RequireGrad(t *op.Tensor) {
	if o := Of(t); o.fn == nil {
		o.Requires = true
	}
}

// Env implements op.Exec.
func (p *Player) Env() *op.Env { return &p.env }
