package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// composedView defines a way to see a tensor that is made of other views.
func composedView(name, sig string, args any, run func(c *Call, x *Tensor) *Tensor) *Op {
	return define(Op{Name: name, Sig: sig, Args: args, Composite: true, Run: func(c *Call) { c.Return(run(c, c.In[0])) }})
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
	_ = composedView("view_as", "Tensor.view_as(self, other)", nil, func(c *Call, x *Tensor) *Tensor {
		return c.Do1(View, &ShapeArgs{Shape: c.In[1].Size.Slice()}, x)
	})
	_ = composedView("reshape_as", "Tensor.reshape_as(self, other)", nil, func(c *Call, x *Tensor) *Tensor {
		return c.Do1(Reshape, &ShapeArgs{Shape: c.In[1].Size.Slice()}, x)
	})
	_ = composedView("ravel", "torch.ravel(input)", nil, func(c *Call, x *Tensor) *Tensor {
		rows := c.Local(c.Do1(Contiguous, nil, x))
		return c.Do1(View, &ShapeArgs{Shape: []int64{-1}}, rows)
	})
	_ = composedView("movedim", "torch.movedim(input, source: ints, destination: ints)", &MovedimArgs{}, movedim)
	_ = composedView("swapaxes", "torch.swapaxes(input, axis0: int, axis1: int)", &SwapaxesArgs{}, func(c *Call, x *Tensor) *Tensor {
		a := c.Args.(*SwapaxesArgs)
		return c.Do1(Transpose, &TransposeArgs{Dim0: a.Dim0, Dim1: a.Dim1}, x)
	})
	_ = composedView("swapdims", "torch.swapdims(input, dim0: int, dim1: int)", &TransposeArgs{}, func(c *Call, x *Tensor) *Tensor {
		return c.Do1(Transpose, c.Args, x)
	})
	_ = stacked("vstack", 0)
	_ = stacked("hstack", 1)
	_ = stacked("dstack", 2)
)

// stacked defines a concatenation along a dimension, of tensors that have it.
func stacked(name string, dim int) *Op {
	return define(Op{
		Name: name, Sig: "torch." + name + "(tensors: tensors)", Composite: true, Run: func(c *Call) {
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

func movedim(c *Call, x *Tensor) *Tensor {
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
		from, to := c.dim(int(a.Source[i]), x.Rank()), c.dim(int(a.Destination[i]), x.Rank())
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
var DiagEmbed = define(Op{
	Name: "diag_embed", Eval: linear(func(any) array.Linear { return array.Diagonal }, nil).inParts(), Sig: "torch.diag_embed(input)", Run: func(c *Call) {
		x := c.In[0]
		if x.Rank() == 0 || x.Rank() == tensor.MaxRank {
			c.Fail("diag_embed of shape %v is not modelled", x.Size)
		}
		c.Return(c.NewShape(x.DType, append(x.Size.Slice(), x.Dim(-1))...))
	},
	Node:   "DiagEmbedBackward0",
	Grad:   func(b *Back) { b.Set(0, b.Do1(diagonal, &DiagonalOfArgs{Dim1: -2, Dim2: -1}, b.Grads[0])) },
	Source: "aten/src/ATen/native/TensorShape.cpp: diag_embed",
})

// Meshgrid sees each vector along a dimension of its own.
var _ = define(Op{
	Name: "meshgrid", Sig: "torch.meshgrid(*tensors: tensors, *, indexing: str(ij) = 'ij')", List: true, Args: &struct {
		Indexing string `arg:"indexing"`
	}{}, Composite: true, Run: func(c *Call) {
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
