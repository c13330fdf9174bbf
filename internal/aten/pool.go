package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

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
func poolShape(c *op.Call, x *op.Tensor, a *PoolArgs) tensor.Dims {
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
var MaxPool = define(op.Op{
	Name: "max_pool", Args: &PoolArgs{}, Composite: true, Run: func(c *op.Call) {
		outs := c.Do(MaxPool2dIndices, c.Args, c.In[0])
		c.Return(outs[0])
		c.Drop(outs[1])
	},
})

// MaxPool2dIndices is the kernel of max_pool2d, which keeps where each maximum is.
var MaxPool2dIndices = define(op.Op{
	Name: "max_pool2d_with_indices", Takes: op.Floats, Args: &PoolArgs{}, Eval: evalMaxPool, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*PoolArgs)
		last := x.IsChannelsLast()
		l := tensor.InFormat(poolShape(c, x, a), last)
		out := c.New(l, x.DType)
		idx := c.New(l, tensor.Int64)
		c.InFormat(x, last)
		c.Return(out, idx)
	},
	Save: []op.Save{op.In(0), op.Out(1)}, Node: "MaxPool2DWithIndicesBackward0",
	Grad: func(b *op.Back) {
		x := b.SavedIn(0)
		last := x.IsChannelsLast()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.InFormat(x, last)
		b.InFormat(b.Grads[0], last)
	},
	Source: "aten/src/ATen/native/cuda/DilatedMaxPool2d.cu",
})

// AvgPool keeps its input for its shape alone.
var AvgPool = define(op.Op{
	Name: "avg_pool", Takes: op.Floats, Args: &PoolArgs{}, Eval: evalAvgPool, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*PoolArgs)
		last := x.IsChannelsLast()
		out := c.New(tensor.InFormat(poolShape(c, x, a), last), x.DType)
		c.InFormat(x, last)
		c.Return(out)
	},
	Save: []op.Save{op.In(0)}, Node: "AvgPool2DBackward0",
	Grad: func(b *op.Back) {
		x := b.SavedIn(0)
		last := x.IsChannelsLast()
		b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
		b.InFormat(x, last)
		b.InFormat(b.Grads[0], last)
	},
	Source: "aten/src/ATen/native/cuda/AveragePool2d.cu",
})

// AdaptiveArgs is the output size of an adaptive pooling; -1 keeps a size.
type AdaptiveArgs struct {
	Size []int64
}

