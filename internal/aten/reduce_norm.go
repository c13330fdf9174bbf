package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// NormArgs are the arguments of norm.
type NormArgs struct {
	P *float64 `arg:"p"`
	ReduceArgs
}

// OrType implements Typed.
func (a *NormArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

// VectorNorm is torch.linalg.vector_norm, of order 1 or 2.
var VectorNorm = define(op.Op{
	Name: "linalg_vector_norm", Eval: evalNorm, Sig: "Tensor.norm(self, p: float? = None, dim: ints? = None, keepdim: bool = False)", Args: &NormArgs{},
	Cast: op.CastFP32Out, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*NormArgs)
		if a.P != nil && *a.P != 1 && *a.P < 2 {
			c.Fail("norms of order %v are not modelled; the order must be 1, or at least 2", *a.P)
		}
		if a.P == nil && len(a.Dim) > 2 {
			c.Fail("the Frobenius norm over %d dimensions is not modelled; give p", len(a.Dim))
		}
		if !x.DType.IsFloating() {
			c.Fail("the norm needs a floating type, not %v", x.DType)
		}
		dims, size := reducedDims(c, x.Meta(), &a.ReduceArgs)
		d := x.DType
		if a.DType != nil {
			d = *a.DType
		}
		c.Return(c.New(tensor.Contiguous(size), d))
		switch {
		case size.Numel() != x.Numel():
			reduceScratch(c, x, dims, d.Accumulate().Size(), 4)
		case d != x.DType: // dimensions of one element: the absolute values
			c.Drop(c.New(x.LikeDense(), d))
		}
	},
	Save: []op.Save{op.In(0), op.Out(0)}, Node: "LinalgVectorNormBackward0", Grad: func(b *op.Back) { gradNorm(b, b.SavedIn(0)) },
	Source: "aten/src/ATen/native/LinearAlgebra.cpp: linalg_vector_norm_out; torch/csrc/autograd/FunctionsManual.cpp: linalg_vector_norm_backward",
})

// Norm is at::norm, which C++ code calls: its derivative converts the
// input to the gradient's type first.
var Norm = define(op.Op{
	Name: "norm", Eval: evalNorm, Args: &NormArgs{}, Cast: op.CastFP32Out, Run: VectorNorm.Run, Save: []op.Save{op.In(0), op.Out(0)}, Node: "NormBackward1",
	Grad: func(b *op.Back) {
		gradNorm(b, b.Local(b.Do1(To, &ToCopyArgs{DType: b.Grads[0].DType}, b.SavedIn(0))))
	},
	Source: "aten/src/ATen/native/ReduceOps.cpp: norm; tools/autograd/derivatives.yaml: norm.ScalarOpt_dim_dtype",
})

// normChunk is how many elements one block of the foreach kernels takes
// (kChunkSize in aten/src/ATen/native/cuda/MultiTensorApply.cuh).
const normChunk = 65536

// ForeachNorm are the norms of several tensors of one type: partial norms of the chunks of
// each, then one scalar for each.
var ForeachNorm = define(op.Op{
	Name: "_foreach_norm", List: true, Takes: op.Floats, Run: func(c *op.Call) {
		var most int64
		for _, t := range c.In {
			most = max(most, tensor.DivUp(t.Numel(), normChunk))
		}
		partial := c.NewShape(c.In[0].DType.Accumulate(), int64(len(c.In))*most)
		for _, t := range c.In {
			c.Return(c.NewShape(t.DType))
		}
		c.Drop(partial)
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		for i, t := range c.In {
			a.Put(c.Out[i], []float64{array.Norm(a.Get(t), 2)})
		}
	}, nil),
	Source: "aten/src/ATen/native/cuda/ForeachReduceOp.cu",
})

// evalNorm is that of order 2 by kernels.
var evalNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, in, y := c.Args.(*NormArgs), c.In[0], c.Out[0]
		if a.order() != 2 {
			return op.ErrView
		}
		return m.Launch(kernel.Norm, []kernel.Tensor{m.At(y, a.Spread(y, in.Size)), op.As(m, in)}, nil)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		a, y, in, norm, g := b.Args.(*NormArgs), m.Wanted(b, 0), b.SavedIn(0), b.SavedOut(0), b.Grads[0]
		if y == nil || a.order() != 2 {
			return op.ErrView
		}
		ts := []kernel.Tensor{op.As(m, y), m.At(g, a.Spread(g, in.Size)), op.As(m, in), m.At(norm, a.Spread(norm, in.Size))}
		return m.Launch(kernel.NormGrad, ts, nil)
	},
}).Otherwise(op.Statistic{
	Of: func(x []float64, args any) float64 { return array.Norm(x, args.(*NormArgs).order()) },
	Slopes: func(x []float64, y float64, args any) []float64 {
		return array.NormSlopes(x, y, args.(*NormArgs).order())
	},
	Over: func(args any) []int64 { return args.(*NormArgs).Dim },
}.Eval())

