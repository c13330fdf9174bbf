package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// slowConvolution is a convolution by im2col and matrix products, for what
// cuDNN does not take. The kernels know no groups: each group is a convolution
// of copies, and the results are joined.
func slowConvolution(c *op.Call, x, w *op.Tensor, kind convBackend, size tensor.Dims) {
	a := c.Args.(*ConvArgs)
	x, w = c.Contiguous(x), c.Contiguous(w)
	if a.Groups == 1 {
		c.Return(slowOne(c, x, w, kind, size))
		return
	}
	size = size.Set(1, size.At(1)/a.Groups)
	var outs []*op.Tensor
	for i := range a.Groups {
		mark := c.Mark()
		xg, wg := group(c, x, 1, i), group(c, w, 0, i)
		outs = append(outs, slowOne(c, xg, wg, kind, size))
		c.DropTo(mark)
	}
	c.Return(c.Do1(Cat, &DimArgs{Dim: 1}, outs...))
	c.Drop(outs...)
}

// group is part i of a tensor that is divided into the convolution's groups
// along dimension d, in the format that the whole suggests (subtensor in
// aten/src/ATen/native/Convolution.cpp).
func group(c *op.Call, t *op.Tensor, d int, i int64) *op.Tensor {
	n := t.Dim(d) / c.Args.(*ConvArgs).Groups
	return c.InFormat(c.Local(c.Alias(t, t.Narrow(d, n*i, n, 1), t.DType)), t.IsChannelsLast())
}

// slowOne is one group's convolution: the result, then a buffer of columns,
// which a 1x1 convolution does without.
func slowOne(c *op.Call, x, w *op.Tensor, kind convBackend, size tensor.Dims) *op.Tensor {
	a := c.Args.(*ConvArgs)
	var out, cols, ones *op.Tensor
	if kind == convSlowTranspose && x.Rank() == 5 {
		out = resized(c, x, size)
	} else {
		out = slowOutput(c, kind, size, x.DType)
	}
	switch {
	case kind == convSlowTranspose: // NaiveConvolutionTranspose2d.cu, 3d.cu; the bias is a product with ones
		cols = c.NewShape(x.DType, columns(w, x.Size))
		if c.Has(2) {
			ones = c.NewShape(x.DType, spatial(size))
		}
	case kind == convSlowDilated: // NaiveDilatedConvolution.cu
		cols = c.Grown(x.DType, columns(w, size))
	case !a.pointwise(w): // ConvolutionMM2d.cu
		cols = c.NewShape(x.DType, columns(w, size))
	}
	c.BlasHandle()
	c.Drop(ones, cols)
	return out
}

// slowOutput is the result of the others: resized by the kernel of the plain
// convolution, else made in its size.
func slowOutput(c *op.Call, kind convBackend, size tensor.Dims, d tensor.DType) *op.Tensor {
	if kind == convSlow2d {
		return c.Grown(d, size.Slice()...)
	}
	return c.New(tensor.Contiguous(size), d)
}

// resized is the result of slow_conv_transpose3d_cuda: it is made like the input
// and then given its own size, which only a larger one takes memory for.
func resized(c *op.Call, x *op.Tensor, size tensor.Dims) *op.Tensor {
	l := tensor.Contiguous(size)
	if l.Numel() <= x.Numel() {
		return c.NewIn(x.Bytes(), l, x.DType)
	}
	like := c.New(tensor.Contiguous(x.Size), x.DType)
	out := c.New(l, x.DType)
	c.Drop(like)
	c.Filled(x.DType)
	return out
}

// spatial is the number of positions in an image.
func spatial(size tensor.Dims) int64 {
	n := int64(1)
	for i := 2; i < size.Len(); i++ {
		n *= size.At(i)
	}
	return n
}

// columns is the size of the im2col buffer of one image.
func columns(w *op.Tensor, image tensor.Dims) int64 {
	return w.Numel() / max(w.Dim(0), 1) * spatial(image)
}

// pointwise reports a 1x1 convolution that reads the image as it lies.
func (a *ConvArgs) pointwise(w *op.Tensor) bool {
	for i := range a.Stride {
		if w.Dim(i+2) != 1 || a.Stride[i] != 1 || a.Padding[i] != 0 {
			return false
		}
	}
	return true
}

