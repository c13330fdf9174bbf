package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// Tensor parallelism, as torch/distributed/tensor/parallel has it, on rank 0.
// parallelize_module makes DTensors of the parameters of modules: of some each rank
// keeps a part. Hooks of a module's forward make a DTensor of its input, whose
// placement they change, and a tensor of this rank's part of the result.

// parallelized is a module to which parallelize_module was applied.
type parallelized struct {
	p     *python.Interp
	ranks int64
	program.Style
	table bool
	mask  *op.Tensor // of rows that other ranks have, until their part is added
}

// Parallelize applies parallelize_module to modules of a model, which is on the
// device.
func Parallelize(p *python.Interp, root *python.Module, j *program.Parallel) {
	seeded := false
	if j.TP.Loss {
		p.OfSpread = lossRows(p, toCopy(p))
	}
	for _, x := range j.TP.Modules {
		m := root
		for path := x.Path; path != ""; {
			i := m.Step(path)
			path = path[min(len(path), len(m.Class.Children[i].Path)+1):]
			m = m.Children[i]
		}
		h := &parallelized{p: p, ranks: j.TP.Ranks, Style: x.Style, table: m.Class.Is().Table}
		m.Hooks = h
		outer := p.Push()
		p.Layer = m.Layer
		if h.Prepares() {
			p.Pop(outer)
			continue
		}
		if !seeded && h.Name != program.Sequence && !p.Env().Torch.Has(torchver.DTensorSeedsLate) { // the state of a generator goes to all ranks
			p.Drop(p.New(tensor.Contiguous(tensor.D(seedBytes)), tensor.Uint8))
			seeded = true
		}
		h.distribute(m)
		p.Pop(outer)
	}
}

// seedBytes is the size of the state of a CUDA generator: seed and offset.
const seedBytes = 16

// distribute leaves this rank's parts of a module's parameters. The whole ones live
// until those of the module have been gone through, as Module.named_parameters holds
// them.
func (h *parallelized) distribute(m *python.Module) {
	p := h.p
	var whole []*op.Tensor
	for _, c := range m.Params {
		dim, divided := h.Divides(c.Decl.Name, h.table)
		c.Gradient = h.gradient(divided)
		if divided {
			c.Part = program.Redistributed(c.Size(), program.Placement{}, program.Placement{Shard: true, Dim: dim}, h.ranks)
		}
		switch {
		case c.T == nil: // on the meta device
			continue
		case !divided:
			autograd.Of(c.T).Wrapped = true
			continue
		}
		t, l := c.T, tensor.Contiguous(c.Part)
		var chunks []*op.Tensor
		for dim != 0 && int64(len(chunks)) < h.ranks { // they are scattered, and must be contiguous
			chunks = append(chunks, p.New(l, t.DType))
		}
		c.T = p.LeafOf(trace.Parameters, t.DType, !c.Frozen, l)
		o := autograd.Of(c.T)
		o.Param, o.Wrapped = true, true
		slices.Reverse(chunks)
		p.Drop(chunks...)
		whole = append(whole, t)
	}
	p.Drop(whole...)
}

// gradient is the placement that the gradient of a parameter has: a layer that
// works on a part of the sequence has a summand, and that of a table whose rows are
// divided has all of its rows (embedding_dense_backward).
func (h *parallelized) gradient(divided bool) python.GradPlacement {
	switch {
	case h.Name == program.Sequence:
		return python.GradPartial
	case divided && !(h.Name == program.Rowwise && h.table):
		return python.GradShard
	}
	return python.GradReplicate
}

// PreForward implements python.ForwardHooks: the first argument becomes a DTensor
// of the placement that the module works with (_prepare_input_fn).
func (h *parallelized) PreForward(args []python.Value, _ []string) []python.Value {
	p := h.p
	out := p.HoldAll(args)
	switch h.Name {
	case program.PrepareOutput:
		return out
	case program.PrepareInput:
		for i, x := range h.Prepared {
			out[i] = h.prepare(x, out[i])
		}
		return out
	}
	p.Env().TorchDispatch, p.Wraps = true, true // until the call ends
	y := p.Keep(args[0].T)
	at, rank := autograd.Of(y).Spread, y.Rank()
	from, to := h.Arrives().Of(rank), h.Computes(h.table).Of(rank)
	changes := from != to
	if at == nil {
		y = h.given(y, &autograd.Spread{Placement: from, Summand: h.Name == program.Colwise && !changes})
	} else {
		changes, from = h.Redistributes(h.Arrives(), h.Computes(h.table), at.Placement, rank), at.Placement
		at.Summand = at.Summand || h.Name == program.Colwise && !changes
	}
	if changes {
		y = h.redistributed(y, &redistribution{h: h, from: from, to: &autograd.Spread{Placement: to, Summand: h.Name == program.Colwise}, async: true})
	}
	p.Drop(out[0].T)
	out[0] = python.Value{T: y}
	p.Instead = map[*op.Op]*op.Op{aten.ToCopy: toCopy(p)}
	if h.Name == program.Rowwise {
		p.Instead[aten.Addmm], p.Instead[aten.Add], p.Instead[aten.Embedding] = biased(aten.Addmm, 0), biased(aten.Add, 1), h.embedding()
	}
	return out
}

