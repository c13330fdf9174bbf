package op

import "github.com/memplan/memplan/internal/tensor"

// depthwise2d is PyTorch's own kernel for depthwise convolutions over one or
// two dimensions (aten/src/ATen/native/cuda/DepthwiseConv2d.cu).
func (c *Call) depthwise2d(x, w *Tensor, size tensor.Dims) {
	c.contiguous(x)
	c.contiguous(w)
	c.Return(c.grown(x.DType, size.Slice()...))
}

// gradDepthwise2d computes the weight's gradient first.
func (b *Back) gradDepthwise2d(x, w, g *Tensor) {
	mark := b.Mark()
	b.contiguous(g)
	inner := b.Mark()
	if b.Need(1) {
		b.contiguous(x)
		b.Set(1, b.grown(g.DType, w.Size.Slice()...))
		b.DropTo(inner)
	}
	if b.Need(0) {
		b.contiguous(w)
		b.Set(0, b.grown(g.DType, x.Size.Slice()...))
	}
	b.DropTo(mark)
	b.gradConvBias(g)
}

// depthwise3d is the one for three dimensions
// (aten/src/ATen/native/cuda/DepthwiseConv3d.cu).
func (c *Call) depthwise3d(x, w *Tensor, size tensor.Dims) {
	c.contiguous(x)
	c.Return(c.New(tensor.Contiguous(size), x.DType))
	c.contiguous(w)
}

// gradDepthwise3d allocates the gradients before the copies of the operands,
// and sums the bias's before it frees them.
func (b *Back) gradDepthwise3d(x, w, g *Tensor) {
	if b.Need(0) {
		b.Set(0, b.New(tensor.Contiguous(x.Size), g.DType))
	}
	if b.Need(1) {
		b.Set(1, b.New(tensor.Contiguous(w.Size), g.DType))
	}
	mark := b.Mark()
	b.contiguous(g)
	inner := b.Mark()
	for i, t := range []*Tensor{w, x} {
		if b.Need(i) {
			b.contiguous(t)
			b.DropTo(inner)
		}
	}
	b.gradConvBias(g)
	b.DropTo(mark)
}
