package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// RepeatArgs are the numbers of copies along each dimension.
type RepeatArgs struct {
	Repeats []int64 `arg:"repeats"`
}

// Tile is repeat with ones for the leading dimensions that it does not name.
// Specs have no word for repeat itself: theirs repeats entries.
var _ = define(op.Op{
	Name: "tile", Sig: "torch.tile(input, dims: ints)", Args: &TileArgs{}, Composite: true, Run: func(c *op.Call) {
		n := c.Args.(*TileArgs).Dims
		for len(n) < c.In[0].Rank() {
			n = append([]int64{1}, n...)
		}
		c.Return(c.Do1(Repeat, &RepeatArgs{Repeats: n}, c.In[0]))
	},
	Source: "aten/src/ATen/native/TensorShape.cpp: tile_symint",
})

// TileArgs are the numbers of copies along the last dimensions.
type TileArgs struct {
	Dims []int64 `arg:"dims"`
}

// Repeat copies a tensor several times along each dimension.
var Repeat = define(op.Op{
	Name: "repeat", Eval: evalRepeat.Otherwise(&op.Eval{Forward: op.Linear(func(any) array.Linear { return array.Repeat }).Forward, InParts: true}), Args: &RepeatArgs{}, Run: func(c *op.Call) {
		x, n := c.In[0], c.Args.(*RepeatArgs).Repeats
		k := len(n) - x.Rank()
		if k < 0 || len(n) > tensor.MaxRank {
			c.Fail("repeat needs %d to %d numbers for shape %v, not %d", x.Rank(), tensor.MaxRank, x.Size, len(n))
		}
		var size tensor.Dims
		for i, r := range n {
			d := int64(1)
			if i >= k {
				d = x.Dim(i - k)
			}
			if r < 1 {
				c.Fail("repeating %d times is not modelled", r)
			}
			bytes, err := tensor.MulBytes(d, r)
			if err != nil {
				c.Fail("%v", err)
			}
			size = size.Append(int64(bytes))
		}
		c.Return(c.New(tensor.Contiguous(size), x.DType))
	},
	Node: "RepeatBackward0", Grad: gradRepeat,
	Source: "aten/src/ATen/native/TensorShape.cpp: repeat; torch/csrc/autograd/FunctionsManual.cpp: repeat_backward",
})

// evalRepeat copies into the result as it is divided into the copies, as far as there are
// dimensions.
var evalRepeat = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	x, y, n := c.In[0], c.Out[0], c.Args.(*RepeatArgs).Repeats
	k := len(n) - x.Rank()
	var from, to tensor.Layout
	from.Offset, to.Offset = x.Offset, y.Offset
	add := func(size, fromStride, toStride int64) {
		if size == 1 {
			return
		}
		from.Size, to.Size = from.Size.Append(size), to.Size.Append(size)
		from.Stride, to.Stride = from.Stride.Append(fromStride), to.Stride.Append(toStride)
	}
	parts := 0
	for i, r := range n {
		size, stride := int64(1), int64(0)
		if i >= k {
			size, stride = x.Dim(i-k), x.Stride.At(i-k)
		}
		if parts += int(op.Flag(r != 1) + op.Flag(size != 1)); parts > tensor.MaxRank {
			return op.ErrView
		}
		add(r, 0, size*y.Stride.At(i))
		add(size, stride, y.Stride.At(i))
	}
	return m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, to), m.At(x, from)}, nil)
}}

// gradRepeat sums the leading dimensions that the input lacks one by one, then
// the copies along the others at once.
func gradRepeat(b *op.Back) {
	n, in := b.Args.(*RepeatArgs).Repeats, b.InM[0]
	g := b.Keep(b.Grads[0])
	rebind := func(t *op.Tensor) {
		b.Drop(g)
		g = t
	}
	k := len(n) - in.Rank()
	for range k {
		rebind(b.Do1(Sum, &ReduceArgs{Dim: []int64{0}}, g))
	}
	var size, sums []int64
	for i := range in.Rank() {
		if n[i+k] != 1 {
			sums = append(sums, int64(len(size)))
			size = append(size, n[i+k])
		}
		size = append(size, in.Dim(i))
	}
	if len(size) > tensor.MaxRank {
		b.Fail("the gradient of repeat over %d dimensions is not modelled", len(sums))
	}
	if len(sums) > 0 {
		rebind(b.Do1(Reshape, &ShapeArgs{Shape: size}, g))
		rebind(b.Do1(Sum, &ReduceArgs{Dim: sums}, g))
	}
	b.Set(0, g)
}

// RepeatInterleaveArgs are the arguments of repeat_interleave.
type RepeatInterleaveArgs struct {
	Repeats int64  `arg:"repeats"`
	Dim     *int64 `arg:"dim"`
}

// repeatInterleave repeats each element in place; without a dimension it
// flattens first.
var repeatInterleave = define(op.Op{
	Name: "repeat_interleave", Sig: "torch.repeat_interleave(input, repeats: int, dim: int? = None)", Args: &RepeatInterleaveArgs{}, Composite: true,
	Run: func(c *op.Call) {
		a, x := c.Args.(*RepeatInterleaveArgs), c.In[0]
		if a.Repeats < 1 {
			c.Fail("repeating %d times is not modelled", a.Repeats)
		}
		d := 0
		if a.Dim == nil {
			x = c.Local(c.Do1(Flatten, &FlattenArgs{End: -1}, x))
		} else {
			d = c.Dim(int(*a.Dim), x.Rank())
		}
		if x.Rank() == 0 || x.Rank() == tensor.MaxRank {
			c.Fail("repeat_interleave of shape %v is not modelled", x.Size)
		}
		u := c.Do1(Unsqueeze, &DimArgs{Dim: d + 1}, x)
		e := c.Do1(Expand, &ShapeArgs{Shape: u.Size.Set(d+1, a.Repeats).Slice()}, u)
		c.Drop(u)
		y := c.Do1(Clone, &CloneArgs{Format: tensor.ContiguousFormat}, e)
		c.Drop(e)
		c.Return(c.Do1(Flatten, &FlattenArgs{Start: d, End: d + 1}, y))
		c.Drop(y)
	},
	Source: "aten/src/ATen/native/Repeat.cpp: repeat_interleave_symint",
})