// gradSlowConv is the backward pass of slowConvolution.
func gradSlowConv(b *op.Back, x, w, g *op.Tensor, kind convBackend) {
	a := b.Args.(*ConvArgs)
	x, w = b.Contiguous(x), b.Contiguous(w)
	if a.Groups == 1 {
		for i, t := range slowGrads(b, x, w, g, kind) {
			if t != nil {
				b.Set(i, t)
			}
		}
		return
	}
	var grads [3][]*op.Tensor
	for i := range a.Groups {
		mark := b.Mark()
		gg, xg, wg := group(&b.Call, g, 1, i), group(&b.Call, x, 1, i), group(&b.Call, w, 0, i)
		for k, t := range slowGrads(b, xg, wg, gg, kind) {
			if t != nil {
				grads[k] = append(grads[k], t)
			}
		}
		b.DropTo(mark)
	}
	for k, dim := range []int{1, 0, 0} {
		if grads[k] != nil {
			b.Set(k, b.Do1(Cat, &DimArgs{Dim: dim}, grads[k]...))
		}
	}
	for k := range grads { // in the reverse order of their making
		b.Drop(grads[len(grads)-1-k]...)
	}
}

// slowGrads are the gradients of one group: of input, weight and bias.
func slowGrads(b *op.Back, x, w, g *op.Tensor, kind convBackend) (grads [3]*op.Tensor) {
	mark := b.Mark()
	switch kind {
	case convSlow2d:
		grads = gradSlow2d(b, x, w, b.Contiguous(g))
	case convSlowDilated:
		grads = gradSlowDilated(b, x, w, b.Contiguous(g))
	default:
		grads = gradSlowTranspose(b, x, w, g)
	}
	b.DropTo(mark)
	return grads
}

// gradSlow2d shares one column buffer between the gradients of input and
// weight (slow_conv2d_backward_out_cuda).
func gradSlow2d(b *op.Back, x, w, g *op.Tensor) (grads [3]*op.Tensor) {
	var cols *op.Tensor
	if b.Need(0) {
		grads[0] = b.Grown(x.DType, x.Size.Slice()...)
		cols = b.Grown(x.DType, columns(w, g.Size))
		b.BlasHandle()
	}
	if b.Need(2) {
		grads[2] = b.Grown(g.DType, g.Dim(1))
		biasScratch(b, g)
	}
	if b.Need(1) {
		grads[1] = b.Grown(w.DType, w.Size.Slice()...)
		if cols == nil {
			cols = b.Grown(x.DType, columns(w, g.Size))
		}
		b.BlasHandle()
	}
	b.Drop(cols)
	return grads
}

// gradSlowDilated adds the sum of each image to the bias's gradient
// (slow_conv_dilated_all_cuda_template).
func gradSlowDilated(b *op.Back, x, w, g *op.Tensor) (grads [3]*op.Tensor) {
	for i, size := range []tensor.Dims{x.Size, w.Size, tensor.D(w.Dim(0))} {
		if b.Need(i) {
			grads[i] = b.New(tensor.Contiguous(size), g.DType)
		}
	}
	var cols *op.Tensor
	if b.Need(0) || b.Need(1) {
		cols = b.Grown(x.DType, columns(w, g.Size))
		b.BlasHandle()
	}
	if b.Need(2) {
		a := &ReduceArgs{}
		for i := 1; i < g.Rank()-1; i++ {
			a.Dim = append(a.Dim, int64(i))
		}
		for i := range g.Dim(0) {
			image := b.Alias(g, g.Select(0, i), g.DType)
			b.Drop(b.Do1(Sum, a, image), image)
		}
	}
	b.Drop(cols)
	return grads
}

// gradSlowTranspose makes its copies and columns again for the gradients of
// the parameters (slow_conv_transpose2d_backward_cuda and its like).
func gradSlowTranspose(b *op.Back, x, w, g *op.Tensor) (grads [3]*op.Tensor) {
	a := b.Args.(*ConvArgs)
	work := func() *op.Tensor {
		if a.pointwise(w) && !a.described(x, w).Dilated() {
			return nil
		}
		return b.NewShape(x.DType, columns(w, x.Size))
	}
	mark := b.Mark()
	if b.Need(0) {
		b.Contiguous(g)
		grads[0] = b.Grown(g.DType, x.Size.Slice()...)
		cols := work()
		b.BlasHandle()
		b.Drop(cols)
		b.DropTo(mark)
	}
	if b.Need(1) {
		grads[1] = b.Grown(g.DType, w.Size.Slice()...)
	}
	if b.Need(2) {
		grads[2] = b.Grown(g.DType, w.Dim(1))
	}
	if b.Need(1) || b.Need(2) {
		g = b.Contiguous(g)
		cols := work()
		if b.Need(1) {
			b.BlasHandle()
		}
		if b.Need(2) {
			biasScratch(b, g)
		}
		b.Drop(cols)
		b.DropTo(mark)
	}
	return grads
}

// biasScratch is what the kernel needs that sums a row-major gradient into one
// that exists (at::sum_out).
func biasScratch(b *op.Back, g *op.Tensor) {
	reduceScratch(&op.Call{Exec: b.Exec}, g, biasDims(g), g.DType.Accumulate().Size(), 4)
}