// AdaptiveAvgPool is a mean where the output has one element, as PyTorch
// computes it, else a kernel of its own.
var AdaptiveAvgPool = define(op.Op{
	Name: "adaptive_avg_pool", Takes: op.Floats, Args: &AdaptiveArgs{}, Composite: true, Run: func(c *op.Call) {
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
var channelsLastPixel = define(op.Op{
	Name: "as_strided_", Copies: true, Run: func(c *op.Call) {
		c.Return(c.Alias(c.In[0], tensor.ChannelsLast(c.In[0].Size), c.In[0].DType))
	}, Node: "AsStridedBackward1",
	Grad: func(b *op.Back) {
		base := b.Local(b.NewShape(b.Grads[0].DType, b.Grads[0].Numel()))
		b.Set(0, b.ViewOf(base, tensor.Contiguous(b.Grads[0].Size)))
	},
	Eval: &op.Eval{InParts: true, Backward: func(m op.Machine, b *op.Back) error {
		if y := m.Wanted(b, 0); y != nil {
			return m.Apply(kernel.Copy, y, b.Grads[:1])
		}
		return nil
	}},
	Source: "torch/csrc/autograd/FunctionsManual.cpp: as_strided_backward",
})

// AdaptiveAvgPool2dKernel is the kernel where the output has more than one element.
var AdaptiveAvgPool2dKernel = define(op.Op{
	Name: "_adaptive_avg_pool2d", Args: &AdaptiveArgs{}, Eval: evalAdaptiveAvgPool, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*AdaptiveArgs)
		size := x.Size
		for i, s := range a.Size {
			if s >= 0 {
				size = size.Set(x.Rank()-len(a.Size)+i, s)
			}
		}
		if !x.IsChannelsLast() { // the channels-last kernels take any strides
			c.Contiguous(x)
		}
		c.Return(c.New(tensor.InFormat(size, x.IsChannelsLast()), x.DType))
	},
	Save: []op.Save{op.In(0)}, Node: "AdaptiveAvgPool2DBackward0",
	Grad: func(b *op.Back) {
		x := b.SavedIn(0)
		b.Set(0, b.New(tensor.InFormat(x.Size, x.IsChannelsLast()), x.DType))
		if !x.IsChannelsLast() {
			b.Contiguous(b.Grads[0])
		}
	},
	Source: "aten/src/ATen/native/cuda/AdaptiveAveragePooling.cu",
})

// flat makes a pooling over one dimension of one over two, of which the first
// has size 1.
func flat(name string, args any, run func(c *op.Call, x *op.Tensor) *op.Tensor) *op.Op {
	return define(op.Op{
		Name: name, Args: args, Composite: true, Run: func(c *op.Call) {
			if r := c.In[0].Rank(); r != 2 && r != 3 {
				c.Fail("pooling over one dimension needs 2 or 3 dimensions, not shape %v", c.In[0].Size)
			}
			x := c.Local(c.Do1(Unsqueeze, &DimArgs{Dim: -2}, c.In[0]))
			y := c.Local(run(c, x))
			c.Return(c.Do1(Squeeze, &SqueezeArgs{Dim: []int64{-2}}, y))
		},
		Source: "aten/src/ATen/native/Pooling.cpp",
	})
}

// wide gives the arguments of a pooling over one dimension a first one.
func (a *PoolArgs) wide() *PoolArgs {
	return &PoolArgs{
		Kernel: []int64{1, a.Kernel[0]}, Stride: []int64{1, a.Stride[0]}, Padding: []int64{0, a.Padding[0]},
		Dilation: []int64{1, a.Dilation[0]}, CeilMode: a.CeilMode, ExcludePadding: a.ExcludePadding, Divisor: a.Divisor,
	}
}

// The poolings over one dimension.
var (
	maxPool1d         = flat("max_pool1d", &PoolArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor { return c.Do1(MaxPool, c.Args.(*PoolArgs).wide(), x) })
	avgPool1d         = flat("avg_pool1d", &PoolArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor { return c.Do1(AvgPool, c.Args.(*PoolArgs).wide(), x) })
	adaptiveAvgPool1d = flat("adaptive_avg_pool1d", &AdaptiveArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor {
		return c.Do1(AdaptiveAvgPool, &AdaptiveArgs{Size: []int64{1, c.Args.(*AdaptiveArgs).Size[0]}}, x)
	})
	adaptiveMaxPool1d = flat("adaptive_max_pool1d", &AdaptiveArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor {
		return c.Do1(adaptiveMaxPool, &AdaptiveArgs{Size: []int64{1, c.Args.(*AdaptiveArgs).Size[0]}}, x)
	})
)

// pool3d makes results and, after them, a copy of the input if it does not lie as
// they do.
func pool3d(c *op.Call, last bool, d ...tensor.DType) {
	x := c.In[0]
	size := poolShape(c, x, c.Args.(*PoolArgs))
	for _, t := range d {
		c.Return(c.New(tensor.InFormat(size, last), t))
	}
	c.InFormat(x, last)
}

// lastVolumes reports volumes in channels-last order.
func lastVolumes(x *op.Tensor) bool { return x.Rank() == 5 && x.IsChannelsLast() }

// gradPlain is a row-major gradient of the input's shape, from a row-major copy
// of the incoming one.
func gradPlain(b *op.Back) {
	b.Set(0, b.New(tensor.Contiguous(b.InM[0].Size), b.Grads[0].DType))
	b.Contiguous(b.Grads[0])
}

// The poolings over three dimensions.
var (
	maxPool3d = define(op.Op{
		Name: "max_pool3d", Takes: op.Floats, Args: &PoolArgs{}, Composite: true, Run: func(c *op.Call) {
			outs := c.Do(MaxPool3dIndices, c.Args, c.In[0])
			c.Return(outs[0])
			c.Drop(outs[1])
		},
	})
	MaxPool3dIndices = define(op.Op{
		Name: "max_pool3d_with_indices", Args: &PoolArgs{}, Eval: evalMaxPool, Run: func(c *op.Call) { pool3d(c, lastVolumes(c.In[0]), c.In[0].DType, tensor.Int64) },
		Save: []op.Save{op.In(0), op.Out(1)}, Node: "MaxPool3DWithIndicesBackward0", Grad: func(b *op.Back) {
			x := b.SavedIn(0)
			last := lastVolumes(x)
			b.Set(0, b.New(tensor.InFormat(x.Size, last), x.DType))
			b.InFormat(b.Grads[0], last)
			b.InFormat(b.SavedOut(1), last)
		},
		Source: "aten/src/ATen/native/cuda/DilatedMaxPool3d.cu",
	})
	AvgPool3d = define(op.Op{
		Name: "avg_pool3d", Eval: evalAveraged, Takes: op.Floats, Args: &PoolArgs{}, Run: func(c *op.Call) { pool3d(c, false, c.In[0].DType) },
		Save: []op.Save{op.In(0)}, Node: "AvgPool3DBackward0", Grad: gradPlain,
		Source: "aten/src/ATen/native/cuda/AveragePool3d.cu",
	})
	AdaptiveAvgPool3dKernel = define(op.Op{
		Name: "_adaptive_avg_pool3d", Args: &AdaptiveArgs{}, Run: func(c *op.Call) {
			size := adaptiveSize(c)
			if c.In[0].Rank() == 5 { // one volume is read as it lies
				c.Contiguous(c.In[0])
			}
			c.Return(c.NewShape(c.In[0].DType, size.Slice()...))
		},
		Save: []op.Save{op.In(0)}, Node: "AdaptiveAvgPool3DBackward0", Grad: gradPlain,
		Eval:   op.Linear(func(any) array.Linear { return array.Resampled(3, array.AverageTaps, nil, false) }),
		Source: "aten/src/ATen/native/cuda/AdaptiveAveragePooling3d.cu",
	})
	adaptiveAvgPool3d = define(op.Op{
		Name: "adaptive_avg_pool3d", Takes: op.Floats, Args: &AdaptiveArgs{}, Composite: true, Run: func(c *op.Call) {
			for _, s := range c.Args.(*AdaptiveArgs).Size {
				if s != 1 {
					c.Return(c.Do1(AdaptiveAvgPool3dKernel, c.Args, c.In[0]))
					return
				}
			}
			c.Return(c.Do1(Mean, &ReduceArgs{Dim: []int64{-1, -2, -3}, KeepDim: true}, c.In[0]))
		},
		Source: "aten/src/ATen/native/AdaptiveAveragePooling3d.cpp",
	})
	adaptiveMaxPool = define(op.Op{
		Name: "adaptive_max_pool", Args: &AdaptiveArgs{}, Composite: true, Run: func(c *op.Call) {
			row := AdaptiveMaxPool2d
			if len(c.Args.(*AdaptiveArgs).Size) == 3 {
				row = AdaptiveMaxPool3d
			}
			outs := c.Do(row, c.Args, c.In[0])
			c.Return(outs[0])
			c.Drop(outs[1])
		},
	})
	AdaptiveMaxPool2d = define(op.Op{
		Name: "adaptive_max_pool2d", Eval: evalAdaptiveMax, Takes: op.Floats, Args: &AdaptiveArgs{}, Run: func(c *op.Call) { // the kernel works in row-major order
			x := c.In[0]
			l := tensor.InFormat(adaptiveSize(c), x.IsChannelsLast())
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
			c.Contiguous(c.Out[0])
			c.Contiguous(c.Out[1])
			c.Contiguous(x)
		},
		Save: []op.Save{op.In(0), op.Out(1)}, Node: "AdaptiveMaxPool2DBackward0",
		Grad: func(b *op.Back) {
			x := b.SavedIn(0)
			b.Set(0, b.New(tensor.InFormat(x.Size, x.IsChannelsLast()), b.Grads[0].DType))
			b.Contiguous(b.Grads[0])
			b.Contiguous(b.SavedOut(1))
			b.Contiguous(b.Results[0])
		},
		Source: "aten/src/ATen/native/cuda/AdaptiveMaxPooling2d.cu",
	})
	AdaptiveMaxPool3d = define(op.Op{
		Name: "adaptive_max_pool3d", Eval: evalAdaptiveMax, Args: &AdaptiveArgs{}, Run: func(c *op.Call) {
			x, size := c.In[0], tensor.Contiguous(adaptiveSize(c))
			c.Return(c.New(size, x.DType), c.New(size, tensor.Int64))
			if x.Rank() == 5 { // one volume is read as it lies
				c.Contiguous(x)
			}
		},
		Save: []op.Save{op.In(0), op.Out(1)}, Node: "AdaptiveMaxPool3DBackward0", Grad: gradPlain,
		Source: "aten/src/ATen/native/cuda/AdaptiveMaxPooling3d.cu",
	})
)

// evalAveraged is average pooling whose windows may reach beyond the end of the input.
var evalAveraged = op.Linear(func(args any) array.Linear {
	a := args.(*PoolArgs)
	p := array.Pool{Kernel: a.Kernel, Stride: a.Stride, Padding: a.Padding, ExcludePadding: a.ExcludePadding, Divisor: a.Divisor}
	return p.Linear(len(a.Kernel))
})

// peaks is a pooling of the last dimensions that takes the largest element of windows, of
// which bounds says where they lie, and returns its place in the plane. Its derivative
// puts the gradients there.
func peaks(dims func(args any) int, bounds func(a op.Arrays, c *op.Call, in, out []int) array.Bounds) *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		x, n := a.Array(c.In[0]), dims(c.Args)
		in, out := x.Size[len(x.Size)-n:], c.Out[0].Size.Ints()[len(x.Size)-n:]
		values, index := x.Peaks(out, bounds(a, c, in, out))
		a.Put(c.Out[0], values)
		a.Put(c.Out[1], index)
	}, func(a op.Arrays, b *op.Back) {
		if r := a.Wanted(b, 0); r != nil {
			g, size, n := a.Array(b.Grads[0]), r.Size.Ints(), dims(b.Args)
			a.Put(r, array.PeaksGrad(g.V, a.Get(b.SavedOut(1)), size[len(size)-n:], g.Size[len(size)-n:]))
		}
	})
}

