package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// postBackward is FSDPParamGroup.post_backward: the gathered parameters are
// freed, then the gradients reduced.
func (g *shardGroup) postBackward(p *python.Interp) {
	g.phase = shardPostBackward
	for _, x := range g.params {
		if w := autograd.Of(x.whole); x.sum != nil && w.Grad != nil {
			p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, x.sum, &w.Grad.Tensor))
			takeGrad(p, x)
		}
	}
	if g.local {
		g.freeAfterBackward(p)
		g.convertSums(p)
		return
	}
	var params []*shardParam
	var grads []*op.Tensor
	for _, x := range g.params {
		t := x.sum
		x.sum = nil
		if t == nil && autograd.Of(x.whole).Grad != nil {
			t = &autograd.Of(x.whole).Grad.Tensor
			autograd.Of(x.whole).Grad = nil
		}
		if t != nil {
			params, grads = append(params, x), append(grads, x.placed(p, t))
		}
	}
	g.freeAfterBackward(p)
	if len(grads) == 0 {
		return
	}
	p.Drop(g.reduced, g.replicated)
	g.reduced, g.replicated = nil, nil
	p.Labelled("FSDP::post_backward_reduce", g.module.Layer, func() { g.reduced = g.reduce(p, params, grads) })
}

// placed makes a gradient, which is given up, lie as its parameter does
// (FSDPParam._get_grad_inner_tensor).
func (x *shardParam) placed(p *python.Interp, t *op.Tensor) *op.Tensor {
	if x.gradient != python.GradPartial && (x.gradient != python.GradReplicate || x.cell.Part.Len() == 0) {
		return t
	}
	p.Layer = x.cell.Layer
	out := p.New(tensor.Contiguous(x.size), t.DType) // the sum over the ranks, or its rows of all
	p.Drop(t)
	return out
}

// freeAfterBackward is FSDPParamGroup.reshard after the backward pass.
func (g *shardGroup) freeAfterBackward(p *python.Interp) {
	if !g.keeps {
		g.free(p)
	}
}

// takeGrad gives up the gradient of a gathered parameter.
func takeGrad(p *python.Interp, x *shardParam) {
	w := autograd.Of(x.whole)
	t := w.Grad
	w.Grad = nil
	p.Release(t)
}

// convertSums keeps gradients that are not reduced yet in the type of reductions
// (to_accumulated_grad_if_needed).
func (g *shardGroup) convertSums(p *python.Interp) {
	if g.ReduceDType == nil {
		return
	}
	for _, x := range g.params {
		w := autograd.Of(x.whole)
		if w.Grad == nil || w.Grad.DType == *g.ReduceDType {
			continue
		}
		x.sum = p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: *g.ReduceDType}, &w.Grad.Tensor)
		p.Mark(x.sum, trace.Gradients)
		takeGrad(p, x)
	}
}

// reduce is foreach_reduce: gradients are copied to the input of a
// reduce-scatter, and die; the output's parts become the gradients of the sharded
// parameters. It returns the input. The last gradient lives longer: it is a loop
// variable.
func (g *shardGroup) reduce(p *python.Interp, params []*shardParam, grads []*op.Tensor) *op.Tensor {
	d := grads[0].DType
	to := d
	if g.ReduceDType != nil {
		to = *g.ReduceDType
	}
	var total int64
	sizes := make([]int64, len(grads))
	fast := d == to || d == tensor.BFloat16 && to == tensor.Float32
	for i, t := range grads {
		if t.DType != d {
			p.Fail("FSDP reduce-scatter expects uniform gradient dtype, PyTorch says: %s and %s", d, t.DType)
		}
		total += params[i].part
		sizes[i] = params[i].part * to.Size()
		fast = fast && t.IsDense()
	}
	input := p.New(tensor.Contiguous(tensor.D(total*g.ranks)), to)
	if fast {
		onDevice(p, chunkCatTable(sizes))
	} else {
		g.padded(p, params, grads)
	}
	last := len(grads) - 1
	for i := last - 1; i >= 0; i-- {
		p.Drop(grads[i])
	}
	var output *op.Tensor
	p.OnStream(g.reducing, func() { output = p.New(tensor.Contiguous(tensor.D(total)), to) })
	stream := g.reducing
	if g.Replicas > 1 {
		stream, g.replicated = autograd.ReplicateStream, p.Keep(output)
	}
	p.OnStream(stream, func() {
		if to != g.dtype {
			c := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: g.dtype}, output)
			p.Drop(output)
			output = c
		}
		p.Mark(output, trace.Gradients)
		var at int64
		for _, x := range params {
			leaf := autograd.Of(x.cell.T)
			l := leaf.Layout
			l.Offset = at
			at += x.part
			part := p.Alias(output, l, g.dtype)
			if g.Offload {
				c := p.Transfer(part, true, g.Pinned && leaf.Grad == nil, part.LikeDense())
				p.Mark(c, trace.Gradients)
				p.Drop(part)
				part = c
			}
			if leaf.Grad != nil {
				p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, &leaf.Grad.Tensor, part), part)
			} else {
				leaf.Grad = autograd.Of(part)
			}
			if leaf.Ready != nil {
				leaf.Ready(leaf)
			}
		}
	})
	p.Drop(grads[last], output)
	return input
}

// padded is _chunk_cat.out where its kernel does not do: gradients whose first
// dimension is no multiple of the ranks are copied to zeros first (_pad_chunk in
// aten/src/ATen/native/TensorShape.cpp).
func (g *shardGroup) padded(p *python.Interp, params []*shardParam, grads []*op.Tensor) {
	var copies []*op.Tensor
	for i, t := range grads {
		if n := params[i].part * g.ranks; n != t.Numel() {
			copies = append(copies, p.New(tensor.Contiguous(tensor.D(n)), t.DType))
		}
	}
	p.Drop(copies...)
}
