package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
)

// cudnnConvolution is cudnn_convolution and cudnn_convolution_transpose: the
// bias is added in place to the result, which follows the operands' layout.
func (c *Call) cudnnConvolution(x, w *Tensor, size tensor.Dims) {
	last := cudnn.ChannelsLast(x.Layout, w.Layout)
	x = c.inFormat(x, last)
	c.Return(c.New(tensor.InFormat(size, last), x.DType))
	w = c.inFormat(w, last)
	c.convKernel(cudnn.Fprop, x, w, c.Out[0], last)
}

// gradCudnnConv is cudnn_convolution_backward and its transposed form. Each
// gradient's kernel has its own idea of the memory format, from the operands it
// reads, and its own copies of those that lie otherwise.
func (b *Back) gradCudnnConv(x, w, g *Tensor) {
	mark := b.Mark()
	if b.Need(1) {
		x = b.inFormat(x, cudnn.ChannelsLast(x.Layout, w.Layout))
	}
	transposed := b.Args.(*ConvArgs).Transposed
	switch last := x.IsChannelsLast(); {
	case transposed: // contiguous(format)
		g = b.inFormat(g, last)
	case last != suggestsLast(g): // to(format), which looks at the order of strides alone
		g = b.rearranged(g, tensor.InFormat(g.Size, last))
	}
	if b.Need(0) {
		last, inner := cudnn.ChannelsLast(g.Layout, w.Layout), b.Mark()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.convKernel(cudnn.Dgrad, b.Results[0], b.inFormat(w, last), b.inFormat(g, last), last)
		b.DropTo(inner)
	}
	if b.Need(1) {
		last, inner := cudnn.ChannelsLast(x.Layout, g.Layout), b.Mark()
		first, second := g, x
		if transposed { // input and gradient change places
			first, second = x, g
		}
		first, second = b.inFormat(first, last), b.inFormat(second, last)
		b.Set(1, b.New(tensor.InFormat(w.Size, last), w.DType))
		if transposed {
			first, second = second, first
		}
		b.convKernel(cudnn.Wgrad, second, b.Results[1], first, last)
		b.DropTo(inner)
	}
	b.DropTo(mark)
}

// suggestsLast reports whether the strides of a gradient suggest the
// channels-last layout; one spatial dimension is an image of height 1.
func suggestsLast(g *Tensor) bool {
	l := g.Layout
	if l.Rank() == 3 {
		l = l.Unsqueeze(2)
	}
	return l.IsChannelsLast()
}
