package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// UnflattenArgs split one dimension into several.
type UnflattenArgs struct {
	Dim   int     `arg:"dim"`
	Sizes []int64 `arg:"sizes"`
}

// Unflatten is a view.
var Unflatten = define(op.Op{
	Name: "unflatten", Sig: "Tensor.unflatten(self, dim: int, sizes: ints)", Args: &UnflattenArgs{}, Composite: true, Run: func(c *op.Call) {
		a, x := c.Args.(*UnflattenArgs), c.In[0]
		d := c.Dim(a.Dim, x.Rank())
		var shape []int64
		for i := range x.Rank() {
			if i == d {
				sizes, err := tensor.ReshapeSizes(x.Dim(i), a.Sizes)
				if err != nil {
					c.Fail("%v", err)
				}
				shape = append(shape, sizes.Slice()...)
			} else {
				shape = append(shape, x.Dim(i))
			}
		}
		if len(shape) > tensor.MaxRank {
			c.Fail("more than %d dimensions", tensor.MaxRank)
		}
		c.Return(c.Do1(View, &ShapeArgs{Shape: shape}, x))
	},
})

// DiagonalOfArgs are the dimensions of diagonal, and how far it is off.
type DiagonalOfArgs struct {
	Offset int64 `arg:"offset"`
	Dim1   int   `arg:"dim1"`
	Dim2   int   `arg:"dim2"`
}

// Diagonal is a view of the elements whose indices along two dimensions are
// equal, or differ by an offset; its dimension is the last.
var diagonal = define(op.Op{
	Name: "diagonal", Sig: "torch.diagonal(input, offset: int = 0, dim1: int = 0, dim2: int = 1)", Args: &DiagonalOfArgs{},
	View: func(c *op.Call) []tensor.Layout {
		a, l := c.Args.(*DiagonalOfArgs), c.In[0].Layout
		d1, d2 := c.Dim(a.Dim1, l.Rank()), c.Dim(a.Dim2, l.Rank())
		if d1 == d2 || l.Rank() < 2 {
			c.Fail("a diagonal needs two different dimensions, not %d and %d of shape %v", a.Dim1, a.Dim2, l.Size)
		}
		n := max(min(l.Dim(d1), l.Dim(d2)-a.Offset), 0)
		stride := l.Stride.At(d1) + l.Stride.At(d2)
		if n > 0 && a.Offset > 0 {
			l.Offset += a.Offset * l.Stride.At(d2)
		}
		if a.Offset < 0 {
			if n = max(min(l.Dim(d1)+a.Offset, l.Dim(d2)), 0); n > 0 {
				l.Offset -= a.Offset * l.Stride.At(d1)
			}
		}
		hi, lo := max(d1, d2), min(d1, d2)
		l.Size = l.Size.Remove(hi).Remove(lo).Append(n)
		l.Stride = l.Stride.Remove(hi).Remove(lo).Append(stride)
		return c.OneView(l)
	},
	Node:   "DiagonalBackward0",
	Grad:   func(b *op.Back) { b.Set(0, b.NewShape(b.Grads[0].DType, b.InM[0].Size.Slice()...)) }, // zeros, then a copy into the diagonal
	Source: "aten/src/ATen/native/TensorShape.cpp: diagonal; torch/csrc/autograd/FunctionsManual.cpp: diagonal_backward",
})

// Cat joins tensors along a dimension; its gradients are views of the incoming
// one, without a copy.
var Cat = define(op.Op{
	Name: "cat", Eval: evalCat, Sig: "torch.cat(tensors: tensors, dim: int = 0)", Args: &DimArgs{},
	Run: func(c *op.Call) {
		at := max(0, slices.IndexFunc(c.In, func(t *op.Tensor) bool { return !skipped(t.Layout) }))
		first := c.In[at]
		d := c.Dim(c.Args.(*DimArgs).Dim, first.Rank())
		size, dt := first.Size, c.In[0].DType
		last := true // the memory format that all inputs suggest
		for i, t := range c.In {
			last = last && t.IsChannelsLast()
			dt = tensor.Promote(dt, t.DType)
			if i == at || skipped(t.Layout) && !skipped(first.Layout) {
				continue
			}
			if t.Rank() != first.Rank() || t.Size.Set(d, 0) != first.Size.Set(d, 0) {
				c.Fail("shapes %v and %v must agree in all dimensions but %d, along which they are joined", first.Size, t.Size, d)
			}
			size = size.Set(d, size.At(d)+t.Dim(d))
		}
		c.Return(c.New(tensor.InFormat(size, last), dt))
	},
	Node: "CatBackward0",
	Grad: func(b *op.Back) { // cat_tensors_backward
		g := b.Grads[0]
		d := b.Dim(b.Args.(*DimArgs).Dim, g.Rank())
		at := int64(0)
		for i, m := range b.InM {
			switch {
			case skipped(m.Layout):
				if b.Need(i) {
					b.Set(i, b.New(m.Layout, g.DType))
				}
				continue
			case b.Need(i):
				b.Set(i, b.ViewOf(g, g.Narrow(d, at, m.Dim(d), 1)))
			}
			at += m.Dim(d)
		}
	},
})

