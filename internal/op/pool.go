package op

import "github.com/memplan/memplan/internal/tensor"

// PoolArgs are the arguments of a pooling over the last dimensions.
type PoolArgs struct {
	Kernel, Stride, Padding, Dilation []int64
	CeilMode                          bool
	ExcludePadding                    bool  // averages count the elements of the input alone
	Divisor                           int64 // that averages divide by; 0: the number of elements
}

// poolSize is the number of windows along one dimension
// (pooling_output_shape in aten/src/ATen/native/Pool.h).
func poolSize(n, kernel, pad, stride, dilation int64, ceil bool) int64 {
	span := n + 2*pad - dilation*(kernel-1) - 1
	if ceil {
		span += stride - 1
	}
	if span < 0 {
		return 0
	}
	out := span/stride + 1
	if ceil && (out-1)*stride >= n+pad {
		out--
	}
	return out
}

// poolShape checks the input and returns the result's shape.
func (c *Call) poolShape(x *Tensor, a *PoolArgs) tensor.Dims {
	n := len(a.Kernel)
	if x.Rank() != n+1 && x.Rank() != n+2 {
		c.Fail("pooling over %d dimensions needs %d or %d dimensions, not shape %v", n, n+1, n+2, x.Size)
	}
	size := x.Size
	for i := range n {
		d := x.Rank() - n + i
		o := poolSize(x.Dim(d), a.Kernel[i], a.Padding[i], a.Stride[i], a.Dilation[i], a.CeilMode)
		if o <= 0 {
			c.Fail("window of size %d does not fit shape %v", a.Kernel[i], x.Size)
		}
		size = size.Set(d, o)
	}
	return size
}

// MaxPool keeps its input and the int64 index of each maximum.
var MaxPool = define(Op{
	Name: "max_pool", Args: &PoolArgs{}, Composite: true, Run: func(c *Call) {
		outs := c.Do(MaxPool2dIndices, c.Args, c.In[0])
		c.Return(outs[0])
		c.Drop(outs[1])
	},
})

// MaxPool2dIndices is the kernel of max_pool2d, which keeps where each maximum is.
var MaxPool2dIndices = define(Op{
	Name: "max_pool2d_with_indices", Takes: (*Call).floats, Args: &PoolArgs{}, Eval: evalMaxPool, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*PoolArgs)
		last := x.IsChannelsLast()
		l := tensor.InFormat(c.poolShape(x, a), last)
		out := c.New(l, x.DType)
		idx := c.New(l, tensor.Int64)
		c.inFormat(x, last)
		c.Return(out, idx)
	},
	Save: []Save{In(0), Out(1)}, Node: "MaxPool2DWithIndicesBackward0",
	Grad: func(b *Back) {
		x := b.SavedIn(0)
		last := x.IsChannelsLast()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.inFormat(x, last)
		b.inFormat(b.Grads[0], last)
	},
	Source: "aten/src/ATen/native/cuda/DilatedMaxPool2d.cu",
})

// AvgPool keeps its input for its shape alone.
var AvgPool = define(Op{
	Name: "avg_pool", Takes: (*Call).floats, Args: &PoolArgs{}, Eval: evalAvgPool, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*PoolArgs)
		last := x.IsChannelsLast()
		out := c.New(tensor.InFormat(c.poolShape(x, a), last), x.DType)
		c.inFormat(x, last)
		c.Return(out)
	},
	Save: []Save{In(0)}, Node: "AvgPool2DBackward0",
	Grad: func(b *Back) {
		x := b.SavedIn(0)
		last := x.IsChannelsLast()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.inFormat(x, last)
		b.inFormat(b.Grads[0], last)
	},
	Source: "aten/src/ATen/native/cuda/AveragePool2d.cu",
})

// AdaptiveArgs is the output size of an adaptive pooling; -1 keeps a size.
type AdaptiveArgs struct {
	Size []int64
}

// AdaptiveAvgPool is a mean where the output has one element, as PyTorch
// computes it, else a kernel of its own.
var AdaptiveAvgPool = define(Op{
	Name: "adaptive_avg_pool", Takes: (*Call).floats, Args: &AdaptiveArgs{}, Composite: true, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*AdaptiveArgs)
		n := len(a.Size)
		if x.Rank() != n+1 && x.Rank() != n+2 {
			c.Fail("pooling over %d dimensions needs %d or %d dimensions, not shape %v", n, n+1, n+2, x.Size)
		}
		one := true
		var dims []int64
		for i, s := range a.Size {
			one = one && s == 1
			dims = append(dims, int64(i-n))
		}
		if one && n == 2 {
			y := c.Do1(Mean, &ReduceArgs{Dim: dims, KeepDim: true}, x)
			if x.IsChannelsLast() { // out.as_strided_ keeps the format
				y = c.Local(y)
				y = c.Do1(channelsLastPixel, nil, y)
			}
			c.Return(y)
			return
		}
		c.Return(c.Do1(AdaptiveAvgPool2dKernel, a, x))
	},
	Source: "aten/src/ATen/native/AdaptiveAveragePooling.cpp",
})

// channelsLastPixel gives images of one pixel the strides of channels last. Its
// derivative is as_strided_backward: new zeros for the whole storage.
var channelsLastPixel = define(Op{
	Name: "as_strided_", View: func(c *Call) []tensor.Layout {
		x := c.In[0]
		l := tensor.InFormat(x.Size, true)
		l.Offset = x.Offset
		return []tensor.Layout{l}
	}, Node: "AsStridedBackward1",
	Grad: func(b *Back) {
		base := b.Local(b.NewShape(b.Grads[0].DType, b.Grads[0].Numel()))
		b.Set(0, b.ViewOf(base, tensor.Contiguous(b.Grads[0].Size)))
	},
	Source: "torch/csrc/autograd/FunctionsManual.cpp: as_strided_backward",
})

// AdaptiveAvgPool2dKernel is the kernel where the output has more than one element.
var AdaptiveAvgPool2dKernel = define(Op{
	Name: "_adaptive_avg_pool2d", Args: &AdaptiveArgs{}, Eval: evalAdaptiveAvgPool, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*AdaptiveArgs)
		size := x.Size
		for i, s := range a.Size {
			if s >= 0 {
				size = size.Set(x.Rank()-len(a.Size)+i, s)
			}
		}
		if !x.IsChannelsLast() { // the channels-last kernels take any strides
			c.contiguous(x)
		}
		c.Return(c.New(tensor.InFormat(size, x.IsChannelsLast()), x.DType))
	},
	Save: []Save{In(0)}, Node: "AdaptiveAvgPool2DBackward0",
	Grad: func(b *Back) {
		x := b.SavedIn(0)
		b.Set(0, b.New(tensor.InFormat(x.Size, x.IsChannelsLast()), x.DType))
		if !x.IsChannelsLast() {
			b.contiguous(b.Grads[0])
		}
	},
	Source: "aten/src/ATen/native/cuda/AdaptiveAveragePooling.cu",
})