// PostForward implements python.ForwardHooks: the result gets the placement that is
// asked for, and a tensor is made of this rank's part (_prepare_output_fn).
func (h *parallelized) PostForward(v python.Value) python.Value {
	p := h.p
	switch h.Name {
	case program.PrepareInput:
		return v
	case program.PrepareOutput:
		if v.List == nil {
			return h.prepare(h.Prepared[0], v)
		}
		items := p.HoldAll(v.List.Items)
		for i, x := range h.Prepared {
			items[i] = h.prepare(x, items[i])
		}
		p.LetGo(v)
		return python.Value{List: python.NewList(items)}
	}
	t := v.T
	p.Instead = nil
	from, partial := h.Gives()
	from, to := from.Of(t.Rank()), h.Returns().Of(t.Rank())
	y, at := p.Keep(t), &autograd.Spread{Placement: to}
	if partial || from != to {
		y = h.redistributed(y, &redistribution{h: h, from: from, to: at, partial: partial})
	}
	autograd.Of(y).Spread = at
	if h.Local {
		y = h.local(y)
	}
	p.Drop(t)
	return python.Value{T: y}
}

// prepare is _prepare_input_arg and _prepare_out_fn, of one value that is given up.
func (h *parallelized) prepare(x program.Prepared, v python.Value) python.Value {
	if x.As == nil {
		return v
	}
	p, y := h.p, v.T
	outer := p.Push()
	p.Wraps = true
	from := x.As.Of(y.Rank())
	changes := x.Desired != nil && from != x.Desired.Of(y.Rank())
	if at := autograd.Of(y).Spread; at == nil {
		y = h.given(y, &autograd.Spread{Placement: from})
	} else {
		from = at.Placement
	}
	if changes {
		y = h.redistributed(y, &redistribution{h: h, from: from, to: &autograd.Spread{Placement: x.Desired.Of(y.Rank())}})
	}
	if h.Local {
		y = h.local(y)
	}
	p.Pop(outer)
	return python.Value{T: y}
}

// given is DTensor.from_local of a tensor that is given up.
func (h *parallelized) given(t *op.Tensor, at *autograd.Spread) *op.Tensor {
	y := h.passed(fromLocal, at, t)
	autograd.Of(y).Spread = at
	return y
}

// local is DTensor.to_local of one that is given up.
func (h *parallelized) local(t *op.Tensor) *op.Tensor {
	outer := h.p.Push()
	h.p.Wraps = false
	y := h.passed(toLocal, nil, t)
	h.p.Pop(outer)
	return y
}

// passed is t, which is given up, as an autograd.Function returns it that changes nothing.
func (h *parallelized) passed(row *op.Op, args any, t *op.Tensor) *op.Tensor {
	p := h.p
	defer p.Drop(t)
	if !p.NeedsGrad(t) {
		return p.Alias(t, t.Layout, t.DType)
	}
	return p.Through(p.NewPassage(row, args), t)
}

// fromLocal is DTensor.from_local. Where each rank has a summand of the gradient
// they are added.
var fromLocal = &op.Op{
	Name: "_FromTorchTensor", Node: "_FromTorchTensorBackward", Steps: true,
	Grad: func(b *op.Back) {
		at, g := b.Args.(*autograd.Spread), b.Grads[0]
		if at.Summand && !at.Shard {
			b.Set(0, allReduce(&b.Call, g))
			return
		}
		b.Set(0, b.Keep(g))
	},
}

// toLocal is DTensor.to_local.
var toLocal = &op.Op{
	Name: "_ToTorchTensor", Node: "_ToTorchTensorBackward",
	Grad: func(b *op.Back) { b.Set(0, b.Keep(b.Grads[0])) },
}

// redistribution are the arguments of Redistribute.
type redistribution struct {
	h       *parallelized
	from    program.Placement
	to      *autograd.Spread
	partial bool // each rank has a summand before
	async   bool // of the input of a module that is divided
}

// redistributed changes the placement of a tensor, which is given up.
func (h *parallelized) redistributed(t *op.Tensor, a *redistribution) *op.Tensor {
	out := h.p.Do1(redistribute, a, t)
	h.p.Drop(t)
	autograd.Of(out).Spread = a.to
	return out
}

// redistribute is Redistribute of torch/distributed/tensor/_redistribute.py.
var redistribute = &op.Op{
	Name: "Redistribute", Node: "RedistributeBackward", Steps: true,
	Run: func(c *op.Call) {
		a := c.Args.(*redistribution)
		if m := a.h.mask; m != nil && a.partial {
			c.Drop(m)
			a.h.mask = nil
		}
		c.Return(a.place(c, c.In[0], a.from, a.to.Placement, a.partial))
	},
	Grad: func(b *op.Back) {
		a, g := b.Args.(*redistribution), b.Grads[0]
		out := a.place(&b.Call, g, a.to.Placement, a.from, a.to.Summand)
		if a.async && (a.to.Summand || a.to.Dim == 0) { // a collective's result, which is not waited for yet (AsyncCollectiveTensor)
			autograd.Of(out).Wrapped = true
		}
		b.Set(0, out)
	},
}

