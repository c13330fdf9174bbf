package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// T is the transpose of a matrix.
var T = define(op.Op{
	Name: "t", View: func(c *op.Call) []tensor.Layout {
		x := c.In[0]
		if x.Rank() < 2 {
			return c.OneView(x.Layout)
		}
		return c.OneView(x.Transpose(0, 1))
	}, Node: "TBackward0",
})

// Detach is an alias outside of the graph.
var Detach = define(op.Op{
	Name: "detach", Eval: op.Shared, Sig: "Tensor.detach(self)", Run: func(c *op.Call) {
		c.Return(c.Alias(c.In[0], c.In[0].Layout, c.In[0].DType))
	},
})

// ShapeArgs is a target shape.
type ShapeArgs struct {
	Shape []int64 `arg:"shape"`
}

func shapeArg(c *op.Call) []int64 { return c.Args.(*ShapeArgs).Shape }

// reshapeSizes resolves the shape argument for input 0.
func reshapeSizes(c *op.Call) tensor.Dims {
	d, err := tensor.ReshapeSizes(c.In[0].Numel(), shapeArg(c))
	if err != nil {
		c.Fail("%v", err)
	}
	return d
}

// gradReshape gives the gradient the input's shape.
func gradReshape(b *op.Back) {
	b.Set(0, b.Do1(Reshape, &ShapeArgs{Shape: b.InM[0].Size.Slice()}, b.Grads[0]))
}

// View reinterprets the sizes of a tensor without a copy.
var View = define(op.Op{
	Name: "view", Eval: op.Shared, Sig: "Tensor.view(self, *shape: ints)", Args: &ShapeArgs{},
	View: func(c *op.Call) []tensor.Layout {
		size := reshapeSizes(c)
		l, ok := c.In[0].View(size)
		if !ok {
			c.Fail("shape %v with strides %v cannot be viewed as %v without a copy; use reshape", c.In[0].Size, c.In[0].Stride, size)
		}
		return c.OneView(l)
	},
	Node: "ViewBackward0",
})

// UnsafeView is view on a fresh tensor, which autograd does not track as one.
var UnsafeView = define(op.Op{
	Name: "_unsafe_view", Eval: op.Shared, Copies: true, Args: &ShapeArgs{}, Run: func(c *op.Call) {
		l, ok := c.In[0].View(reshapeSizes(c))
		if !ok {
			c.Fail("cannot view shape %v as %s", c.In[0].Size, tensor.SizeString(shapeArg(c)))
		}
		c.Return(c.Alias(c.In[0], l, c.In[0].DType))
	},
	Node: "UnsafeViewBackward0",
})

// Reshape is a view where possible, else a contiguous copy.
var Reshape = define(op.Op{
	Name: "reshape", Sig: "Tensor.reshape(self, *shape: ints)", Args: &ShapeArgs{}, Composite: true,
	Run: func(c *op.Call) {
		size := reshapeSizes(c)
		args := &ShapeArgs{Shape: size.Slice()}
		if _, ok := c.In[0].View(size); ok {
			c.Return(c.Do1(View, args, c.In[0]))
			return
		}
		cp := c.Do1(Clone, &CloneArgs{Format: tensor.ContiguousFormat}, c.In[0])
		c.Return(c.Do1(UnsafeView, args, cp))
		c.Drop(cp)
	},
})

// FlattenArgs are the dimensions that flatten merges.
type FlattenArgs struct {
	Start int `arg:"start_dim"`
	End   int `arg:"end_dim"`
}

// Flatten merges a range of dimensions.
var Flatten = define(op.Op{
	Name: "flatten", Sig: "torch.flatten(input, start_dim: int = 0, end_dim: int = -1)", Args: &FlattenArgs{}, Composite: true,
	Run: func(c *op.Call) {
		a, x := c.Args.(*FlattenArgs), c.In[0]
		from, to := c.Dim(a.Start, x.Rank()), c.Dim(a.End, x.Rank())
		if from > to {
			c.Fail("start_dim %d comes after end_dim %d", a.Start, a.End)
		}
		if x.Rank() == 0 {
			c.Return(c.Do1(Reshape, &ShapeArgs{Shape: []int64{1}}, x))
			return
		}
		if from == to {
			c.ReturnSelf(0)
			return
		}
		var shape []int64
		merged := int64(1)
		for i := range x.Rank() {
			switch {
			case i < from || i > to:
				shape = append(shape, x.Dim(i))
			default:
				merged *= x.Dim(i)
				if i == to {
					shape = append(shape, merged)
				}
			}
		}
		c.Return(c.Do1(Reshape, &ShapeArgs{Shape: shape}, x))
	},
})