var evalAdaptiveMax = peaks(func(args any) int { return len(args.(*AdaptiveArgs).Size) }, func(_ op.Arrays, _ *op.Call, in, out []int) array.Bounds {
	return array.Adaptive(in, out)
})

// adaptiveSize checks the input and returns the result's shape.
func adaptiveSize(c *op.Call) tensor.Dims {
	x, want := c.In[0], c.Args.(*AdaptiveArgs).Size
	n := len(want)
	if x.Rank() != n+1 && x.Rank() != n+2 || x.Numel() == 0 {
		c.Fail("pooling over %d dimensions needs %d or %d dimensions, not shape %v", n, n+1, n+2, x.Size)
	}
	size := x.Size
	for i, s := range want {
		size = size.Set(x.Rank()-n+i, s)
	}
	return size
}

// spatialDims is how many of them kernels take.
const spatialDims = 3

// volumes adds tensors with n spatial dimensions, and perhaps without one of batches, as
// [N, C, D, H, W].
func volumes(l *op.Launch, n int, ts ...*op.Tensor) {
	for _, t := range ts {
		if t == nil {
			l.Seen(nil)
			continue
		}
		v := t.Layout
		if v.Rank() == n+1 {
			v = v.Unsqueeze(0)
		}
		for range spatialDims - n {
			v = v.Unsqueeze(2)
		}
		l.Operands = append(l.Operands, l.On.At(t, v))
	}
}

