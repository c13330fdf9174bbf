package aten

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

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
var Conv = define(op.Op{
	Name: "convolution", Flops: convFlops, Takes: op.OneType, Args: &ConvArgs{}, Eval: evalConv, Cast: op.CastLower, Run: func(c *op.Call) {
		x, w, a := c.In[0], c.In[1], c.Args.(*ConvArgs)
		size := convShape(c, x, w, a)
		x = image(c, x)
		switch kind := selectConvBackend(c, x, w, a); kind {
		case convCudnn:
			cudnnConvolution(c, x, w, size)
		case convDepthwise2d:
			depthwise2d(c, x, w, size)
		case convDepthwise3d:
			depthwise3d(c, x, w, size)
		default:
			slowConvolution(c, x, w, kind, size)
		}
	},
	Save: []op.Save{op.In(0), op.In(1)}, Node: "ConvolutionBackward0",
	Grad: func(b *op.Back) { // convolution_backward
		x, w, g := image(&b.Call, b.SavedIn(0)), b.SavedIn(1), b.Grads[0]
		switch kind := selectConvBackend(&b.Call, x, w, b.Args.(*ConvArgs)); kind {
		case convCudnn:
			gradCudnnConv(b, x, w, g)
			gradConvBias(b, g)
		case convDepthwise2d:
			gradDepthwise2d(b, x, w, g)
		case convDepthwise3d:
			gradDepthwise3d(b, x, w, g)
		default:
			gradSlowConv(b, x, w, g, kind)
		}
	},
	NotModelled: "torch.backends.cudnn.benchmark, whose search takes workspaces of any size",
	Source:      "aten/src/ATen/native/Convolution.cpp, cudnn/ConvShared.cpp",
})

// image is the input of a convolution; with one spatial dimension it is made
// row-major before it is looked at as an image of height 1.
func image(c *op.Call, x *op.Tensor) *op.Tensor {
	if x.Rank() == 3 {
		return c.Contiguous(x)
	}
	return x
}

// convShape checks the operands and returns the result's shape.
func convShape(c *op.Call, x, w *op.Tensor, a *ConvArgs) tensor.Dims {
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
func gradConvBias(b *op.Back, g *op.Tensor) {
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
func biasDims(g *op.Tensor) []bool {
	dims := make([]bool, g.Rank())
	for i := range dims {
		dims[i] = i != 1
	}
	return dims
}

// convFlops: each weight of a filter meets each position of the output once, or of
// the input if the convolution is transposed.
func convFlops(c *op.Call) float64 {
	positions, w := c.Out[0], c.In[1]
	if c.Args.(*ConvArgs).Transposed {
		positions = c.In[0]
	}
	return product(positions, w.Numel()/max(w.Dim(0), 1))
}

// convBackend is the implementation that PyTorch chooses for a convolution.
type convBackend uint8

// The implementations on CUDA devices.
const (
	convCudnn convBackend = iota
	convDepthwise2d
	convDepthwise3d
	convSlow2d
	convSlowDilated
	convSlowTranspose
)

// selectConvBackend selects the implementation for an input and a weight
// (_select_conv_backend in aten/src/ATen/native/Convolution.cpp).
func selectConvBackend(c *op.Call, x, w *op.Tensor, a *ConvArgs) convBackend {
	if limit := int64(1<<31 - 1); x.Numel() > 0 && x.Numel()/x.Dim(0) > limit {
		c.Fail("a convolution over images of more than %d elements is not modelled", limit)
	}
	v, twoD := a.described(x, w), x.Rank() <= 4
	switch {
	case v.Taken(c.Env().Arch, c.Env().Deterministic) && !leavesConv3d(c, x, w, v):
		return convCudnn
	case v.Depthwise() && twoD:
		return convDepthwise2d
	case v.Depthwise():
		return convDepthwise3d
	case a.Transposed:
		return convSlowTranspose
	case twoD && !v.Dilated():
		return convSlow2d
	}
	return convSlowDilated
}

// leavesConv3d reports whether PyTorch keeps a convolution from cuDNN that takes it.
func leavesConv3d(c *op.Call, x, w *op.Tensor, v *cudnn.Conv) bool {
	return c.Env().Torch.Has(torchver.CudnnLeavesConv3d) && x.Rank() == 5 && x.DType.IsHalf() && !v.Depthwise() &&
		!cudnn.ChannelsLast(x.Layout, w.Layout) && (w.Dim(2) != 1 || w.Dim(3) != 1 || w.Dim(4) != 1)
}

// described is the convolution as cuDNN sees it.
func (a *ConvArgs) described(x, w *op.Tensor) *cudnn.Conv {
	return &cudnn.Conv{
		DType: x.DType, X: x.Layout, W: w.Layout, Stride: a.Stride, Padding: a.Padding, Dilation: a.Dilation, OutputPadding: a.OutputPadding,
		Groups: a.Groups, Transposed: a.Transposed,
	}
}

// ConvOptions are the arguments of F.conv2d and its like, as they are written.
type ConvOptions struct {
	Stride        []int64 `arg:"stride"`
	Padding       any     `arg:"padding"` // []int64, or "same" or "valid"
	OutputPadding []int64 `arg:"output_padding"`
	Dilation      []int64 `arg:"dilation"`
	Groups        int64   `arg:"groups"`
}

// The convolutions of torch.nn.functional, by number of dimensions.
var (
	Convs          = [4]*op.Op{1: convFunction(1), 2: convFunction(2), 3: convFunction(3)}
	ConvTransposes = [4]*op.Op{1: convTranspose(1), 2: convTranspose(2), 3: convTranspose(3)}
)

func convFunction(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("conv%dd", n), Args: &ConvOptions{}, Composite: true,
		Sig: fmt.Sprintf("F.conv%dd(input, weight, bias: tensor? = None, stride: pair = 1, padding: pair(same|valid) = 0, dilation: pair = 1, groups: int = 1)", n),
		Run: func(c *op.Call) {
			a, uneven := convOptions(c, n)
			x := c.In[0]
			if uneven != nil {
				x = c.Local(c.Do1(ConstantPad, &PadArgs{Pad: uneven}, x))
			}
			c.Return(c.Do1(Conv, a, x, c.In[1], c.Opt(2)))
		},
		Source: "aten/src/ATen/native/Convolution.cpp: conv2d, convolution_same",
	})
}