// place is redistribute_local_tensor. A gradient becomes no summand again.
func (a *redistribution) place(c *op.Call, t *op.Tensor, from, to program.Placement, partial bool) *op.Tensor {
	switch {
	case partial && to.Shard:
		return reduceScatter(c, t, to.Dim, a.h.ranks)
	case partial:
		return allReduce(c, t)
	case from.Shard && !to.Shard:
		return allGather(c, t, from.Dim, a.h.ranks)
	case to.Shard && !from.Shard:
		return c.New(tensor.Contiguous(program.Redistributed(t.Size, from, to, a.h.ranks)), t.DType)
	}
	return c.Keep(t)
}

// allReduce is all_reduce of torch/distributed/_functional_collectives.py.
func allReduce(c *op.Call, t *op.Tensor) *op.Tensor {
	return c.New(tensor.Contiguous(t.Size), t.DType)
}

// allGather is all_gather_tensor, which puts parts of another dimension than the
// first together once they are there.
func allGather(c *op.Call, t *op.Tensor, dim int, ranks int64) *op.Tensor {
	own := c.Do1(aten.Contiguous, nil, t)
	out := c.New(tensor.Contiguous(program.Redistributed(t.Size, program.Placement{Shard: true}, program.Placement{}, ranks)), t.DType)
	if dim != 0 {
		parts := out
		out = c.New(tensor.Contiguous(program.Redistributed(t.Size, program.Placement{Shard: true, Dim: dim}, program.Placement{}, ranks)), t.DType)
		c.Drop(parts)
	}
	c.Drop(own)
	return out
}

// reduceScatter is reduce_scatter_tensor, before which the parts are laid one after
// the other.
func reduceScatter(c *op.Call, t *op.Tensor, dim int, ranks int64) *op.Tensor {
	var parts *op.Tensor
	if dim != 0 {
		parts = c.New(tensor.Contiguous(t.Size), t.DType)
	}
	out := c.New(tensor.Contiguous(program.Redistributed(t.Size, program.Placement{}, program.Placement{Shard: true, Dim: dim}, ranks)), t.DType)
	if parts != nil {
		c.Drop(parts)
	}
	return out
}

// toCopy converts a DTensor. The first conversion that names the device, as derivatives
// do, makes a fake tensor on it to infer a placement.
func toCopy(p *python.Interp) *op.Op {
	row := *aten.ToCopy
	row.Steps = true
	row.Run = func(c *op.Call) {
		if c.Args.(*aten.ToCopyArgs).Device {
			startFakes(p)
		}
		aten.ToCopy.Run(c)
	}
	row.Grad = func(b *op.Back) {
		startFakes(p)
		aten.ToCopy.Grad(b)
	}
	return &row
}

// startFakes is what happens before the first fake tensor is made on the device: a tensor of one
// element is made (init_gpu_context in torch/_subclasses/fake_tensor.py).
func startFakes(p *python.Interp) {
	if !p.Fakes && !p.Env().Torch.Has(torchver.FakesStartNothing) {
		p.Fakes = true
		p.Drop(p.New(tensor.Contiguous(tensor.D(1)), tensor.Float32))
	}
}

// biased is a row that adds a bias, its input i, to the product with a weight whose
// columns are divided: the bias, which each rank has, becomes a summand.
func biased(of *op.Op, i int) *op.Op {
	row := *of
	row.Steps = true
	row.Run = func(c *op.Call) {
		bias := c.In[i]
		part := c.NewLike(bias)
		c.In[i] = part
		of.Run(c)
		c.In[i] = bias
		c.Drop(part)
	}
	return &row
}

// embedding is that of a table whose rows are divided: indices of rows that other
// ranks have are masked (_MaskPartial), and the gradient has all rows.
func (h *parallelized) embedding() *op.Op {
	row := *aten.Embedding
	row.Steps = true
	row.Run = func(c *op.Call) {
		indices := c.In[0]
		bools := func() *op.Tensor { return c.New(indices.LikeDense(), tensor.Bool) }
		below, above := bools(), bools()
		h.mask = bools()
		c.Drop(below, above)
		clone := c.NewLike(indices)
		masked := c.NewLike(indices)
		c.Drop(clone)
		c.In[0] = masked
		aten.Embedding.Run(c)
		c.In[0] = indices
		c.Drop(masked)
	}
	row.Grad = func(b *op.Back) {
		b.InM = slices.Clone(b.InM)
		b.InM[1].Size = program.Redistributed(b.InM[1].Size, program.Placement{Shard: true}, program.Placement{}, h.ranks)
		aten.Embedding.Grad(b)
	}
	return &row
}