// TransposeArgs are two dimensions to swap.
type TransposeArgs struct {
	Dim0 int `arg:"dim0"`
	Dim1 int `arg:"dim1"`
}

// Transpose swaps two dimensions.
var Transpose = define(op.Op{
	Name: "transpose", Sig: "Tensor.transpose(self, dim0: int, dim1: int)", Args: &TransposeArgs{},
	View: func(c *op.Call) []tensor.Layout {
		a, x := c.Args.(*TransposeArgs), c.In[0]
		return c.OneView(x.Transpose(c.Dim(a.Dim0, x.Rank()), c.Dim(a.Dim1, x.Rank())))
	},
	Node: "TransposeBackward0",
})

// TransposeInPlace swaps the dimensions of a tensor that has no other holder, so
// that the result is no view.
var TransposeInPlace = define(op.Op{
	Name: "transpose_", Eval: &op.Eval{Forward: op.Nothing.Forward, InParts: true}, Of: Transpose, Args: &TransposeArgs{}, Run: func(c *op.Call) {
		a, x := c.Args.(*TransposeArgs), c.In[0]
		c.Return(c.Alias(x, x.Transpose(a.Dim0, a.Dim1), x.DType))
	},
	Node: "TransposeBackward1",
	Grad: func(b *op.Back) {
		a, g := b.Args.(*TransposeArgs), b.Grads[0]
		b.Set(0, b.ViewOf(g, g.Transpose(a.Dim0, a.Dim1)))
	},
})

// PermuteArgs is the order of dimensions.
type PermuteArgs struct {
	Dims []int64 `arg:"dims"`
}

// Permute reorders the dimensions.
var Permute = define(op.Op{
	Name: "permute", Sig: "Tensor.permute(self, *dims: ints)", Args: &PermuteArgs{},
	View: func(c *op.Call) []tensor.Layout {
		return c.OneView(c.In[0].Permute(permutation(c, c.Args.(*PermuteArgs).Dims, c.In[0].Rank())))
	},
	Node: "PermuteBackward0",
	Grad: func(b *op.Back) {
		p := permutation(&b.Call, b.Args.(*PermuteArgs).Dims, b.InM[0].Rank())
		inv := make([]int, len(p))
		for i, d := range p {
			inv[d] = i
		}
		b.Set(0, b.ViewOf(b.Grads[0], b.Grads[0].Permute(inv)))
	},
})

func permutation(c *op.Call, dims []int64, rank int) []int {
	if len(dims) != rank {
		c.Fail("%s names %d of %d dimensions", tensor.SizeString(dims), len(dims), rank)
	}
	p := make([]int, len(dims))
	seen := make([]bool, rank)
	for i, d := range dims {
		p[i] = c.Dim(int(d), rank)
		if seen[p[i]] {
			c.Fail("dimension %d occurs twice in %s", d, tensor.SizeString(dims))
		}
		seen[p[i]] = true
	}
	return p
}

// SelectArgs is one index of one dimension.
type SelectArgs struct {
	Dim   int   `arg:"dim"`
	Index int64 `arg:"index"`
}

// Select keeps one index of a dimension: x[:, 0] selects 0 of dimension 1.
var Select = define(op.Op{
	Name: "select", Sig: "Tensor.select(self, dim: int, index: int)", Args: &SelectArgs{},
	View: func(c *op.Call) []tensor.Layout {
		a, x := c.Args.(*SelectArgs), c.In[0]
		d := c.Dim(a.Dim, x.Rank())
		i := a.Index
		if i < 0 {
			i += x.Dim(d)
		}
		if x.Rank() == 0 || i < 0 || i >= x.Dim(d) {
			c.Fail("index %d is out of range for dimension %d of shape %v", a.Index, a.Dim, x.Size)
		}
		return c.OneView(x.Select(d, i))
	},
	Node: "SelectBackward0",
	Grad: func(b *op.Back) { b.Set(0, b.NewShape(b.Grads[0].DType, b.InM[0].Size.Slice()...)) }, // zeros, then a copy into the slice
})

// SliceArgs is a range of one dimension, as Python writes it.
type SliceArgs struct {
	Dim   int    `arg:"dim"`
	Start *int64 `arg:"start"`
	End   *int64 `arg:"end"`
	Step  int64  `arg:"step"`
}

