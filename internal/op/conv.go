package op

import "github.com/memplan/memplan/internal/tensor"

// ConvArgs are the arguments of a convolution. The lists have one entry for
// each spatial dimension.
type ConvArgs struct {
	Stride, Padding, Dilation []int64
	OutputPadding             []int64
	Groups                    int64
	Transposed                bool
}

// Conv is a convolution over one to three spatial dimensions; inputs are
// input, weight and bias.
var Conv = define(Row{
	Name: "convolution", Args: &ConvArgs{}, Cast: CastLower, Run: func(c *Call) {
		x, w := c.In[0], c.In[1]
		a := c.Args.(*ConvArgs)
		size := c.convShape(x, w, a)
		if c.slowConv(x) {
			c.runSlowConv(x, a, size)
			return
		}
		last := channelsLastConv(x, w)
		c.inFormat(x, last)
		c.Return(c.New(tensor.InFormat(size, last), x.DType)) // the bias is added in place
		c.inFormat(w, last)
	},
	Save: []Save{In(0), In(1)}, Node: "ConvolutionBackward0",
	Grad: func(b *Back) { // convolution_backward: input, weight, then the bias as a sum
		x, w, g := b.SavedIn[0], b.SavedIn[1], b.Grads[0]
		if b.slowConv(x) {
			b.gradSlowConv()
			return
		}
		b.gradCudnnConv(x, w, g)
		b.gradConvBias(g)
	},
	NotModelled: "cuDNN's convolution workspaces",
	Source:      "aten/src/ATen/native/Convolution.cpp, cudnn/ConvShared.cpp",
})

// convShape checks the operands and returns the result's shape.
func (c *Call) convShape(x, w *Tensor, a *ConvArgs) tensor.Dims {
	n := w.Rank() - 2
	if x.Rank() != n+2 {
		c.Fail("a %d-dimensional convolution needs an input with %d dimensions (batch, channels, ...), not shape %v", n, n+2, x.Size)
	}
	in, out := w.Dim(1)*a.Groups, w.Dim(0)
	if a.Transposed {
		in, out = w.Dim(0), w.Dim(1)*a.Groups
	}
	if x.Dim(1) != in {
		c.Fail("weight of shape %v needs %d input channels, not shape %v", w.Size, in, x.Size)
	}
	size := tensor.D(x.Dim(0), out)
	for i := range n {
		k := a.Dilation[i]*(w.Dim(i+2)-1) + 1
		var o int64
		if a.Transposed {
			o = (x.Dim(i+2)-1)*a.Stride[i] - 2*a.Padding[i] + k + a.OutputPadding[i]
		} else {
			o = (x.Dim(i+2)+2*a.Padding[i]-k)/a.Stride[i] + 1
			if x.Dim(i+2)+2*a.Padding[i] < k {
				o = 0
			}
		}
		if o <= 0 {
			c.Fail("kernel of size %d is larger than the padded input of shape %v", w.Dim(i+2), x.Size)
		}
		size = size.Append(o)
	}
	return size
}

// channelsLastConv reports whether cuDNN works in channels-last layout: the
// strides of either operand suggest it (cudnn_conv_suggest_memory_format).
func channelsLastConv(x, w *Tensor) bool { return x.IsChannelsLast() || w.IsChannelsLast() }

// gradCudnnConv is cudnn_convolution_backward. Each gradient's kernel has its
// own idea of the memory format, from the operands it reads, and its own copies
// of those that lie otherwise.
func (b *Back) gradCudnnConv(x, w, g *Tensor) {
	mark := b.Mark()
	if b.Need(1) {
		x = b.inFormat(x, channelsLastConv(x, w))
	}
	if last := x.IsChannelsLast(); last != g.IsChannelsLast() {
		g = b.Local(b.New(tensor.InFormat(g.Size, last), g.DType))
	}
	if b.Need(0) {
		last, inner := channelsLastConv(g, w), b.Mark()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.inFormat(w, last)
		b.inFormat(g, last)
		b.DropTo(inner)
	}
	if b.Need(1) {
		last, inner := channelsLastConv(x, g), b.Mark()
		b.inFormat(g, last)
		b.inFormat(x, last)
		b.Set(1, b.New(tensor.InFormat(w.Size, last), w.DType))
		b.DropTo(inner)
	}
	b.DropTo(mark)
}

// gradConvBias sums the gradient over batch and space.
func (b *Back) gradConvBias(g *Tensor) {
	if !b.Need(2) {
		return
	}
	a := &ReduceArgs{Dim: []int64{0}}
	for i := 2; i < g.Rank(); i++ {
		a.Dim = append(a.Dim, int64(i))
	}
	b.Set(2, b.Do1(Sum, a, g))
}

// slowConv reports whether a convolution takes PyTorch's own im2col kernels:
// cuDNN has no bfloat16 before sm_80.
func (c *Call) slowConv(x *Tensor) bool {
	return x.DType == tensor.BFloat16 && c.Env().Arch < 80
}

// columns is the size of the im2col buffer of one image.
func columns(w *Tensor, out tensor.Dims) int64 {
	n := w.Numel() / max(w.Dim(0), 1)
	for i := 2; i < out.Len(); i++ {
		n *= out.At(i)
	}
	return n
}

func (c *Call) runSlowConv(x *Tensor, a *ConvArgs, size tensor.Dims) {
	if a.Groups != 1 || a.Transposed || x.Rank() != 4 {
		c.Fail("this bfloat16 convolution is not modelled for GPUs before sm_80")
	}
	c.contiguous(x)
	out := c.New(tensor.Contiguous(size), x.DType)
	var cols *Tensor
	if !a.pointwise(c.In[1]) {
		cols = c.NewShape(x.DType, columns(c.In[1], size))
	}
	c.BlasHandle()
	c.Drop(cols)
	c.Return(out)
}

// pointwise reports a 1x1 convolution that reads the image as it lies.
func (a *ConvArgs) pointwise(w *Tensor) bool {
	for i := range a.Stride {
		if w.Dim(i+2) != 1 || a.Stride[i] != 1 || a.Padding[i] != 0 {
			return false
		}
	}
	return true
}

// gradSlowConv shares one column buffer between the gradients of input and
// weight.
func (b *Back) gradSlowConv() {
	x, w, g := b.SavedIn[0], b.SavedIn[1], b.Grads[0]
	g = b.contiguous(g)
	var cols *Tensor
	if b.Need(0) {
		b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		cols = b.NewShape(x.DType, columns(w, g.Size))
		b.BlasHandle()
	}
	b.gradConvBias(g)
	if b.Need(1) {
		b.Set(1, b.New(tensor.Contiguous(w.Size), w.DType))
		if cols == nil {
			cols = b.NewShape(x.DType, columns(w, g.Size))
		}
		b.BlasHandle()
	}
	b.Drop(cols)
}
