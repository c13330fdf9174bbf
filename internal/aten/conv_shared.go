package aten

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// cudnnConvolution is cudnn_convolution and cudnn_convolution_transpose: the
// bias is added in place to the result, which follows the operands' layout.
func cudnnConvolution(c *op.Call, x, w *op.Tensor, size tensor.Dims) {
	last := cudnn.ChannelsLast(x.Layout, w.Layout)
	x = c.InFormat(x, last)
	c.Return(c.New(tensor.InFormat(size, last), x.DType))
	w = c.InFormat(w, last)
	convKernel(c, cudnn.Fprop, x, w, c.Out[0], last)
}

// gradCudnnConv is cudnn_convolution_backward and its transposed form. Each
// gradient's kernel has its own idea of the memory format, from the operands it
// reads, and its own copies of those that lie otherwise.
func gradCudnnConv(b *op.Back, x, w, g *op.Tensor) {
	mark := b.Mark()
	if b.Need(1) {
		x = b.InFormat(x, cudnn.ChannelsLast(x.Layout, w.Layout))
	}
	transposed := b.Args.(*ConvArgs).Transposed
	switch last := x.IsChannelsLast(); {
	case transposed: // contiguous(format)
		g = b.InFormat(g, last)
	case last != suggestsLast(g): // to(format), which looks at the order of strides alone
		g = b.Rearranged(g, tensor.InFormat(g.Size, last))
	}
	if b.Need(0) {
		last, inner := cudnn.ChannelsLast(g.Layout, w.Layout), b.Mark()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		convKernel(&b.Call, cudnn.Dgrad, b.Results[0], b.InFormat(w, last), b.InFormat(g, last), last)
		b.DropTo(inner)
	}
	if b.Need(1) {
		last, inner := cudnn.ChannelsLast(x.Layout, g.Layout), b.Mark()
		first, second := g, x
		if transposed { // input and gradient change places
			first, second = x, g
		}
		first, second = b.InFormat(first, last), b.InFormat(second, last)
		b.Set(1, b.New(tensor.InFormat(w.Size, last), w.DType))
		if transposed {
			first, second = second, first
		}
		convKernel(&b.Call, cudnn.Wgrad, second, b.Results[1], first, last)
		b.DropTo(inner)
	}
	b.DropTo(mark)
}

// suggestsLast reports whether the strides of a gradient suggest the
// channels-last layout; one spatial dimension is an image of height 1.
func suggestsLast(g *op.Tensor) bool {
	l := g.Layout
	if l.Rank() == 3 {
		l = l.Unsqueeze(2)
	}
	return l.IsChannelsLast()
}

// convKernel is one kernel of cuDNN. With torch.backends.cudnn.benchmark the first
// of its kind tries the plans that there are, in a workspace that suits them all,
// and empties the cache before it runs the best one (run_single_conv,
// get_plans_from_find). The workspace of the search is taken to be that of the plan.
func convKernel(c *op.Call, k cudnn.ConvKernel, images, filter, results *op.Tensor, last bool) {
	if c.Env().NoKernels() {
		return
	}
	a := c.Args.(*ConvArgs)
	if a.Transposed { // the gradient of another convolution
		images, results = results, images
		k = [...]cudnn.ConvKernel{cudnn.Fprop: cudnn.Dgrad, cudnn.Dgrad: cudnn.Fprop, cudnn.Wgrad: cudnn.Wgrad}[k]
	}
	call := cudnn.ConvCall{Kernel: k, Last: last, DType: images.DType, X: images.Bytes(), W: filter.Bytes(), Y: results.Bytes()}
	if c.Env().CudnnBenchmark && c.FirstPlan(cudnn.ConvPlan{
		Kernel: k, DType: images.DType, X: images.Size, W: filter.Size, Last: last,
		Stride: tensor.D(a.Stride...), Padding: tensor.D(a.Padding...), Dilation: tensor.D(a.Dilation...), Groups: a.Groups,
		Align: [3]int64{alignment(images), alignment(results), alignment(filter)},
	}) {
		c.ConvWorkspace(call)
		c.EmptyCache()
	}
	c.ConvWorkspace(call)
}

func alignment(t *op.Tensor) int64 { return cudnn.Alignment(t.Layout, t.DType) }
