package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// flat makes a pooling over one dimension of one over two, of which the first
// has size 1.
func flat(name string, run func(c *Call, x *Tensor) *Tensor) *Op {
	args := any(&PoolArgs{})
	if len(name) > 8 && name[:8] == "adaptive" {
		args = &AdaptiveArgs{}
	}
	return define(Op{
		Name: name, Args: args, Composite: true, Run: func(c *Call) {
			if r := c.In[0].Rank(); r != 2 && r != 3 {
				c.Fail("pooling over one dimension needs 2 or 3 dimensions, not shape %v", c.In[0].Size)
			}
			x := c.Local(c.Do1(Unsqueeze, &DimArgs{Dim: -2}, c.In[0]))
			y := c.Local(run(c, x))
			c.Return(c.Do1(Squeeze, &DimArgs{Dim: -2}, y))
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
	maxPool1d         = flat("max_pool1d", func(c *Call, x *Tensor) *Tensor { return c.Do1(MaxPool, c.Args.(*PoolArgs).wide(), x) })
	avgPool1d         = flat("avg_pool1d", func(c *Call, x *Tensor) *Tensor { return c.Do1(AvgPool, c.Args.(*PoolArgs).wide(), x) })
	adaptiveAvgPool1d = flat("adaptive_avg_pool1d", func(c *Call, x *Tensor) *Tensor {
		return c.Do1(AdaptiveAvgPool, &AdaptiveArgs{Size: []int64{1, c.Args.(*AdaptiveArgs).Size[0]}}, x)
	})
	adaptiveMaxPool1d = flat("adaptive_max_pool1d", func(c *Call, x *Tensor) *Tensor {
		return c.Do1(adaptiveMaxPool, &AdaptiveArgs{Size: []int64{1, c.Args.(*AdaptiveArgs).Size[0]}}, x)
	})
)

// pool3d makes a row-major result and, after it, a row-major copy of the input
// if it needs one.
func (c *Call) pool3d(d ...tensor.DType) {
	x := c.In[0]
	size := c.poolShape(x, c.Args.(*PoolArgs))
	for _, t := range d {
		c.Return(c.New(tensor.Contiguous(size), t))
	}
	c.checkVolume(x)
	c.contiguous(x)
}

// checkVolume refuses five dimensions in channels-last order.
func (c *Call) checkVolume(x *Tensor) {
	if x.Rank() == 5 && !x.IsContiguous() && x.Stride.At(1) == 1 {
		c.Fail("pooling of volumes in channels-last layout is not modelled; call contiguous first")
	}
}

// gradPlain is a row-major gradient of the input's shape, from a row-major copy
// of the incoming one.
func gradPlain(b *Back) {
	b.Set(0, b.New(tensor.Contiguous(b.InM[0].Size), b.Grads[0].DType))
	b.contiguous(b.Grads[0])
}

// The poolings over three dimensions.
var (
	maxPool3d = define(Op{
		Name: "max_pool3d", Takes: (*Call).floats, Args: &PoolArgs{}, Composite: true, Run: func(c *Call) {
			outs := c.Do(MaxPool3dIndices, c.Args, c.In[0])
			c.Return(outs[0])
			c.Drop(outs[1])
		},
	})
	MaxPool3dIndices = define(Op{
		Name: "max_pool3d_with_indices", Args: &PoolArgs{}, Eval: evalMaxPool, Run: func(c *Call) { c.pool3d(c.In[0].DType, tensor.Int64) },
		Save: []Save{In(0), Out(1)}, Node: "MaxPool3DWithIndicesBackward0", Grad: gradPlain,
		Source: "aten/src/ATen/native/cuda/DilatedMaxPool3d.cu",
	})
	AvgPool3d = define(Op{
		Name: "avg_pool3d", Eval: evalAveraged, Takes: (*Call).floats, Args: &PoolArgs{}, Run: func(c *Call) { c.pool3d(c.In[0].DType) },
		Save: []Save{In(0)}, Node: "AvgPool3DBackward0", Grad: gradPlain,
		Source: "aten/src/ATen/native/cuda/AveragePool3d.cu",
	})
	AdaptiveAvgPool3dKernel = define(Op{
		Name: "_adaptive_avg_pool3d", Args: &AdaptiveArgs{}, Run: func(c *Call) {
			c.checkVolume(c.In[0])
			size := c.adaptiveSize()
			c.contiguous(c.In[0])
			c.Return(c.NewShape(c.In[0].DType, size.Slice()...))
		},
		Save: []Save{In(0)}, Node: "AdaptiveAvgPool3DBackward0", Grad: gradPlain,
		Eval:   linear(func(any) array.Linear { return array.Resampled(3, array.AverageTaps, nil, false) }, nil),
		Source: "aten/src/ATen/native/cuda/AdaptiveAveragePooling3d.cu",
	})
	adaptiveAvgPool3d = define(Op{
		Name: "adaptive_avg_pool3d", Takes: (*Call).floats, Args: &AdaptiveArgs{}, Composite: true, Run: func(c *Call) {
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
	adaptiveMaxPool = define(Op{
		Name: "adaptive_max_pool", Args: &AdaptiveArgs{}, Composite: true, Run: func(c *Call) {
			row := AdaptiveMaxPool2d
			if len(c.Args.(*AdaptiveArgs).Size) == 3 {
				row = AdaptiveMaxPool3d
			}
			outs := c.Do(row, c.Args, c.In[0])
			c.Return(outs[0])
			c.Drop(outs[1])
		},
	})
	AdaptiveMaxPool2d = define(Op{
		Name: "adaptive_max_pool2d", Eval: evalAdaptiveMax, Takes: (*Call).floats, Args: &AdaptiveArgs{}, Run: func(c *Call) { // the kernel works in row-major order
			x := c.In[0]
			l := tensor.InFormat(c.adaptiveSize(), x.IsChannelsLast())
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
			c.contiguous(c.Out[0])
			c.contiguous(c.Out[1])
			c.contiguous(x)
		},
		Save: []Save{In(0), Out(1)}, Node: "AdaptiveMaxPool2DBackward0",
		Grad: func(b *Back) {
			x := b.SavedIn(0)
			b.Set(0, b.New(tensor.InFormat(x.Size, x.IsChannelsLast()), b.Grads[0].DType))
			b.contiguous(b.Grads[0])
			b.contiguous(b.SavedOut(1))
			b.contiguous(b.Results[0])
		},
		Source: "aten/src/ATen/native/cuda/AdaptiveMaxPooling2d.cu",
	})
	AdaptiveMaxPool3d = define(Op{
		Name: "adaptive_max_pool3d", Eval: evalAdaptiveMax, Args: &AdaptiveArgs{}, Run: func(c *Call) {
			x, size := c.In[0], tensor.Contiguous(c.adaptiveSize())
			c.checkVolume(x)
			c.Return(c.New(size, x.DType), c.New(size, tensor.Int64))
			c.contiguous(x)
		},
		Save: []Save{In(0), Out(1)}, Node: "AdaptiveMaxPool3DBackward0", Grad: gradPlain,
		Source: "aten/src/ATen/native/cuda/AdaptiveMaxPooling3d.cu",
	})
)

// evalAveraged is average pooling whose windows may reach beyond the end of the input.
var evalAveraged = linear(func(args any) array.Linear {
	a := args.(*PoolArgs)
	p := array.Pool{Kernel: a.Kernel, Stride: a.Stride, Padding: a.Padding, ExcludePadding: a.ExcludePadding, Divisor: a.Divisor}
	return p.Linear(len(a.Kernel))
}, nil)

// peaks is a pooling of the last dimensions that takes the largest element of windows, of
// which bounds says where they lie, and returns its place in the plane. Its derivative
// puts the gradients there.
func peaks(dims func(args any) int, bounds func(a Arrays, c *Call, in, out []int) array.Bounds) *Eval {
	return aside(func(a Arrays, c *Call) {
		x, n := a.Array(c.In[0]), dims(c.Args)
		in, out := x.Size[len(x.Size)-n:], c.Out[0].Size.Ints()[len(x.Size)-n:]
		values, index := x.Peaks(out, bounds(a, c, in, out))
		a.Put(c.Out[0], values)
		a.Put(c.Out[1], index)
	}, func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			g, size, n := a.Array(b.Grads[0]), r.Size.Ints(), dims(b.Args)
			a.Put(r, array.PeaksGrad(g.V, a.Get(b.SavedOut(1)), size[len(size)-n:], g.Size[len(size)-n:]))
		}
	})
}

var evalAdaptiveMax = peaks(func(args any) int { return len(args.(*AdaptiveArgs).Size) }, func(_ Arrays, _ *Call, in, out []int) array.Bounds {
	return array.Adaptive(in, out)
})

// adaptiveSize checks the input and returns the result's shape.
func (c *Call) adaptiveSize() tensor.Dims {
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