// skipped reports whether cat leaves a tensor out whatever the shapes of the
// others, as it does with torch.tensor([]) (cat_should_skip_tensor).
func skipped(l tensor.Layout) bool { return l.Rank() == 1 && l.Numel() == 0 }

// Stack joins tensors along a new dimension: cat, and a view of what it returns
// if the dimension is not the last, so that its memory format is cat's.
var Stack = define(op.Op{
	Name: "stack", Eval: evalStack, Sig: "torch.stack(tensors: tensors, dim: int = 0)", Args: &DimArgs{},
	Run: func(c *op.Call) {
		first := c.In[0]
		d := c.Dim(c.Args.(*DimArgs).Dim, first.Rank()+1)
		dt, last := first.DType, first.IsChannelsLast()
		for _, t := range c.In[1:] {
			if t.Size != first.Size {
				c.Fail("shapes %v and %v do not stack", first.Size, t.Size)
			}
			dt = tensor.Promote(dt, t.DType)
			last = last && t.IsChannelsLast()
		}
		size, n := first.Size.Insert(d, int64(len(c.In))), int64(len(c.In))
		layout := tensor.Contiguous(size)
		if last && d < first.Rank() {
			joined := tensor.InFormat(first.Size.Set(d, n*first.Dim(d)), last)
			if l, ok := joined.View(size); ok {
				layout = l
			}
		}
		c.Return(c.New(layout, dt))
	},
	Node: "StackBackward0", Source: "aten/src/ATen/native/TensorShape.cpp: stack",
	Grad: func(b *op.Back) {
		g := b.Grads[0]
		d := b.Dim(b.Args.(*DimArgs).Dim, g.Rank())
		for i := range b.InM {
			if b.Need(i) {
				b.Set(i, b.ViewOf(g, g.Select(d, int64(i))))
			}
		}
	},
})

// evalStack copies each into its place; the derivative are views.
var evalStack = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error {
	y := c.Out[0]
	d := array.Dim(c.Args.(*DimArgs).Dim, y.Rank())
	for i, t := range c.In {
		if err := m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, y.Select(d, int64(i))), op.As(m, t)}, nil); err != nil {
			return err
		}
	}
	return nil
}}

// composedView defines a way to see a tensor that is made of other views.
func composedView(name, sig string, args any, run func(c *op.Call, x *op.Tensor) *op.Tensor) *op.Op {
	return define(op.Op{Name: name, Sig: sig, Args: args, Composite: true, Run: func(c *op.Call) { c.Return(run(c, c.In[0])) }})
}

// MovedimArgs are two dimensions, or lists of them.
type MovedimArgs struct {
	Source      []int64 `arg:"source"`
	Destination []int64 `arg:"destination"`
}

// SwapaxesArgs are the two dimensions of swapaxes.
type SwapaxesArgs struct {
	Dim0 int `arg:"axis0"`
	Dim1 int `arg:"axis1"`
}

// The views that are made of others.
var (
	_ = composedView("view_as", "Tensor.view_as(self, other)", nil, func(c *op.Call, x *op.Tensor) *op.Tensor {
		return c.Do1(View, &ShapeArgs{Shape: c.In[1].Size.Slice()}, x)
	})
	_ = composedView("reshape_as", "Tensor.reshape_as(self, other)", nil, func(c *op.Call, x *op.Tensor) *op.Tensor {
		return c.Do1(Reshape, &ShapeArgs{Shape: c.In[1].Size.Slice()}, x)
	})
	_ = composedView("ravel", "torch.ravel(input)", nil, func(c *op.Call, x *op.Tensor) *op.Tensor {
		rows := c.Local(c.Do1(Contiguous, nil, x))
		return c.Do1(View, &ShapeArgs{Shape: []int64{-1}}, rows)
	})
	_ = composedView("movedim", "torch.movedim(input, source: ints, destination: ints)", &MovedimArgs{}, movedim)
	_ = composedView("swapaxes", "torch.swapaxes(input, axis0: int, axis1: int)", &SwapaxesArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor {
		a := c.Args.(*SwapaxesArgs)
		return c.Do1(Transpose, &TransposeArgs{Dim0: a.Dim0, Dim1: a.Dim1}, x)
	})
	_ = composedView("swapdims", "torch.swapdims(input, dim0: int, dim1: int)", &TransposeArgs{}, func(c *op.Call, x *op.Tensor) *op.Tensor {
		return c.Do1(Transpose, c.Args, x)
	})
	_ = stacked("vstack", 0)
	_ = stacked("hstack", 1)
	_ = stacked("dstack", 2)
)

