package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// depthwise2d is PyTorch's own kernel for depthwise convolutions over one or
// two dimensions (aten/src/ATen/native/cuda/DepthwiseConv2d.cu).
func depthwise2d(c *op.Call, x, w *op.Tensor, size tensor.Dims) {
	c.Contiguous(x)
	c.Contiguous(w)
	c.Return(c.Grown(x.DType, size.Slice()...))
}

// gradDepthwise2d computes the weight's gradient first.
func gradDepthwise2d(b *op.Back, x, w, g *op.Tensor) {
	mark := b.Mark()
	b.Contiguous(g)
	inner := b.Mark()
	if b.Need(1) {
		b.Contiguous(x)
		b.Set(1, b.Grown(g.DType, w.Size.Slice()...))
		b.DropTo(inner)
	}
	if b.Need(0) {
		b.Contiguous(w)
		b.Set(0, b.Grown(g.DType, x.Size.Slice()...))
	}
	b.DropTo(mark)
	gradConvBias(b, g)
}

// depthwise3d is the one for three dimensions
// (aten/src/ATen/native/cuda/DepthwiseConv3d.cu).
func depthwise3d(c *op.Call, x, w *op.Tensor, size tensor.Dims) {
	c.Contiguous(x)
	c.Return(c.New(tensor.Contiguous(size), x.DType))
	c.Contiguous(w)
}

// gradDepthwise3d allocates the gradients before the copies of the operands,
// and sums the bias's before it frees them.
func gradDepthwise3d(b *op.Back, x, w, g *op.Tensor) {
	if b.Need(0) {
		b.Set(0, b.New(tensor.Contiguous(x.Size), g.DType))
	}
	if b.Need(1) {
		b.Set(1, b.New(tensor.Contiguous(w.Size), g.DType))
	}
	mark := b.Mark()
	b.Contiguous(g)
	inner := b.Mark()
	for i, t := range []*op.Tensor{w, x} {
		if b.Need(i) {
			b.Contiguous(t)
			b.DropTo(inner)
		}
	}
	gradConvBias(b, g)
	b.DropTo(mark)
}