// Slice is x[start:end:step] along one dimension.
var Slice = define(op.Op{
	Name: "slice", Args: &SliceArgs{},
	View: func(c *op.Call) []tensor.Layout {
		a, x := c.Args.(*SliceArgs), c.In[0]
		if x.Rank() == 0 || a.Step <= 0 {
			c.Fail("cannot slice shape %v with step %d", x.Size, a.Step)
		}
		d := c.Dim(a.Dim, x.Rank())
		n := x.Dim(d)
		clamp := func(v *int64, def int64) int64 {
			if v == nil {
				return def
			}
			i := *v
			if i < 0 {
				i += n
			}
			return max(0, min(i, n))
		}
		from := clamp(a.Start, 0)
		to := max(from, clamp(a.End, n))
		return c.OneView(x.Narrow(d, from, tensor.DivUp(to-from, a.Step), a.Step))
	},
	Node: "SliceBackward0",
	Grad: func(b *op.Back) { b.Set(0, b.NewShape(b.Grads[0].DType, b.InM[0].Size.Slice()...)) },
})

// DimArgs is one dimension.
type DimArgs struct {
	Dim int `arg:"dim"`
}

// Along is the dimension.
func (a *DimArgs) Along() int { return a.Dim }

// SqueezeArgs are the arguments of squeeze; without dimensions it means all.
type SqueezeArgs struct {
	Dim []int64 `arg:"dim"`
}

// squeezed are the dimensions that squeeze drops of a size, in order.
func squeezed(c *op.Call, size tensor.Dims) []int {
	var asked, dims []int
	for _, d := range c.Args.(*SqueezeArgs).Dim {
		asked = append(asked, c.Dim(int(d), size.Len()))
	}
	for d := range size.Len() {
		if size.At(d) == 1 && (len(asked) == 0 || slices.Contains(asked, d)) {
			dims = append(dims, d)
		}
	}
	return dims
}

// Unsqueeze inserts a dimension of size 1, Squeeze drops those that it names or all.
var (
	Unsqueeze = define(op.Op{
		Name: "unsqueeze", Sig: "Tensor.unsqueeze(self, dim: int)", Args: &DimArgs{},
		View: func(c *op.Call) []tensor.Layout {
			return c.OneView(c.In[0].Unsqueeze(c.Dim(c.Args.(*DimArgs).Dim, c.In[0].Rank()+1)))
		},
		Node: "UnsqueezeBackward0",
		Grad: func(b *op.Back) {
			g := b.Grads[0]
			b.Set(0, b.ViewOf(g, g.Squeeze(b.Dim(b.Args.(*DimArgs).Dim, g.Rank()))))
		},
	})
	Squeeze = define(op.Op{
		Name: "squeeze", Sig: "Tensor.squeeze(self, dim: ints? = None)", Args: &SqueezeArgs{},
		View: func(c *op.Call) []tensor.Layout {
			l := c.In[0].Layout
			for _, d := range slices.Backward(squeezed(c, c.In[0].Size)) {
				l = l.Squeeze(d)
			}
			return c.OneView(l)
		},
		Node: "SqueezeBackward1",
		Grad: func(b *op.Back) {
			dims := squeezed(&b.Call, b.InM[0].Size)
			if len(dims) == 0 {
				b.Pass(0)
				return
			}
			l := b.Grads[0].Layout
			for _, d := range dims {
				l = l.Unsqueeze(d)
			}
			b.Set(0, b.ViewOf(b.Grads[0], l))
		},
	})
)

// Expand broadcasts without a copy.
var Expand = define(op.Op{
	Name: "expand", Eval: op.Shared, Sig: "Tensor.expand(self, *shape: ints)", Args: &ShapeArgs{},
	View: func(c *op.Call) []tensor.Layout {
		l, err := c.In[0].Expand(shapeArg(c))
		if err != nil {
			c.Fail("%v", err)
		}
		return c.OneView(l)
	},
	Node: "ExpandBackward0",
	Grad: func(b *op.Back) { b.Set(0, b.SumTo(b.Grads[0], b.InM[0].Size)) },
})

// SplitArgs says how a dimension is cut.
type SplitArgs struct {
	Size   any     `arg:"split_size"` // an int64 or []int64
	Chunks int64   `arg:"chunks"`
	Sizes  []int64 `arg:"split_sizes"`
	Dim    int     `arg:"dim"`
}