// stacked defines a concatenation along a dimension, of tensors that have it.
func stacked(name string, dim int) *op.Op {
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(tensors: tensors)", Composite: true, Run: func(c *op.Call) {
			for _, t := range c.In {
				if t.Rank() < max(dim+1, 2) {
					c.Fail("%s of tensors of shape %v is not modelled; they need %d dimensions", name, t.Size, max(dim+1, 2))
				}
			}
			c.Return(c.Do1(Cat, &DimArgs{Dim: dim}, c.In...))
		},
		Source: "aten/src/ATen/native/TensorShape.cpp: " + name,
	})
}

func movedim(c *op.Call, x *op.Tensor) *op.Tensor {
	a := c.Args.(*MovedimArgs)
	if len(a.Source) != len(a.Destination) {
		c.Fail("%d dimensions cannot move to %d places", len(a.Source), len(a.Destination))
	}
	order := make([]int64, x.Rank())
	for i := range order {
		order[i] = -1
	}
	moved := make([]bool, x.Rank())
	for i := range a.Source {
		from, to := c.Dim(int(a.Source[i]), x.Rank()), c.Dim(int(a.Destination[i]), x.Rank())
		if x.Rank() == 0 || moved[from] || order[to] >= 0 {
			c.Fail("dimension %d moves to %d twice, or there is none", a.Source[i], a.Destination[i])
		}
		moved[from], order[to] = true, int64(from)
	}
	next := 0
	for i := range order {
		if order[i] < 0 {
			for moved[next] {
				next++
			}
			order[i] = int64(next)
			next++
		}
	}
	return c.Do1(Permute, &PermuteArgs{Dims: order}, x)
}

// DiagEmbed puts the last dimension on the diagonal of matrices of zeros; its
// derivative is the diagonal.
var DiagEmbed = define(op.Op{
	Name: "diag_embed", Eval: op.Linear(func(any) array.Linear { return array.Diagonal }).DerivedInParts(), Sig: "torch.diag_embed(input)", Run: func(c *op.Call) {
		x := c.In[0]
		if x.Rank() == 0 || x.Rank() == tensor.MaxRank {
			c.Fail("diag_embed of shape %v is not modelled", x.Size)
		}
		c.Return(c.NewShape(x.DType, append(x.Size.Slice(), x.Dim(-1))...))
	},
	Node:   "DiagEmbedBackward0",
	Grad:   func(b *op.Back) { b.Set(0, b.Do1(diagonal, &DiagonalOfArgs{Dim1: -2, Dim2: -1}, b.Grads[0])) },
	Source: "aten/src/ATen/native/TensorShape.cpp: diag_embed",
})

// Meshgrid sees each vector along a dimension of its own.
var _ = define(op.Op{
	Name: "meshgrid", Sig: "torch.meshgrid(*tensors: tensors, *, indexing: str(ij) = 'ij')", List: true, Args: &struct {
		Indexing string `arg:"indexing"`
	}{}, Composite: true, Run: func(c *op.Call) {
		var shape []int64
		for _, t := range c.In {
			if t.Rank() > 1 {
				c.Fail("meshgrid needs vectors, not shape %v", t.Size)
			}
			shape = append(shape, t.Numel())
		}
		if len(shape) > tensor.MaxRank {
			c.Fail("meshgrid of more than %d vectors is not modelled", tensor.MaxRank)
		}
		for i, t := range c.In {
			own := make([]int64, len(shape))
			for k := range own {
				own[k] = 1
			}
			own[i] = -1
			v := c.Do1(View, &ShapeArgs{Shape: own}, t)
			c.Return(c.Do1(Expand, &ShapeArgs{Shape: shape}, v))
			c.Drop(v)
		}
	},
	Source: "aten/src/ATen/native/TensorShape.cpp: meshgrid",
})

// The broadcast to the shape of another tensor.
var _ = define(op.Op{
	Name: "expand_as", Sig: "Tensor.expand_as(self, other)", Composite: true, Run: func(c *op.Call) {
		c.Return(c.Do1(Expand, &ShapeArgs{Shape: c.In[1].Size.Slice()}, c.In[0]))
	},
})

var evalCat = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error { // each into its place
	y, at := c.Out[0], int64(0)
	d := c.Dim(c.Args.(*DimArgs).Dim, y.Rank())
	for _, t := range c.In {
		if t.Rank() == 1 && t.Numel() == 0 { // as torch.tensor([]), which joins anything
			continue
		}
		n := t.Dim(d)
		if err := m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, y.Narrow(d, at, n, 1)), op.As(m, t)}, nil); err != nil {
			return err
		}
		at += n
	}
	return nil
}}