// order is that of the norm.
func (a *NormArgs) order() float64 {
	if a.P != nil {
		return *a.P
	}
	return 2
}

func gradNorm(b *op.Back, x *op.Tensor) {
	a := b.Args.(*NormArgs)
	dims, _ := reducedDims(&b.Call, &b.InM[0], &a.ReduceArgs)
	keep := a.KeepDim || len(a.Dim) == 0 // a norm of everything broadcasts as it is
	g, norm := restored(b, b.Grads[0], dims, keep), restored(b, b.SavedOut(0), dims, keep)
	if a.P != nil && *a.P == 1 { // self.sgn() * grad
		sign := b.Local(b.NewLike(x))
		b.Set(0, b.Do1(MulTensor, nil, sign, g))
		return
	}
	if a.P != nil && math.IsInf(*a.P, 1) {
		gradMaxNorm(b, a, x, g, norm)
		return
	}
	if a.P != nil && *a.P > 2 { // self * self.abs().pow_(p - 2) * (grad / norm.pow(p - 1)).masked_fill_(norm == 0, 0)
		size := b.NewLike(x)
		scaled := b.Local(b.Do1(MulTensor, nil, x, size))
		b.Drop(size)
		power := b.NewLike(norm)
		scale := b.Local(b.Do1(DivTensor, nil, g, power))
		b.Drop(power)
		b.Drop(b.New(norm.LikeDense(), tensor.Bool))
		b.Set(0, b.Do1(MulTensor, nil, scaled, scale))
		return
	}
	unit := b.Local(b.Do1(DivTensor, nil, x, norm)) // grad * (self / norm).masked_fill_(norm == 0, 0)
	b.Local(b.New(norm.LikeDense(), tensor.Bool))
	b.Set(0, b.Do1(MulTensor, nil, g, unit))
}

// gradMaxNorm shares the gradient among the elements whose size is the norm, NaN
// among them: self.sgn() * ((grad / mask.sum(dim)) * mask).
func gradMaxNorm(b *op.Back, a *NormArgs, x, g, norm *op.Tensor) {
	size := b.Local(b.NewLike(x))
	l := b.Elementwise(size, norm)
	equal := b.New(l, tensor.Bool)
	nan := b.New(l, tensor.Bool)
	mask := b.Local(b.New(l, tensor.Bool))
	b.Drop(nan, equal)
	over := a.ReduceArgs
	over.KeepDim, over.DType = true, nil
	count := b.Local(b.Do1(Sum, &over, mask))
	each := b.Local(b.Do1(DivTensor, nil, g, count))
	share := b.Local(b.Do1(MulTensor, nil, each, mask))
	sign := b.Local(b.NewLike(x))
	b.Set(0, b.Do1(MulTensor, nil, sign, share))
}

// NormalizeArgs are the arguments of F.normalize.
type NormalizeArgs struct {
	P   float64 `arg:"p"`
	Dim int64   `arg:"dim"`
	Eps float64 `arg:"eps"`
}

// Normalize divides by the norm along a dimension.
var _ = define(op.Op{
	Name: "normalize", Sig: "F.normalize(input, p: float = 2.0, dim: int = 1, eps: float = 1e-12)", Args: &NormalizeArgs{}, Composite: true,
	Run: func(c *op.Call) {
		a, x := c.Args.(*NormalizeArgs), c.In[0]
		norm := c.Do1(VectorNorm, &NormArgs{P: &a.P, ReduceArgs: ReduceArgs{Dim: []int64{a.Dim}, KeepDim: true}}, x)
		least := c.Do1(ClampMin, atLeast(a.Eps), norm)
		c.Drop(norm)
		denom := c.Variable(c.Do1(Expand, &ShapeArgs{Shape: x.Size.Slice()}, least))
		c.Drop(least)
		c.Return(c.Do1(Div, &BinaryArgs{}, x, denom))
	},
	Source: "torch/nn/functional.py: normalize",
})