// spaces completes the numbers of some spatial dimensions to three; fill stands for
// those that are missing in front.
func spaces(fill int64, v []int64) []int64 {
	out := slices.Clone(v)
	for len(out) < spatialDims {
		out = slices.Insert(out, 0, fill)
	}
	return out
}

// windows are the sizes, steps and paddings of windows as kernels take them.
func (a *PoolArgs) windows() []int64 {
	return slices.Concat(spaces(1, a.Kernel), spaces(1, a.Stride), spaces(0, a.Padding))
}

// evalMaxPool is a pooling that takes the largest element of each window.
var evalMaxPool = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a := c.Args.(*PoolArgs)
		l := op.Launch{On: m}
		volumes(&l, len(a.Kernel), c.Out[0], c.Out[1], c.In[0])
		return l.Run(kernel.MaxPool, append(a.windows(), spaces(1, a.Dilation)...))
	},
	Backward: func(m op.Machine, b *op.Back) error {
		a := b.Args.(*PoolArgs)
		l := op.Launch{On: m}
		volumes(&l, len(a.Kernel), b.Results[0], b.Grads[0], b.SavedOut(1))
		return l.Run(kernel.MaxPoolGrad, append(a.windows(), spaces(1, a.Dilation)...))
	},
}

// averages are the numbers of average pooling.
func (a *PoolArgs) averages() []int64 {
	return append(a.windows(), op.Flag(!a.ExcludePadding), a.Divisor)
}

// evalAvgPool averages windows. What its kernel does not know is those that reach beyond
// the end of the input.
var evalAvgPool = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a := c.Args.(*PoolArgs)
		if a.CeilMode {
			return evalAveraged.Forward(m, c)
		}
		l := op.Launch{On: m}
		volumes(&l, len(a.Kernel), c.Out[0], c.In[0])
		return l.Run(kernel.AvgPool, a.averages())
	},
	Backward: func(m op.Machine, b *op.Back) error {
		a := b.Args.(*PoolArgs)
		if a.CeilMode {
			return evalAveraged.Backward(m, b)
		}
		l := op.Launch{On: m}
		volumes(&l, len(a.Kernel), b.Results[0], b.Grads[0])
		return l.Run(kernel.AvgPoolGrad, a.averages())
	},
}

// evalAdaptiveAvgPool averages windows that divide the input.
var evalAdaptiveAvgPool = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		l := op.Launch{On: m}
		volumes(&l, len(c.Args.(*AdaptiveArgs).Size), c.Out[0], c.In[0])
		return l.Run(kernel.AdaptiveAvgPool, nil)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		l := op.Launch{On: m}
		volumes(&l, len(b.Args.(*AdaptiveArgs).Size), b.Results[0], b.Grads[0])
		return l.Run(kernel.AdaptiveAvgPoolGrad, nil)
	},
}
