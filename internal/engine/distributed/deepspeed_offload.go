package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// With offload_optimizer the part of each process in float32, its gradient and the state of
// the optimizer are in host memory; gradients go there from the bucket.

// hostVector allocates in host memory.
func (e *Engine) hostVector(n int64, d tensor.DType, c trace.Category) (t *op.Tensor) {
	e.p.On(true, e.Pinned, func() { t = e.vector(n, d) })
	e.p.Mark(t, c)
	return t
}

// toHost moves a group's part, of which there is a copy on the device, with a buffer of the
// parameters' type for the way back.
func (e *Engine) toHost(g *zeroGroup) {
	clone := g.master
	g.master = e.hostVector(g.part, tensor.Float32, trace.OptimizerState)
	e.p.Drop(clone)
	e.hostVector(g.part, e.DType, trace.Parameters)
}

// offload makes the buffers that gradients go through, as large as the largest parameter, and
// the gradients of the parts.
func (e *Engine) offload() {
	var largest int64
	for _, x := range e.params {
		largest = max(largest, x.numel())
	}
	e.hostVector(largest, e.DType, trace.Gradients)
	e.scratch = e.vector(largest, e.DType)
	e.p.Mark(e.scratch, trace.Gradients)
	for _, g := range e.groups {
		g.grad = e.hostVector(g.part, tensor.Float32, trace.Gradients)
	}
	e.onHost = map[*zeroParam]*op.Tensor{}
	e.hook()
}

// copyToHost is copy_grads_in_partition: before the last micro-batch gradients are summed up in
// host memory, after it they become those of the part.
func (e *Engine) copyToHost(x *zeroParam) {
	p := e.p
	if (e.pass > 1 || !e.boundary()) && e.onHost[x] == nil {
		e.onHost[x] = e.hostVector(x.numel(), e.DType, trace.Gradients)
	}
	if !e.boundary() {
		return
	}
	grad := e.grad(x)
	flat := tensor.Contiguous(tensor.D(e.within(x)))
	flat.Offset = grad.Offset
	mine := p.Alias(grad, flat, grad.DType)
	double := e.convert(mine, tensor.Float64)
	two := 2.0
	e.norms = append(e.norms, p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, double))
	p.Drop(double)
	p.Drop(e.infinite(grad))
	float := e.convert(mine, tensor.Float32)
	p.Drop(mine)
	e.clearGrad(x)
	p.Drop(float)
}

// within is how many elements of x lie in this process's part.
func (e *Engine) within(x *zeroParam) int64 {
	begin := x.group.part * e.Rank
	return min(x.at+x.numel(), begin+x.group.part) - max(x.at, begin)
}

// stepOnHost is DeepSpeedZeroOptimizer.step with the optimizer in host memory: on the device
// there are flags and norms that processes exchange.
func (e *Engine) stepOnHost() {
	p := e.p
	if e.CheckOverflow {
		p.Drop(e.vector(1, tensor.Uint8))
	}
	for range e.groups {
		p.Drop(e.vector(1, tensor.Float32))
	}
	for i, g := range e.groups {
		e.step(i, g.master, g.grad)
	}
	p.Drop(e.norms...)
	e.norms = nil
	for _, x := range e.params {
		e.clearGrad(x)
		e.dropGrad(x)
	}
}