func convTranspose(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("conv_transpose%dd", n), Args: &ConvOptions{}, Composite: true,
		Sig: fmt.Sprintf("F.conv_transpose%dd(input, weight, bias: tensor? = None, stride: pair = 1, padding: pair = 0, output_padding: pair = 0, groups: int = 1, dilation: pair = 1)", n),
		Run: func(c *op.Call) {
			a, _ := convOptions(c, n)
			a.Transposed, a.OutputPadding = true, spatialArg(c, "output_padding", c.Args.(*ConvOptions).OutputPadding, n, 0)
			for i, p := range a.OutputPadding {
				if p >= a.Stride[i] && p >= a.Dilation[i] {
					c.Fail("%s must be smaller than stride or dilation, not %d", op.Arg("output_padding"), p)
				}
			}
			c.Return(c.Do1(Conv, a, c.In[0], c.In[1], c.Opt(2)))
		},
		Source: "aten/src/ATen/native/Convolution.cpp: conv_transpose2d",
	})
}

// convOptions resolves the options for n dimensions. Padding that keeps the size
// and cannot be the same on both sides is uneven: that much the input is padded
// at its ends first.
func convOptions(c *op.Call, n int) (a *ConvArgs, uneven []int64) {
	o, w := c.Args.(*ConvOptions), c.In[1]
	if w.Rank() != n+2 {
		c.Fail("weight must have %d dimensions, not shape %v", n+2, w.Size)
	}
	a = &ConvArgs{Stride: spatialArg(c, "stride", o.Stride, n, 1), Dilation: spatialArg(c, "dilation", o.Dilation, n, 1), Groups: o.Groups, Padding: make([]int64, n)}
	if o.Groups < 1 || w.Dim(0)%o.Groups != 0 || w.Dim(0) == 0 || w.Dim(1) == 0 {
		c.Fail("weight of shape %v does not divide into %d groups", w.Size, o.Groups)
	}
	for i := range n {
		if w.Dim(i+2) < 1 {
			c.Fail("weight of shape %v has no elements", w.Size)
		}
	}
	switch p := o.Padding.(type) {
	case []int64:
		a.Padding = spatialArg(c, "padding", p, n, 0)
	case string:
		if p == "same" {
			uneven = paddingSame(c, a, w)
		}
	}
	return a, uneven
}

// paddingSame sets the padding that keeps the size (convolution_same).
func paddingSame(c *op.Call, a *ConvArgs, w *op.Tensor) []int64 {
	n := len(a.Stride)
	uneven, needed := make([]int64, 2*n), false
	for i := range n {
		if a.Stride[i] != 1 {
			c.Fail("%s 'same' needs stride 1", op.Arg("padding"))
		}
		total := a.Dilation[i] * (w.Dim(i+2) - 1)
		a.Padding[i] = total / 2
		uneven[2*(n-1-i)+1] = total % 2
		needed = needed || total%2 != 0
	}
	if !needed {
		return nil
	}
	return uneven
}

// ints are the arguments as kernels take them.
func (a *ConvArgs) ints() []int64 {
	return append(slices.Concat(spaces(1, a.Stride), spaces(0, a.Padding), spaces(1, a.Dilation)), a.Groups)
}

var evalConv = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, k := c.Args.(*ConvArgs), kernel.Conv
		if a.Transposed {
			k = kernel.ConvInputGrad
		}
		l := op.Launch{On: m}
		volumes(&l, c.In[1].Rank()-2, c.Out[0], c.In[0], c.In[1])
		l.Add(c.Opt(2))
		return l.Run(k, a.ints())
	},
	Backward: func(m op.Machine, b *op.Back) error {
		a, in, w, g := b.Args.(*ConvArgs), b.SavedIn(0), b.SavedIn(1), b.Grads[0]
		n := w.Rank() - 2
		if y := m.Wanted(b, 0); y != nil {
			k := kernel.ConvInputGrad
			if a.Transposed {
				k = kernel.Conv
			}
			l := op.Launch{On: m}
			volumes(&l, n, y, g, w)
			l.Seen(nil)
			if err := l.Run(k, a.ints()); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 1); y != nil {
			large, small := in, g // of the convolution whose weight this is
			if a.Transposed {
				large, small = g, in
			}
			l := op.Launch{On: m}
			volumes(&l, n, y, small, large)
			if err := l.Run(kernel.ConvWeightGrad, a.ints()); err != nil {
				return err
			}
		}
		y := m.Wanted(b, 2)
		if y == nil {
			return nil
		}
		dims := &ReduceArgs{}
		for i, sum := range biasDims(g) {
			if sum {
				dims.Dim = append(dims.Dim, int64(i))
			}
		}
		return m.Launch(kernel.Sum, []kernel.Tensor{m.At(y, dims.Spread(y, g.Size)), op.As(m, g)}, nil, 1)
	},
}
