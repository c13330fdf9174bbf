package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Step is DeepSpeedEngine.step: after the last micro-batch, DeepSpeedZeroOptimizer.step.
func (e *Engine) Step() {
	p := e.p
	if !e.boundary() {
		e.micro++
		return
	}
	outer := p.Push()
	p.Label("DeepSpeedZeroOptimizer.step")
	p.Env().GradMode = false
	e.pass = 0
	if e.three != nil {
		e.three.stepParts()
		p.Pop(outer)
		e.micro++
		return
	}
	if e.Offload {
		e.stepOnHost()
		p.Pop(outer)
		e.micro++
		return
	}
	if e.CheckOverflow {
		e.checkOverflow()
	}
	norm := e.globalNorm()
	before := e.norm // the engine holds it until the step is over
	e.norm = e.scalar(norm.DType)
	for i, g := range e.groups {
		for _, x := range g.params {
			if !x.mine {
				e.dropGrad(x)
				p.Drop(x.accum)
				x.accum = nil
			}
		}
		grad := e.flatGradients(g)
		for _, x := range g.mine {
			e.dropGrad(x)
			p.Drop(x.accum)
			x.accum = nil
		}
		e.dropList(g.averaged)
		e.dropList(g.sums)
		g.averaged, g.sums = nil, nil
		e.unscale(tensor.Float32)
		e.step(i, g.master, grad)
		p.Drop(grad)
	}
	p.Drop(norm)
	p.Drop(before)
	for _, x := range e.params { // zero_grad
		e.dropGrad(x)
		p.Drop(x.accum)
		x.accum = nil
	}
	p.Pop(outer)
	e.micro++
}

// flatGradients is the gradient of this process's part, in float32.
func (e *Engine) flatGradients(g *zeroGroup) *op.Tensor {
	p := e.p
	list := g.averaged
	var pad *op.Tensor
	if e.Rank == e.ranks-1 { // flatten_dense_tensors_aligned
		var n int64
		for _, t := range list {
			n += t.Numel()
		}
		if rest := n % g.part; rest != 0 {
			pad = e.vector(g.part-rest, list[0].DType)
			list = append(append([]*op.Tensor{}, list...), pad)
		}
	}
	flat := e.flatten(list)
	p.Drop(pad)
	if c := e.convert(flat, tensor.Float32); c != nil {
		p.Drop(flat)
		flat = c
	}
	return flat
}

// unscale is unscale_and_clip_grads: scalars.
func (e *Engine) unscale(d tensor.DType) {
	if e.Clip <= 0 {
		return
	}
	p := e.p
	divided := e.scalar(d)
	plus := e.scalar(d)
	p.Drop(divided)
	clip := e.scalar(d)
	p.Drop(plus)
	clamped := e.scalar(d)
	p.Drop(clip)
	scale := e.scalar(d)
	reciprocal := e.scalar(d)
	product := e.scalar(d)
	p.Drop(reciprocal, product)
	p.Drop(scale, clamped)
}

// checkOverflow is has_overflow: whether a gradient has infinities.
func (e *Engine) checkOverflow() {
	p := e.p
	count := e.vector(1, tensor.Float32)
	for _, g := range e.groups {
		for _, t := range g.averaged {
			p.Drop(e.infinite(t))
		}
	}
	some := e.vector(1, tensor.Bool)
	p.Drop(count)
	byte := e.vector(1, tensor.Uint8)
	p.Drop(some, byte)
}

// infinite is _has_inf_or_nan.
func (e *Engine) infinite(t *op.Tensor) *op.Tensor {
	p := e.p
	x := e.convert(t, tensor.Float32)
	of := t
	if x != nil {
		of = x
	}
	nan := p.Do1(aten.IsNaN, nil, of)
	inf := p.Do1(aten.Isinf, nil, of)
	either := p.Do1(aten.LogicalOr, nil, nan, inf)
	float := e.convert(either, tensor.Float32)
	most := p.Do1(aten.Max.All, nil, float)
	p.Drop(float)
	p.Drop(x, nan, inf, either)
	return most
}

// globalNorm is scaled_global_norm.
func (e *Engine) globalNorm() *op.Tensor {
	p := e.p
	var norms []*op.Tensor
	for _, g := range e.groups {
		norms = append(norms, e.normOf(g))
	}
	stacked := e.vector(int64(len(norms)), tensor.Float32)
	two := 2.0
	norm := p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, stacked)
	p.Drop(stacked)
	e.dropList(norms)
	return norm
}

// normOf is get_grad_norm_direct of this process's gradients.
func (e *Engine) normOf(g *zeroGroup) *op.Tensor {
	p := e.p
	two := 2.0
	var norms []*op.Tensor
	for i, t := range g.averaged {
		if i >= len(g.mine) { // zip ends with the shorter list
			break
		}
		double := e.convert(t, tensor.Float64)
		norms = append(norms, p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, double))
		p.Drop(double)
	}
	var total *op.Tensor
	if len(norms) > 0 {
		stacked := e.vector(int64(len(norms)), tensor.Float64)
		square := e.vector(int64(len(norms)), tensor.Float64)
		p.Drop(stacked)
		sum := p.Do1(aten.Sum, &aten.ReduceArgs{}, square)
		p.Drop(square)
		total = e.convert(sum, tensor.Float32)
		p.Drop(sum)
	} else {
		total = e.scalar(tensor.Float32)
	}
	root := e.scalar(tensor.Float32)
	p.Drop(total)
	inf := p.Do1(aten.Isinf, nil, root) // mask_nan_or_inf_with_val_inplace
	nan := p.Do1(aten.IsNaN, nil, root)
	either := p.Do1(aten.LogicalOr, nil, nan, inf)
	minus := e.scalar(tensor.Float32)
	p.Drop(inf, nan, either, minus)
	e.dropList(norms)
	return root
}
