package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Stage 3 of ZeRO, as deepspeed/runtime/zero/stage3.py of version 0.19 has it. Each process has
// a part of each parameter. Hooks of every module gather its parameters before it computes, and
// give them up after it (zero3_gather.go); gradients are reduced from a bucket, and each process
// keeps its parts (zero3_reduce.go). The step goes by groups of parts, in float32.

// zero3 is DeepSpeedZeroOptimizer_Stage3 with DeepSpeedZeRoOffload.
type zero3 struct {
	*Engine
	params     []*divided // all of the model, in the order of Module.parameters
	of         map[*python.Cell]*divided
	leaves     map[*autograd.Object]*divided
	persistent []*divided
	groups     []*subGroup

	buffer   *op.Tensor // of the bucket; nil: gradients stay where they are
	bucket   []*divided
	elements int64

	coordinator
}

// divided is a parameter of which each process has a part (ds_tensor).
type divided struct {
	id      int64 // ds_id
	cell    *python.Cell
	layout  tensor.Layout // of all of it
	part    int64         // elements of a process's part, with padding
	own     *op.Tensor    // this process's
	sum     *op.Tensor    // where its part of the gradient is summed up; nil: it is frozen
	persist bool          // is gathered until the step

	status status
	active map[*hooked]bool // modules at work that have it
	handle *gathering       // while it is gathered
}

// status is ZeroParamStatus.
type status uint8

const (
	available status = iota
	notAvailable
	inFlight
)

func (x *divided) numel() int64           { return x.cell.T.Numel() }
func (x *divided) leaf() *autograd.Object { return autograd.Of(x.cell.T) }

// aligned is how many elements all parts have together.
func (x *divided) aligned(ranks int64) int64 { return x.part * ranks }

// subGroup is what is stepped at a time.
type subGroup struct {
	index  int // of the parameter group
	params []*divided
	numel  int64 // of this process's parts
	flat   *op.Tensor
	master *op.Tensor // in float32
}

func newZero3(e *Engine) *zero3 {
	return &zero3{Engine: e, of: map[*python.Cell]*divided{}, leaves: map[*autograd.Object]*divided{}}
}

// divide divides the parameters of a model, which are on the device, but those that are divided
// (zero.Init of a module).
func (z *zero3) divide(root *python.Module) {
	for _, c := range python.Parameters([]*python.Module{root}) {
		if z.of[c] == nil {
			z.convert3(c)
		}
		z.params = append(z.params, z.of[c])
	}
}

// InitDivided is zero.Init around the loading of a model: each module's parameters are made on the
// device in the type made, converted, and divided once it is made; then those of each module are
// gathered, read and divided again.
func InitDivided(p *python.Interp, parallel *program.Parallel, root *python.Module, made tensor.DType) *Engine {
	e := newEngine(p, parallel)
	z := newZero3(e)
	tied := z.construct(root, made)
	seen := map[*python.Cell]bool{}
	var read func(m *python.Module)
	read = func(m *python.Module) {
		var own []*divided
		for _, c := range m.Params {
			if !seen[c] {
				seen[c] = true
				own = append(own, z.of[c])
			}
		}
		outer := p.Push()
		p.Layer = m.Layer
		for _, x := range own {
			z.gatherNow(x)
		}
		for _, x := range own {
			z.empty(x)
		}
		p.Pop(outer)
		for _, ch := range m.Registered {
			read(ch)
		}
	}
	read(root)
	p.Drop(tied...) // tie_weights
	e.three = z
	return e
}

// construct makes the modules of a model. Parameters that others take the place of, once the
// model is read, are made and divided, too: their parts are the result.
func (z *zero3) construct(root *python.Module, made tensor.DType) (tied []*op.Tensor) {
	p := z.p
	seen := map[*python.Module]bool{}
	var each func(m *python.Module)
	each = func(m *python.Module) {
		if seen[m] {
			return
		}
		seen[m] = true
		for _, ch := range m.Registered {
			each(ch)
		}
		outer := p.Push()
		p.Layer = m.Layer
		others := make([]*op.Tensor, len(m.Params)) // of a parameter that is tied
		for i, c := range m.Params {
			var first *op.Tensor
			if c.Decl.DType != made && !c.Decl.Fixed {
				first = p.Leaf(trace.Parameters, made, false, c.Decl.Size...)
			}
			if z.of[c] == nil {
				p.Move(c, true)
			} else {
				others[i] = p.Leaf(trace.Parameters, c.Decl.DType, false, c.Decl.Size...)
			}
			p.Drop(first)
		}
		for i, c := range m.Params {
			if t := others[i]; t != nil {
				tied = append(tied, z.vector(tensor.DivUp(t.Numel(), z.ranks), t.DType))
				p.Drop(t)
			} else {
				z.convert3(c)
			}
		}
		for i, c := range m.Buffers {
			var parts []*op.Tensor
			if b := &m.Class.Buffers[i]; b.Frequencies {
				parts = z.frequencies(b.Size)
			}
			p.Move(c, false)
			p.Drop(parts...)
		}
		p.Pop(outer)
	}
	each(root)
	return tied
}

