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
var Conv = define(Op{
	Name: "convolution", Flops: convFlops, Takes: (*Call).oneType, Args: &ConvArgs{}, Eval: evalConv, Cast: CastLower, Run: func(c *Call) {
		x, w, a := c.In[0], c.In[1], c.Args.(*ConvArgs)
		size := c.convShape(x, w, a)
		x = c.image(x)
		switch kind := c.convBackend(x, w, a); kind {
		case convCudnn:
			c.cudnnConvolution(x, w, size)
		case convDepthwise2d:
			c.depthwise2d(x, w, size)
		case convDepthwise3d:
			c.depthwise3d(x, w, size)
		default:
			c.slowConvolution(x, w, kind, size)
		}
	},
	Save: []Save{In(0), In(1)}, Node: "ConvolutionBackward0",
	Grad: func(b *Back) { // convolution_backward
		x, w, g := b.image(b.SavedIn(0)), b.SavedIn(1), b.Grads[0]
		switch kind := b.convBackend(x, w, b.Args.(*ConvArgs)); kind {
		case convCudnn:
			b.gradCudnnConv(x, w, g)
			b.gradConvBias(g)
		case convDepthwise2d:
			b.gradDepthwise2d(x, w, g)
		case convDepthwise3d:
			b.gradDepthwise3d(x, w, g)
		default:
			b.gradSlowConv(x, w, g, kind)
		}
	},
	NotModelled: "torch.backends.cudnn.benchmark, whose search takes workspaces of any size",
	Source:      "aten/src/ATen/native/Convolution.cpp, cudnn/ConvShared.cpp",
})

// image is the input of a convolution; with one spatial dimension it is made
// row-major before it is looked at as an image of height 1.
func (c *Call) image(x *Tensor) *Tensor {
	if x.Rank() == 3 {
		return c.contiguous(x)
	}
	return x
}

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
	if b := c.Opt(2); b != nil && b.Size != tensor.D(out) {
		c.Fail("bias of shape %v is not one number for each of %d output channels", b.Size, out)
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

// gradConvBias sums the gradient over batch and space.
func (b *Back) gradConvBias(g *Tensor) {
	if !b.Need(2) {
		return
	}
	a := &ReduceArgs{}
	for i, sum := range biasDims(g) {
		if sum {
			a.Dim = append(a.Dim, int64(i))
		}
	}
	b.Set(2, b.Do1(Sum, a, g))
}

// biasDims marks the dimensions that the gradient of a bias is summed over: all
// but the channels.
func biasDims(g *Tensor) []bool {
	dims := make([]bool, g.Rank())
	for i := range dims {
		dims[i] = i != 1
	}
	return dims
}

// convFlops: each weight of a filter meets each position of the output once, or of
// the input if the convolution is transposed.
func convFlops(c *Call) float64 {
	positions, w := c.Out[0], c.In[1]
	if c.Args.(*ConvArgs).Transposed {
		positions = c.In[0]
	}
	return product(positions, w.Numel()/max(w.Dim(0), 1))
}