// pieces are the sizes of all pieces, or else that of each but the last.
func (a *SplitArgs) pieces() (sizes []int64, size int64) {
	switch s := a.Size.(type) {
	case []int64:
		return s, 0
	case int64:
		return nil, s
	}
	return a.Sizes, 0
}

// sizes lists the lengths of the pieces of a dimension of n elements. One without
// elements has as many empty pieces as are asked for, or one of any size.
func (a *SplitArgs) sizes(n int64) []int64 {
	sizes, step := a.pieces()
	switch {
	case len(sizes) > 0:
		return sizes
	case n == 0:
		return make([]int64, max(a.Chunks, 1))
	case a.Chunks > 0:
		step = tensor.DivUp(n, a.Chunks)
	}
	if step <= 0 {
		return nil
	}
	var out []int64
	for at := int64(0); at < n; at += step {
		out = append(out, min(step, n-at))
	}
	return out
}

// maxPieces bounds the results of one operator.
const maxPieces = 4096

func splitView(c *op.Call) []tensor.Layout {
	a, x := c.Args.(*SplitArgs), c.In[0]
	d := c.Dim(a.Dim, x.Rank())
	if x.Rank() == 0 {
		c.Fail("cannot split a tensor without dimensions")
	}
	sizes, size := a.pieces()
	switch n := x.Dim(d); {
	case len(sizes) > 0:
	case size <= 0 && a.Chunks <= 0:
		c.Fail("pieces must be at least 1, not %d", min(size, a.Chunks))
	case a.Chunks <= 0 && tensor.DivUp(n, size) > maxPieces, a.Chunks > maxPieces:
		c.Fail("more than %d pieces of dimension %d of shape %v", maxPieces, a.Dim, x.Size)
	}
	var out []tensor.Layout
	at := int64(0)
	for _, n := range a.sizes(x.Dim(d)) {
		if n < 0 {
			c.Fail("negative size %d among the pieces", n)
		}
		out = append(out, x.Narrow(d, at, n, 1))
		at += n
	}
	if at != x.Dim(d) {
		c.Fail("pieces of sizes %s do not make up dimension %d of shape %v", tensor.SizeString(a.sizes(x.Dim(d))), a.Dim, x.Size)
	}
	return out
}

// gradSplit concatenates the gradients of the pieces, zeros where a piece has
// none (split_with_sizes_backward).
func gradSplit(b *op.Back) {
	a, in := b.Args.(*SplitArgs), b.InM[0]
	d := b.Dim(a.Dim, in.Rank())
	parts := make([]*op.Tensor, len(b.Grads))
	var zeros []*op.Tensor
	for i, n := range a.sizes(in.Dim(d)) {
		parts[i] = b.Grads[i]
		if parts[i] == nil {
			parts[i] = b.New(tensor.Contiguous(in.Size.Set(d, n)), in.DType)
			zeros = append(zeros, parts[i])
		}
	}
	b.Set(0, b.Do1(Cat, &DimArgs{Dim: d}, parts...))
	b.Drop(zeros...) // of a vector, the first one first
}

// The ways to cut a tensor into views.
var (
	_ = define(op.Op{
		Name: "split", Sig: "Tensor.split(self, split_size: sizes, dim: int = 0)", Args: &SplitArgs{}, List: true, View: splitView,
		Node: "SplitBackward0", Grad: gradSplit,
	})
	SplitWithSizes = define(op.Op{
		Name: "split_with_sizes", Sig: "Tensor.split_with_sizes(self, split_sizes: ints, dim: int = 0)", Args: &SplitArgs{},
		List: true, View: splitView, Node: "SplitWithSizesBackward0", Grad: gradSplit,
	})
	Chunk = define(op.Op{
		Name: "chunk", Sig: "Tensor.chunk(self, chunks: int, dim: int = 0)", Args: &SplitArgs{}, List: true, View: splitView,
		Node: "SplitBackward0", Grad: gradSplit,
	})
	Unbind = define(op.Op{
		Name: "unbind", Sig: "Tensor.unbind(self, dim: int = 0)", Args: &DimArgs{}, List: true,
		View: func(c *op.Call) []tensor.Layout {
			x := c.In[0]
			d := c.Dim(c.Args.(*DimArgs).Dim, x.Rank())
			if x.Rank() == 0 {
				c.Fail("cannot unbind a tensor without dimensions")
			}
			if x.Dim(d) > maxPieces {
				c.Fail("more than %d pieces of dimension %d of shape %v", maxPieces, d, x.Size)
			}
			var out []tensor.Layout
			for i := range x.Dim(d) {
				out = append(out, x.Select(d, i))
			}
			return out
		},
		Node: "UnbindBackward0",
		Grad: func(b *op.Back) { // unbind_backward: stack of the gradients, an expanded zero where there is none
			d := b.Dim(b.Args.(*DimArgs).Dim, b.InM[0].Rank())
			var zeros []*op.Tensor
			parts := make([]*op.Tensor, len(b.Grads))
			for i, g := range b.Grads {
				if g == nil {
					zero := b.NewShape(b.InM[0].DType)
					l, err := zero.Expand(b.InM[0].Size.Remove(d).Slice())
					if err != nil {
						b.Fail("%v", err)
					}
					g = b.ViewOf(zero, l)
					b.Drop(zero)
					zeros = append(zeros, g)
				}
				parts[i] = g
			}
			b.Set(0, b.Do1(Stack, &DimArgs{Dim: d}, parts...))
			b.Drop(zeros...) // a vector is destroyed from its front
		},
	})
)