// frequencies computes inverse frequencies, 1 / base ** (arange(0, n, 2).to(float32) / n), up to the
// last operator; what is alive then is the result.
func (z *zero3) frequencies(size []int64) []*op.Tensor {
	p := z.p
	l := tensor.Contiguous(tensor.D(size...))
	integers := p.New(l, tensor.Int64)
	floats := p.New(l, tensor.Float32)
	p.Drop(integers)
	quotients := p.New(l, tensor.Float32)
	p.Drop(floats)
	powers := p.New(l, tensor.Float32)
	p.Drop(z.scalar(tensor.Float64)) // the base
	p.Drop(quotients)
	reciprocals := p.New(l, tensor.Float32)
	return []*op.Tensor{reciprocals, powers}
}

// convert3 makes a parameter on the device one that is divided (_convert_to_deepspeed_param).
func (z *zero3) convert3(c *python.Cell) {
	x := &divided{id: int64(len(z.of)), cell: c, layout: tensor.Contiguous(c.T.Size), active: map[*hooked]bool{}}
	x.part = tensor.DivUp(c.T.Numel(), z.ranks)
	z.of[c], z.leaves[x.leaf()] = x, x
	z.partition(x)
}

// train makes what the optimizer steps of divided parameters; groups are its own.
func (z *zero3) train(root *python.Module, groups [][]*python.Cell) {
	e, p := z.Engine, z.p
	z.markPersistent()
	z.attach(root)
	p.Mark(e.vector(1, tensor.Bool), trace.OptimizerState) // inf_or_nan_tracker
	for i, cells := range groups {
		z.addGroup(i, cells)
	}
	if len(z.groups) == 0 {
		p.Fail("DeepSpeed refuses an optimizer without parameters that require gradients")
	}
	z.defragment()
	z.masters()
	var largest, all int64
	for _, g := range z.groups {
		largest, all = max(largest, g.numel), all+g.numel
	}
	p.Drop(e.vector(largest, tensor.Float32)) // initialize_optimizer_states
	if e.Contiguous {
		z.buffer = e.vector(e.ReduceBucket, e.Comm)
		p.Mark(z.buffer, trace.Gradients)
	}
	sums := e.vector(all, e.Accum) // grad_partitions_flat_buffer
	p.Mark(sums, trace.Gradients)
	var at int64
	for _, g := range z.groups {
		for _, x := range g.params {
			l := tensor.Contiguous(tensor.D(x.part))
			l.Offset = at
			x.sum = p.Alias(sums, l, e.Accum)
			at += x.part
		}
	}
	z.sums = sums
	for _, g := range z.groups { // create_reduce_and_remove_grad_hooks
		for _, x := range g.params {
			z.gatherNow(x)
			z.free(x)
			x.leaf().Ready = z.arrived
		}
	}
}

// partition copies this process's part of a parameter and frees the rest (_partition_param).
func (z *zero3) partition(x *divided) {
	p, t := z.p, x.cell.T
	outer := p.Push()
	p.Layer = x.cell.Layer
	x.own = z.vector(x.part, t.DType)
	p.Mark(x.own, trace.Parameters)
	var flat *op.Tensor
	if !t.IsContiguous() {
		flat = p.New(x.layout, t.DType)
	}
	z.empty(x)
	p.Drop(flat)
	p.Pop(outer)
}

// empty is free_param.
func (z *zero3) empty(x *divided) {
	t := z.vector(0, x.cell.T.DType)
	z.p.SetData(x.cell.T, t, x.layout)
	z.p.Drop(t)
	x.status = notAvailable
}

// fill3 makes x what lies in a tensor from an offset on (x.data = ...).
func (z *zero3) fill3(x *divided, t *op.Tensor, at int64) {
	l := x.layout
	l.Offset = at
	z.p.SetData(x.cell.T, t, l)
	z.p.Mark(t, trace.Parameters)
}

// markPersistent is mark_persistent_parameters.
func (z *zero3) markPersistent() {
	var all int64
	for _, x := range z.params {
		n := x.numel()
		if n+all > z.Stage3.AllStays || n > z.Stage3.Persist {
			continue
		}
		x.persist = true
		z.persistent, all = append(z.persistent, x), all+n
	}
}

// addGroup divides a parameter group into sub-groups (_create_fp16_sub_groups).
func (z *zero3) addGroup(index int, cells []*python.Cell) {
	var params []*divided
	var all int64
	for _, c := range cells {
		if autograd.Of(c.T).Requires {
			params = append(params, z.of[c])
			all += z.of[c].part
		}
	}
	if len(params) == 0 {
		return
	}
	g := &subGroup{index: index}
	for i, x := range params {
		g.params, g.numel = append(g.params, x), g.numel+x.part
		if i == len(params)-1 || all > z.Stage3.SubGroup && g.numel >= z.Stage3.SubGroup {
			z.groups = append(z.groups, g)
			g = &subGroup{index: index}
		}
	}
}

