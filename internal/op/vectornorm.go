package op

import "github.com/memplan/memplan/internal/tensor"

// NormArgs are the arguments of norm.
type NormArgs struct {
	P *float64 `arg:"p"`
	ReduceArgs
}

// Norm is the norm of vectors: torch.linalg.vector_norm, of order 1 or 2.
var vectorNorm = define(Row{
	Name: "linalg_vector_norm", Sig: "Tensor.norm(self, p: float? = None, dim: ints? = None, keepdim: bool = False)", Args: &NormArgs{},
	Cast: CastFP32Out, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*NormArgs)
		if a.P != nil && *a.P != 1 && *a.P != 2 {
			c.Fail("norms of order %v are not modelled; the order must be 1 or 2", *a.P)
		}
		if a.P == nil && len(a.Dim) > 2 {
			c.Fail("the Frobenius norm over %d dimensions is not modelled; give p", len(a.Dim))
		}
		if !x.DType.IsFloating() {
			c.Fail("the norm needs a floating type, not %v", x.DType)
		}
		dims, size := c.reducedDims(&Meta{x.Layout, x.DType}, &a.ReduceArgs)
		d := x.DType
		if a.DType != nil {
			d = *a.DType
		}
		out := c.New(tensor.Contiguous(size), d)
		reduceScratch(c, x, dims, d.Accumulate().Size(), 4)
		c.Return(out)
	},
	Save: []Save{In(0), Out(0)}, Node: "LinalgVectorNormBackward0", Grad: gradNorm,
	Source: "aten/src/ATen/native/LinearAlgebra.cpp: linalg_vector_norm_out; torch/csrc/autograd/FunctionsManual.cpp: linalg_vector_norm_backward",
})

func gradNorm(b *Back) {
	a, x := b.Args.(*NormArgs), b.SavedIn[0]
	dims, _ := b.reducedDims(&b.InM[0], &a.ReduceArgs)
	keep := a.KeepDim || len(a.Dim) == 0 // a norm of everything broadcasts as it is
	g, norm := b.restored(b.Grads[0], dims, keep), b.restored(b.SavedOut[0], dims, keep)
	if a.P != nil && *a.P == 1 { // self.sgn() * grad
		sign := b.Local(b.NewLike(x))
		b.Set(0, b.Do1(mulTensor, nil, sign, g))
		return
	}
	unit := b.Local(b.Do1(divTensor, nil, x, norm)) // grad * (self / norm).masked_fill_(norm == 0, 0)
	b.Local(b.New(norm.LikeDense(), tensor.Bool))
	b.Set(0, b.Do1(mulTensor, nil, g, unit))
}

// NormalizeArgs are the arguments of F.normalize.
type NormalizeArgs struct {
	P   float64 `arg:"p"`
	Dim int64   `arg:"dim"`
	Eps float64 `arg:"eps"`
}

// Normalize divides by the norm along a dimension.
var _ = define(Row{
	Name: "normalize", Sig: "F.normalize(input, p: float = 2.0, dim: int = 1, eps: float = 1e-12)", Args: &NormalizeArgs{}, Composite: true,
	Run: func(c *Call) {
		a, x := c.Args.(*NormalizeArgs), c.In[0]
		norm := c.Do1(vectorNorm, &NormArgs{P: &a.P, ReduceArgs: ReduceArgs{Dim: []int64{a.Dim}, KeepDim: true}}, x)
		least := c.Do1(clampMin, &ClampArgs{Min: &a.Eps}, norm)
		c.Drop(norm)
		denom := c.Local(c.Do1(Expand, &ShapeArgs{Shape: x.Size.Slice()}, least))
		c.Drop(least)
		c.Return(c.Do1(Div, &BinaryArgs{}, x, denom))
	},
	Source: "torch/nn/functional.py: normalize",
})