// The derivatives that call their own row.
var (
	_ = View.Derive(gradReshape)
	_ = UnsafeView.Derive(gradReshape)
	_ = T.Derive(func(b *op.Back) {
		g := b.Grads[0]
		if g.Rank() < 2 {
			b.Pass(0)
			return
		}
		b.Set(0, b.ViewOf(g, g.Transpose(0, 1)))
	})
	_ = Transpose.Derive(func(b *op.Back) {
		a, g := b.Args.(*TransposeArgs), b.Grads[0]
		b.Set(0, b.ViewOf(g, g.Transpose(b.Dim(a.Dim0, g.Rank()), b.Dim(a.Dim1, g.Rank()))))
	})
)

// WindowArgs are the windows of Tensor.unfold.
type WindowArgs struct {
	Dimension int   `arg:"dimension"`
	Size      int64 `arg:"size"`
	Step      int64 `arg:"step"`
}

// Tensor.unfold is a view of all windows along a dimension; F.unfold has taken
// the name.
var _ = define(op.Op{
	Name: "unfold", Sig: "Tensor.unfold unfold_dimension(self, dimension: int, size: int, step: int)", Args: &WindowArgs{},
	View: func(c *op.Call) []tensor.Layout {
		a, x := c.Args.(*WindowArgs), c.In[0]
		d := c.Dim(a.Dimension, x.Rank())
		if x.Rank() == 0 || x.Rank() == tensor.MaxRank || a.Size < 1 || a.Step < 1 || a.Size > x.Dim(d) {
			c.Fail("windows of %d elements in steps of %d do not fit dimension %d of shape %v", a.Size, a.Step, a.Dimension, x.Size)
		}
		l := x.Layout
		stride := l.Stride.At(d)
		l.Size = l.Size.Set(d, (x.Dim(d)-a.Size)/a.Step+1).Append(a.Size)
		l.Stride = l.Stride.Set(d, stride*a.Step).Append(stride)
		return c.OneView(l)
	},
	Node: "UnfoldBackward0",
	Grad: func(b *op.Back) { // windows that do not overlap are copied; else the kernel wants the indices that they cover
		a, in := b.Args.(*WindowArgs), b.InM[0]
		b.Set(0, b.NewShape(b.Grads[0].DType, in.Size.Slice()...))
		if a.Step < a.Size {
			windows := b.OutM[0].Dim(b.Dim(a.Dimension, in.Rank()))
			b.Drop(b.NewShape(tensor.Int64, (windows-1)*a.Step+a.Size))
		}
	},
	Eval: &op.Eval{Backward: func(m op.Machine, b *op.Back) error {
		w := b.Args.(*WindowArgs)
		if w.Step >= w.Size {
			return op.ViewGrad(m, b)
		}
		return m.OnHost(func(a op.Arrays) {
			if r := a.Wanted(b, 0); r != nil { // windows that overlap add up
				a.Put(r, a.Array(b.Grads[0]).Overlaid(r.Size.Ints(), array.Dim(w.Dimension, r.Rank()), int(w.Step)))
			}
		})
	}},
	Source: "aten/src/ATen/native/cuda/UnfoldBackwardKernel.cu; UnfoldBackward.h",
})
