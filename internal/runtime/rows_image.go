package runtime

import (
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// spatialDims is how many of them kernels take.
const spatialDims = 3

// volume is a tensor with n spatial dimensions, and perhaps without one of
// batches, as [N, C, D, H, W].
func (x *Executor) volume(t *op.Tensor, n int) kernel.Tensor {
	if t == nil {
		return kernel.Tensor{}
	}
	l := t.Layout
	if l.Rank() == n+1 {
		l = l.Unsqueeze(0)
	}
	for range spatialDims - n {
		l = l.Unsqueeze(2)
	}
	return x.at(t, l)
}

// volumes completes the numbers of n spatial dimensions to three; fill stands for
// those that are missing in front.
func volumes(fill int64, v []int64) []int64 {
	out := slices.Clone(v)
	for len(out) < spatialDims {
		out = slices.Insert(out, 0, fill)
	}
	return out
}

func convInts(a *op.ConvArgs) []int64 {
	out := volumes(1, a.Stride)
	out = append(out, volumes(0, a.Padding)...)
	out = append(out, volumes(1, a.Dilation)...)
	return append(out, a.Groups)
}

func convolution(x *Executor, c *op.Call) error {
	a, n := c.Args.(*op.ConvArgs), c.In[1].Rank()-2
	ts := []kernel.Tensor{x.volume(c.Out[0], n), x.volume(c.In[0], n), x.volume(c.In[1], n), x.operand(optional(c.In, 2))}
	if a.Transposed {
		return x.launch(kernel.ConvInputGrad, ts, convInts(a))
	}
	return x.launch(kernel.Conv, ts, convInts(a))
}

func convolutionGrad(x *Executor, b *op.Back) error {
	a, in, w, g := b.Args.(*op.ConvArgs), b.SavedIn[0], b.SavedIn[1], b.Grads[0]
	n := w.Rank() - 2
	if y := wanted(b, 0); y != nil {
		k := kernel.ConvInputGrad
		if a.Transposed {
			k = kernel.Conv
		}
		if err := x.launch(k, []kernel.Tensor{x.volume(y, n), x.volume(g, n), x.volume(w, n), {}}, convInts(a)); err != nil {
			return err
		}
	}
	if y := wanted(b, 1); y != nil {
		large, small := in, g // of the convolution whose weight this is
		if a.Transposed {
			large, small = g, in
		}
		if err := x.launch(kernel.ConvWeightGrad, []kernel.Tensor{x.volume(y, n), x.volume(small, n), x.volume(large, n)}, convInts(a)); err != nil {
			return err
		}
	}
	y := wanted(b, 2)
	if y == nil {
		return nil
	}
	dims := &op.ReduceArgs{}
	for i := range g.Rank() {
		if i != 1 {
			dims.Dim = append(dims.Dim, int64(i))
		}
	}
	return x.launch(kernel.Sum, []kernel.Tensor{x.at(y, dims.Spread(y, g.Size)), x.operand(g)}, nil, 1)
}

func poolInts(a *op.PoolArgs, dilation bool) []int64 {
	out := volumes(1, a.Kernel)
	out = append(out, volumes(1, a.Stride)...)
	out = append(out, volumes(0, a.Padding)...)
	if dilation {
		out = append(out, volumes(1, a.Dilation)...)
	}
	return out
}

func maxPool(x *Executor, c *op.Call) error {
	a := c.Args.(*op.PoolArgs)
	n := len(a.Kernel)
	return x.launch(kernel.MaxPool, []kernel.Tensor{x.volume(c.Out[0], n), x.volume(c.Out[1], n), x.volume(c.In[0], n)}, poolInts(a, true))
}

func maxPoolGrad(x *Executor, b *op.Back) error {
	a := b.Args.(*op.PoolArgs)
	n := len(a.Kernel)
	return x.launch(kernel.MaxPoolGrad, []kernel.Tensor{x.volume(b.Results[0], n), x.volume(b.Grads[0], n), x.volume(b.SavedOut[1], n)}, poolInts(a, true))
}

// averages are the integers of average pooling.
func averages(a *op.PoolArgs) []int64 {
	return append(poolInts(a, false), flag(!a.ExcludePadding), a.Divisor)
}

// adaptive runs a kernel over images and the like of another size.
func (x *Executor) adaptive(k *kernel.Kernel, y, in *op.Tensor, a *op.AdaptiveArgs) error {
	n := len(a.Size)
	return x.launch(k, []kernel.Tensor{x.volume(y, n), x.volume(in, n)}, nil)
}

// imageRows are convolutions and pooling.
var imageRows = map[*op.Op]row{
	op.Conv:             {forward: convolution, backward: convolutionGrad},
	op.MaxPool2dIndices: {forward: maxPool, backward: maxPoolGrad},
	op.AvgPool: {
		forward: func(x *Executor, c *op.Call) error {
			a := c.Args.(*op.PoolArgs)
			if a.CeilMode {
				return averaged(len(a.Kernel)).forward(x, c)
			}
			n := len(a.Kernel)
			return x.launch(kernel.AvgPool, []kernel.Tensor{x.volume(c.Out[0], n), x.volume(c.In[0], n)}, averages(a))
		},
		backward: func(x *Executor, b *op.Back) error {
			a := b.Args.(*op.PoolArgs)
			n := len(a.Kernel)
			if a.CeilMode {
				return averaged(n).backward(x, b)
			}
			return x.launch(kernel.AvgPoolGrad, []kernel.Tensor{x.volume(b.Results[0], n), x.volume(b.Grads[0], n)}, averages(a))
		},
	},
	op.AdaptiveAvgPool2dKernel: {
		forward: func(x *Executor, c *op.Call) error {
			return x.adaptive(kernel.AdaptiveAvgPool, c.Out[0], c.In[0], c.Args.(*op.AdaptiveArgs))
		},
		backward: func(x *Executor, b *op.Back) error {
			return x.adaptive(kernel.AdaptiveAvgPoolGrad, b.Results[0], b.Grads[0], b.Args.(*op.AdaptiveArgs))
		},
	},
}
