package op

import "github.com/memplan/memplan/internal/tensor"

// cudnnConvolution is cudnn_convolution and cudnn_convolution_transpose: the
// bias is added in place to the result, which follows the operands' layout.
func (c *Call) cudnnConvolution(x, w *Tensor, size tensor.Dims) {
	last := channelsLastConv(x, w)
	x = c.inFormat(x, last)
	c.Return(c.New(tensor.InFormat(size, last), x.DType))
	w = c.inFormat(w, last)
	c.convKernel(Fprop, x, w, c.Out[0], last)
}

// channelsLastConv reports whether cuDNN works in channels-last layout: the
// strides of either operand suggest it (cudnn_conv_suggest_memory_format).
func channelsLastConv(x, w *Tensor) bool { return x.IsChannelsLast() || w.IsChannelsLast() }

// gradCudnnConv is cudnn_convolution_backward and its transposed form. Each
// gradient's kernel has its own idea of the memory format, from the operands it
// reads, and its own copies of those that lie otherwise.
func (b *Back) gradCudnnConv(x, w, g *Tensor) {
	mark := b.Mark()
	if b.Need(1) {
		x = b.inFormat(x, channelsLastConv(x, w))
	}
	transposed := b.Args.(*ConvArgs).Transposed
	switch last := x.IsChannelsLast(); {
	case transposed: // contiguous(format)
		g = b.inFormat(g, last)
	case last != suggestsLast(g): // to(format), which looks at the order of strides alone
		g = b.rearranged(g, tensor.InFormat(g.Size, last))
	}
	if b.Need(0) {
		last, inner := channelsLastConv(g, w), b.Mark()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.convKernel(Dgrad, b.Results[0], b.inFormat(w, last), b.inFormat(g, last), last)
		b.DropTo(inner)
	}
	if b.Need(1) {
		last, inner := channelsLastConv(x, g), b.Mark()
		first, second := g, x
		if transposed { // input and gradient change places
			first, second = x, g
		}
		first, second = b.inFormat(first, last), b.inFormat(second, last)
		b.Set(1, b.New(tensor.InFormat(w.Size, last), w.DType))
		if transposed {
			first, second = second, first
		}
		b.convKernel(Wgrad, second, b.Results[1], first, last)
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
