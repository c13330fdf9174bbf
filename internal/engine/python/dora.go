package python

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// startMagnitude computes the magnitude of a layer with DoRA on the GPU, once the two
// matrices of the adapter are there: the norm of the weight with the adapter's part
// (DoraLinearLayer.update_layer). One whose weight has four bits is copied before.
func (p *Interp) startMagnitude(m, base *Module, down, up *op.Tensor) {
	c := m.child(program.Magnitude).Params[0]
	outer := p.Push()
	p.Layer = c.Layer
	p.Env().GradMode = false
	one := func(row *op.Op, args any, in ...*op.Tensor) *op.Tensor { return p.Do(row, args, in...)[0] }
	var dead []*op.Tensor
	half := down.DType == tensor.Float16
	if half {
		wide := &aten.ToCopyArgs{DType: tensor.Float32}
		down, up = one(aten.To, wide, down), one(aten.To, wide, up)
		dead = append(dead, down, up)
	}
	weight := base.Params[0].T
	if q := base.Class.Quantized; q != nil {
		dead = append(dead, p.copyQuantized(base)...)
		weight = one(aten.Dequantize4bit, &aten.Dequantize4bitArgs{Out: q.Out, In: q.In, DType: q.Source, Double: q.Double}, weight, base.Buffers[0].T)
		dead = append(dead, weight)
	}
	delta := one(aten.Matmul, nil, up, down)
	if half {
		narrow := one(aten.To, &aten.ToCopyArgs{DType: tensor.Float16}, delta)
		p.Drop(delta)
		delta = narrow
	}
	dead = append(dead, delta)
	if weight.Dim(0) != c.Decl.Size[0] { // of Conv1D
		weight = one(aten.T, nil, weight)
		dead = append(dead, weight)
	}
	scaled := one(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: 1}}, delta)
	sum := one(aten.Add, &aten.AddArgs{}, weight, scaled)
	p.Drop(scaled)
	c.T = one(aten.VectorNorm, &aten.NormArgs{ReduceArgs: aten.ReduceArgs{Dim: []int64{1}}}, sum)
	p.Drop(sum)
	for _, t := range dead {
		p.Drop(t)
	}
	p.Pop(outer)
	p.Mark(c.T, trace.Parameters)
	autograd.Of(c.T).Requires, c.adapter = true, true
}

// copyQuantized is copy.deepcopy of a layer of four bits: the weight, whose own copy of
// the state comes first, and the state of the layer. Each copy makes a scalar beside.
func (p *Interp) copyQuantized(base *Module) (copies []*op.Tensor) {
	clone := func(t *op.Tensor) {
		copies = append(copies, p.New(tensor.Contiguous(t.Size), t.DType))
		p.Drop(p.New(tensor.Contiguous(tensor.D()), t.DType))
	}
	state := func() {
		for _, c := range base.Buffers {
			clone(c.T)
		}
	}
	state()
	clone(base.Params[0].T)
	state()
	return copies
}