// defragment moves this process's parts by way of host memory into one tensor.
func (z *zero3) defragment() {
	p := z.p
	var all int64
	d := z.groups[0].params[0].own.DType
	for _, g := range z.groups {
		for _, x := range g.params {
			if x.own.DType != d {
				p.Fail("parameters of %s and %s are trained, which stage 3 of ZeRO refuses", d, x.own.DType)
			}
			p.Drop(x.own)
			all += x.part
		}
	}
	p.EmptyCache()
	flat := z.vector(all, d)
	p.Mark(flat, trace.Parameters)
	var at int64
	for _, g := range z.groups {
		l := tensor.Contiguous(tensor.D(g.numel))
		l.Offset = at
		g.flat = p.Alias(flat, l, d)
		for _, x := range g.params {
			l := tensor.Contiguous(tensor.D(x.part))
			l.Offset = at
			x.own = p.Alias(flat, l, d)
			at += x.part
		}
	}
	p.Drop(flat)
}

// masters makes the parts in float32 (_create_fp32_partitions).
func (z *zero3) masters() {
	p := z.p
	var converted *op.Tensor // a local name
	for _, g := range z.groups {
		if g.flat.DType != tensor.Float32 {
			c := z.vector(g.numel, tensor.Float32)
			p.Drop(converted)
			converted = c
		}
		g.master = z.vector(g.numel, tensor.Float32)
		p.Mark(g.master, trace.OptimizerState)
	}
	p.Drop(converted)
}

// stepParts is DeepSpeedZeroOptimizer_Stage3.step.
func (z *zero3) stepParts() {
	p := z.p
	z.releaseAll()
	if z.DType == tensor.Float16 {
		z.checkOverflow3()
	}
	var norms []*op.Tensor
	for _, g := range z.groups {
		norms = append(norms, z.normOfParts(g))
	}
	d := norms[0].DType
	stacked := z.vector(int64(len(norms)), d)
	two := 2.0
	norm := p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, stacked)
	p.Drop(stacked)
	before := z.norm
	z.norm = z.scalar(d)
	for _, g := range z.groups {
		grad := z.flatParts(g)
		z.unscale(d)
		z.step(g.index, g.master, grad)
		p.Drop(grad)
	}
	z.gatherPersistent()
	z.dropList(norms)
	p.Drop(norm)
	p.Drop(before)
}

// flatParts is the gradient of a sub-group's parts in float32 (_prepare_fp32_grad_for_sub_group).
func (z *zero3) flatParts(g *subGroup) *op.Tensor {
	p := z.p
	var parts []*op.Tensor
	for _, x := range g.params {
		parts = append(parts, x.sum)
	}
	flat := z.flatten(parts)
	if c := z.convert(flat, tensor.Float32); c != nil {
		p.Drop(flat)
		return c
	}
	return flat
}

// normOfParts is get_grad_norm_direct.
func (z *zero3) normOfParts(g *subGroup) *op.Tensor {
	p, d := z.p, tensor.Float64
	two := 2.0
	var norms []*op.Tensor
	for _, x := range g.params {
		double := z.convert(x.sum, d)
		norms = append(norms, p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, double))
		p.Drop(double)
	}
	n := int64(len(norms))
	stacked := z.vector(n, d)
	squares := z.vector(n, d)
	p.Drop(stacked)
	sum := p.Do1(aten.Sum, &aten.ReduceArgs{}, squares)
	p.Drop(squares)
	root := z.scalar(d)
	inf := p.Do1(aten.Isinf, nil, root)
	nan := p.Do1(aten.IsNaN, nil, root)
	either := p.Do1(aten.LogicalOr, nil, nan, inf)
	minus := z.scalar(tensor.Float32)
	wide := z.scalar(d)
	total := z.scalar(d) // where
	p.Drop(wide)
	p.Drop(root)
	p.Drop(sum)
	z.dropList(norms)
	p.Drop(inf, nan, either, minus)
	return total
}

// checkOverflow3 is has_overflow: whether a part of a gradient has infinities.
func (z *zero3) checkOverflow3() {
	p := z.p
	z.onReduction(func() {
		for _, r := range []*op.Op{aten.Isinf, aten.IsNaN} {
			t := p.Do1(r, nil, z.sums)
			some := p.Do1(aten.Any, &aten.ReduceArgs{}, t)
			p.Drop(t)
			p.Drop(some)
		}
	})
	var flag *op.Tensor
	z.onReduction(func() {
		c := z.vector(1, tensor.Bool)
		flag = z.vector(1, tensor.Uint8)
		p.Drop(c)
	})
	p.Drop(flag)
}
