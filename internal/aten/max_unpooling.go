package aten

import (
	"fmt"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// UnpoolArgs are the arguments of max_unpool; the rows of kernels take the size
// of the result alone.
type UnpoolArgs struct {
	Kernel  []int64 `arg:"kernel_size"`
	Stride  []int64 `arg:"stride"`
	Padding []int64 `arg:"padding"`
	Size    []int64 `arg:"output_size"`
}

// unpool defines the kernel of max_unpool over n dimensions. Its derivative is
// gather over the flattened dimensions.
func unpool(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("max_unpool%dd", n), Eval: evalUnpool(n), Args: &UnpoolArgs{}, Run: func(c *op.Call) {
			x, idx := c.In[0], c.In[1]
			size := x.Size
			for i, s := range c.Args.(*UnpoolArgs).Size {
				size = size.Set(x.Rank()-n+i, s)
			}
			x = c.Contiguous(x)
			c.Contiguous(idx)
			c.Return(c.Grown(x.DType, size.Slice()...))
		},
		Save: []op.Save{op.In(1)}, Node: fmt.Sprintf("MaxUnpool%dDBackward0", n),
		Grad: func(b *op.Back) {
			idx, flat := b.SavedIn(1), int64(1)
			lead := idx.Size.Slice()[:idx.Rank()-n]
			for i := len(lead); i < idx.Rank(); i++ {
				flat *= idx.Dim(i)
			}
			if _, ok := idx.View(tensor.D(append(lead, flat)...)); !ok { // indices.view(size)
				b.Fail("the indices of max_unpool%dd are strided, of which PyTorch's derivative cannot make a view; it wants contiguous()", n)
			}
			b.InFormat(b.Grads[0], idx.IsChannelsLast())
			b.Set(0, b.New(tensor.Contiguous(b.InM[0].Size), b.Grads[0].DType))
		},
		Source: "aten/src/ATen/native/cuda/MaxUnpooling.cu; torch/csrc/autograd/FunctionsManual.cpp: max_pool_double_backward",
	})
}

// evalUnpool puts the input where the indices of a pooling say; of several elements for
// one place the last counts. Its derivative reads there.
func evalUnpool(n int) *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		x, y := a.Array(c.In[0]), make([]float64, c.Out[0].Numel())
		err := array.Unpool(n, c.Out[0].Size.Ints(), x.Size, a.Get(c.In[1]), func(to, from int) { y[to] = x.V[from] })
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Out[0], y)
	}, func(a op.Arrays, b *op.Back) {
		r := a.Wanted(b, 0)
		if r == nil {
			return
		}
		g, out := a.Array(b.Grads[0]), make([]float64, r.Numel())
		err := array.Unpool(n, g.Size, r.Size.Ints(), a.Get(b.SavedIn(1)), func(to, from int) { out[from] = g.V[to] })
		if err != nil {
			a.Fail(err)
		}
		a.Put(r, out)
	})
}

// MaxUnpools are the kernels, by number of dimensions; MaxUnpoolFunctions are what
// specs call.
var (
	MaxUnpools         = [4]*op.Op{2: unpool(2), 3: unpool(3)}
	MaxUnpoolFunctions = [4]*op.Op{1: unpoolFunction(1), 2: unpoolFunction(2), 3: unpoolFunction(3)}
)

func unpoolFunction(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("max_unpool%dd.any", n), Args: &UnpoolArgs{}, Composite: true, Run: func(c *op.Call) { unpooled(c, n) },
		Sig:    fmt.Sprintf("F.max_unpool%dd(input, indices, kernel_size: pair, stride: pair? = None, padding: pair = 0, output_size: ints? = None)", n),
		Source: "torch/nn/functional.py: max_unpool2d",
	})
}

// unpooled checks the arguments; one dimension is two, of which the last has
// size 1.
func unpooled(c *op.Call, n int) {
	x, idx, o := c.In[0], c.In[1], c.Args.(*UnpoolArgs)
	if x.Rank() != n+1 && x.Rank() != n+2 || x.Size != idx.Size || idx.DType != tensor.Int64 {
		c.Fail("unpooling over %d dimensions needs %d or %d of them and int64 indices of the same shape, not %v and %v of %v", n, n+1, n+2, x.Size, idx.Size, idx.DType)
	}
	p := pool(c, &PoolOptions{Kernel: o.Kernel, Stride: o.Stride, Padding: o.Padding}, n)
	size := make([]int64, n)
	for i := range size {
		size[i] = (x.Dim(x.Rank()-n+i)-1)*p.Stride[i] + p.Kernel[i] - 2*p.Padding[i]
	}
	if given := o.Size; len(given) > 0 {
		if len(given) == n+2 {
			given = given[2:]
		}
		if len(given) != n {
			c.Fail("output_size must have %d or %d numbers, not %d", n, n+2, len(given))
		}
		for i, s := range given {
			if s <= size[i]-p.Stride[i] || s >= size[i]+p.Stride[i] {
				c.Fail("output_size %d must lie between %d and %d", s, size[i]-p.Stride[i], size[i]+p.Stride[i])
			}
		}
		size = given
	}
	for _, s := range size {
		if s < 1 {
			c.Fail("shape %v cannot be unpooled to %s", x.Size, tensor.SizeString(size))
		}
	}
	if n > 1 {
		c.Return(c.Do1(MaxUnpools[n], &UnpoolArgs{Size: size}, x, idx))
		return
	}
	wide := c.Do1(Unsqueeze, &DimArgs{Dim: -1}, x)
	at := c.Do1(Unsqueeze, &DimArgs{Dim: -1}, idx)
	y := c.Do1(MaxUnpools[2], &UnpoolArgs{Size: append(size, 1)}, wide, at)
	c.Drop(wide, at)
	c.Return(c.Do1(Squeeze, &SqueezeArgs{Dim: []int64{-1}}, y))
	c.Drop(y)
}
