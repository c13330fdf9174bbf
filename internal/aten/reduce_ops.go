package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// ReduceArgs are the dimensions of a reduction, none meaning all, and the type
// of the result where it can be chosen.
type ReduceArgs struct {
	Dim     []int64       `arg:"dim"`
	KeepDim bool          `arg:"keepdim"`
	DType   *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *ReduceArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

// reducedDims resolves the dimensions, with the sizes of the result.
func reducedDims(c *op.Call, x *op.Meta, a *ReduceArgs) ([]bool, tensor.Dims) {
	dims := make([]bool, x.Rank())
	for _, d := range a.Dim {
		if x.Rank() > 0 {
			dims[c.Dim(int(d), x.Rank())] = true
		}
	}
	if len(a.Dim) == 0 {
		for i := range dims {
			dims[i] = true
		}
	}
	var size tensor.Dims
	for i, red := range dims {
		switch {
		case !red:
			size = size.Append(x.Dim(i))
		case a.KeepDim:
			size = size.Append(1)
		}
	}
	return dims, size
}

// reduce is the Run of a reduction by Reduce.cuh into type d.
func reduce(c *op.Call, d tensor.DType) *op.Tensor {
	x := c.In[0]
	dims, size := reducedDims(c, x.Meta(), c.Args.(*ReduceArgs))
	out := c.New(tensor.Contiguous(size), d)
	if x.DType != d && !(x.DType.IsHalf() && d == tensor.Float32) { // make_reduction converts the input
		x = c.Local(c.New(x.LikeDense(), d))
	}
	reduceScratch(&op.Call{Exec: c.Exec}, x, dims, d.Accumulate().Size(), 4)
	return out
}

// gradExpand gives the gradient of a reduction the input's shape by strides of
// 0 (sum_backward); no memory.
func gradExpand(b *op.Back) *op.Tensor {
	g, in := b.Grads[0], b.InM[0]
	a := b.Args.(*ReduceArgs)
	dims, _ := reducedDims(&b.Call, &in, a)
	l := g.Layout
	if !a.KeepDim && g.Rank() != in.Rank() {
		for i, red := range dims {
			if red {
				l = l.Unsqueeze(i)
			}
		}
	}
	e, err := l.Expand(in.Size.Slice())
	if err != nil {
		b.Fail("%v", err)
	}
	return b.ViewOf(g, e)
}

// summedIn is the type in which sum and prod compute: that of their argument dtype, or
// the input's, for integers int64.
func summedIn(c *op.Call, given *tensor.DType) tensor.DType {
	switch d := c.In[0].DType; {
	case given != nil:
		return *given
	case !d.IsFloating():
		return tensor.Int64
	default:
		return d
	}
}

// Sum over some or all dimensions.
var Sum = define(op.Op{
	Name: "sum", Eval: evalSum, Sig: "torch.sum(input, dim: ints? = None, keepdim: bool = False, *, dtype: dtype? = None)", Args: &ReduceArgs{}, Cast: op.CastFP32Out,
	Run: func(c *op.Call) {
		c.Return(reduce(c, summedIn(c, c.Args.(*ReduceArgs).DType)))
	},
	Node: "SumBackward1", Grad: func(b *op.Back) { b.Set(0, gradExpand(b)) },
})

// Mean over some or all dimensions.
var Mean = define(op.Op{
	Name: "mean", Eval: evalMean, Takes: op.Floats, Sig: "torch.mean(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{},
	Run:  func(c *op.Call) { c.Return(reduce(c, c.In[0].DType)) },
	Node: "MeanBackward1",
	Grad: func(b *op.Back) { // grad.expand(sizes) / n, a new tensor
		e := b.Local(gradExpand(b))
		b.Set(0, b.Do1(MulScalar, nil, e))
	},
})

// quantifier defines a reduction of a bool tensor to bool.
func quantifier(name string, all bool) *op.Op {
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{}, Run: func(c *op.Call) {
			if c.In[0].DType != tensor.Bool {
				c.Fail("%s of %v is not modelled; compare first", name, c.In[0].DType)
			}
			c.Return(reduce(c, tensor.Bool))
		},
		Eval: (&op.Eval{Forward: func(m op.Machine, c *op.Call) error {
			k, in, y := kernel.Max, c.In[0], c.Out[0]
			switch {
			case in.Numel() == 0:
				return op.ErrView
			case all:
				k = kernel.Min
			}
			return m.Launch(k, []kernel.Tensor{m.At(y, c.Args.(*ReduceArgs).Spread(y, in.Size)), op.As(m, in)}, nil)
		}}).Otherwise(op.Statistic{Of: func(x []float64, _ any) float64 { return array.Truth(array.Quantified(x, all)) }, Over: overDims}.Eval()),
		Source: "aten/src/ATen/native/cuda/ReduceLogicKernel.cu: gpu_reduce_kernel<scalar_t, bool>",
	})
}

// The quantifiers over masks.
var (
	All = quantifier("all", true)
	Any = quantifier("any", false)
)

// Same is torch.equal(x, y), which the host reads.
var Same = define(op.Op{
	Name: "equal", Run: func(c *op.Call) {
		x, y := c.In[0], c.In[1]
		if x.Size != y.Size || x.Numel() == 0 {
			return
		}
		each := c.Do1(Equal, &BinaryArgs{}, x, y)
		c.Drop(c.Do1(All, &ReduceArgs{}, each), each)
	},
	Eval: &op.Eval{Forward: func(op.Machine, *op.Call) error {
		return &op.Refusal{What: "equal of a recording"}
	}},
	Source: "aten/src/ATen/native/cuda/Equal.cpp: cuda_equal",
})

// VarArgs are the arguments of var and std.
type VarArgs struct {
	ReduceArgs
	Correction float64 `arg:"correction"`
}

const varSig = "(input, dim: ints? = None, *, correction: float = 1, keepdim: bool = False)"

// Variance and standard deviation, by Welford's algorithm in one kernel.
var (
	Var = define(op.Op{
		Name: "var", Sig: "torch.var" + varSig, Args: &VarArgs{}, Run: runVar, Save: []op.Save{op.In(0)}, Node: "VarBackward0",
		Grad:   func(b *op.Back) { gradVar(b, b.Grads[0]) },
		Eval:   op.Statistic{Of: variance, Slopes: func(x []float64, _ float64, args any) []float64 { return varianceSlopes(x, args) }, Over: overVar}.Eval(),
		Source: "aten/src/ATen/native/ReduceOps.cpp: std_var_out; torch/csrc/autograd/FunctionsManual.cpp: var_backward",
	})
	Std = define(op.Op{
		Name: "std", Sig: "torch.std" + varSig, Args: &VarArgs{}, Run: runVar, Save: []op.Save{op.In(0), op.Out(0)}, Node: "StdBackward0",
		Grad: func(b *op.Back) { // (grad / (result * 2)).masked_fill_(result == 0, 0)
			res := b.SavedOut(0)
			mark := b.Mark()
			two := b.Local(b.Do1(MulScalar, nil, res))
			g := b.Do1(DivTensor, nil, b.Grads[0], two)
			b.Local(b.New(res.LikeDense(), tensor.Bool))
			b.DropTo(mark)
			gradVar(b, b.Local(g))
		},
		Eval: op.Statistic{
			Of: func(x []float64, args any) float64 { return math.Sqrt(variance(x, args)) },
			Slopes: func(x []float64, y float64, args any) []float64 {
				s := varianceSlopes(x, args)
				return array.Each(len(s), func(i int) float64 {
					if y == 0 {
						return 0
					}
					return s[i] / (2 * y)
				})
			},
			Over: overVar,
		}.Eval(),
		Source: "torch/csrc/autograd/FunctionsManual.cpp: std_backward",
	})
)

func overVar(args any) []int64 { return args.(*VarArgs).Dim }

func variance(x []float64, args any) float64 { return array.Variance(x, args.(*VarArgs).Correction) }

func varianceSlopes(x []float64, args any) []float64 {
	return array.VarianceSlopes(x, args.(*VarArgs).Correction)
}

func runVar(c *op.Call) {
	x, a := c.In[0], c.Args.(*VarArgs)
	if !x.DType.IsFloating() {
		c.Fail("the variance needs a floating type, not %v", x.DType)
	}
	dims, size := reducedDims(c, x.Meta(), &a.ReduceArgs)
	out := c.Grown(x.DType, size.Slice()...)
	acc := int64(welford)
	if x.DType == tensor.Float64 {
		acc *= 2
	}
	reduceScratch(c, x, dims, acc, 2)
	c.Return(out)
}

// gradVar is 2 / (n - correction) * grad * (self - self.mean(dim)).
func gradVar(b *op.Back, g *op.Tensor) {
	x, a := b.SavedIn(0), b.Args.(*VarArgs)
	over := &ReduceArgs{}
	if x.Rank() > 0 && len(a.Dim) > 0 {
		dims, _ := reducedDims(&b.Call, &b.InM[0], &a.ReduceArgs)
		if x.Rank() > 1 {
			g = restored(b, g, dims, a.KeepDim)
		}
		over = &ReduceArgs{Dim: a.Dim, KeepDim: true}
	} else if float64(x.Numel()) <= a.Correction {
		b.Fail("the gradient of the variance of %d elements with correction %v is not modelled", x.Numel(), a.Correction)
	}
	mean := b.Local(b.Do1(Mean, over, x))
	diff := b.Local(b.Do1(Sub, &BinaryArgs{}, x, mean))
	scaled := b.Local(b.Do1(MulScalar, nil, g))
	b.Set(0, b.Do1(MulTensor, nil, scaled, diff))
}

// LogSumExp is log(sum(exp(x))), computed around the maximum.
var LogSumExp = define(op.Op{
	Name: "logsumexp", Sig: "torch.logsumexp(input, dim: ints, keepdim: bool = False)", Args: &ReduceArgs{}, Cast: op.CastFP32, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*ReduceArgs)
		if !x.DType.IsFloating() || x.Numel() == 0 {
			c.Fail("logsumexp needs elements of a floating type, not shape %v of %v", x.Size, x.DType)
		}
		dims, size := reducedDims(c, x.Meta(), a)
		_, kept := reducedDims(c, x.Meta(), &ReduceArgs{Dim: a.Dim, KeepDim: true})
		maxes := c.Local(c.New(tensor.Contiguous(kept), x.DType))
		reduceScratch(c, x, dims, x.DType.Size(), 4)
		abs := c.Grown(x.DType, size.Slice()...)
		c.Drop(c.New(tensor.Contiguous(size), tensor.Bool), abs) // maxes_squeezed.abs() == INFINITY
		exp := c.Local(c.Do1(Sub, &BinaryArgs{}, x, maxes))
		out := c.Grown(x.DType, size.Slice()...)
		reduceScratch(c, exp, dims, x.DType.Accumulate().Size(), 4)
		c.Return(out)
	},
	Save: []op.Save{op.In(0), op.Out(0)}, Node: "LogsumexpBackward0",
	Grad: func(b *op.Back) { // grad * (self - result).exp()
		a, x := b.Args.(*ReduceArgs), b.SavedIn(0)
		dims, _ := reducedDims(&b.Call, &b.InM[0], a)
		keep := a.KeepDim || x.Rank() == 0
		g, res := restored(b, b.Grads[0], dims, keep), restored(b, b.SavedOut(0), dims, keep)
		diff := b.Local(b.Do1(Sub, &BinaryArgs{}, x, res))
		exp := b.Local(b.NewLike(diff))
		b.Set(0, b.Do1(MulTensor, nil, g, exp))
	},
	Eval: op.Statistic{
		Of: func(x []float64, _ any) float64 { return array.LogSumExp(x) },
		Slopes: func(x []float64, y float64, _ any) []float64 {
			return array.Each(len(x), func(i int) float64 { return math.Exp(x[i] - y) })
		},
		Over: overDims,
	}.Eval(),
	Source: "aten/src/ATen/native/ReduceOps.cpp: logsumexp_out_impl; torch/csrc/autograd/FunctionsManual.cpp: logsumexp_backward",
})

// Diff is the difference of neighbours along a dimension, of what prepend and
// the input are together.
var _ = define(op.Op{
	Name: "diff", Sig: "torch.diff(input, *, dim: int = -1, prepend: tensor? = None)", Args: &DimArgs{}, Composite: true, Run: func(c *op.Call) {
		x := c.In[0]
		dim := c.Dim(c.Args.(*DimArgs).Dim, x.Rank())
		if x.Rank() == 0 {
			c.Fail("diff needs at least one dimension")
		}
		if p := c.Opt(1); p != nil {
			x = c.Local(c.Do1(Cat, &DimArgs{Dim: dim}, p, x))
		}
		n := x.Dim(dim)
		if n == 0 {
			c.Fail("diff of nothing is not modelled")
		}
		start, end := int64(1), n-1
		first := c.Local(c.Do1(Slice, &SliceArgs{Dim: dim, End: &end, Step: 1}, x))
		second := c.Local(c.Do1(Slice, &SliceArgs{Dim: dim, Start: &start, Step: 1}, x))
		c.Return(c.Do1(Sub, &BinaryArgs{}, second, first))
	},
	Source: "aten/src/ATen/native/ReduceOps.cpp: diff, diff_helper",
})

// Prod is the product along a dimension.
var Prod = define(op.Op{
	Name: "prod", Sig: "torch.prod(input, dim: int, keepdim: bool = False, *, dtype: dtype? = None)", Args: &ProdArgs{}, Cast: op.CastFP32Out, Run: func(c *op.Call) {
		a := c.Args.(*ProdArgs)
		over := &op.Call{Exec: c.Exec, In: c.In, Args: a.over()}
		c.Return(reduce(over, summedIn(c, a.DType)))
		over.End()
	},
	Save: []op.Save{op.In(0), op.Out(0)}, Node: "ProdBackward1",
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		x := a.Array(c.In[0])
		a.Put(c.Out[0], x.Products(array.Dim(int(c.Args.(*ProdArgs).Dim), len(x.Size))))
	}, func(a op.Arrays, b *op.Back) {
		if r := a.Wanted(b, 0); r != nil {
			x := a.Array(b.SavedIn(0))
			a.Put(r, x.ProductsGrad(a.Get(b.Grads[0]), array.Dim(int(b.Args.(*ProdArgs).Dim), len(x.Size)), true))
		}
	}),
	Grad: func(b *op.Back) { // grad * (result / input) where nothing is 0
		x, a := b.SavedIn(0), b.Args.(*ProdArgs)
		x = b.Local(b.Do1(To, &ToCopyArgs{DType: b.Grads[0].DType}, x))
		dims, _ := reducedDims(&b.Call, &b.InM[0], a.over())
		g, res := restored(b, b.Grads[0], dims, a.KeepDim), restored(b, b.SavedOut(0), dims, a.KeepDim)
		mark := b.Mark()
		zero := b.Local(b.New(x.LikeDense(), tensor.Bool))
		count := b.Local(b.Do1(Sum, &ReduceArgs{Dim: []int64{a.Dim}, KeepDim: true}, zero))
		b.Drop(b.Do1(Sum, &ReduceArgs{}, count))
		share := b.Local(b.Do1(DivTensor, nil, res, x))
		b.Set(0, b.Do1(MulTensor, nil, g, share))
		b.Early(share)
		b.Early(count)
		b.DropTo(mark)
	},
	Source: "aten/src/ATen/native/ReduceOps.cpp: prod; torch/csrc/autograd/FunctionsManual.cpp: prod_backward",
})

// ProdArgs are the arguments of prod.
type ProdArgs struct {
	Dim     int64         `arg:"dim"`
	KeepDim bool          `arg:"keepdim"`
	DType   *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *ProdArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

func (a *ProdArgs) over() *ReduceArgs { return &ReduceArgs{Dim: []int64{a.Dim}, KeepDim: a.KeepDim} }

// NanSum is the sum of the elements that are numbers, over some or all dimensions.
// Integers are summed in int64.
var NanSum = define(op.Op{
	Name: "nansum", Sig: "torch.nansum(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{},
	Run: func(c *op.Call) {
		d := c.In[0].DType
		if !d.IsFloating() {
			d = tensor.Int64
		}
		c.Return(reduce(c, d))
	},
	Save: []op.Save{op.In(0)}, Node: "NansumBackward0",
	Grad: func(b *op.Back) { // sum_backward * self.isnan().logical_not()
		g := b.Local(gradExpand(b))
		nan := b.Local(b.Do1(IsNaN, nil, b.SavedIn(0)))
		b.Set(0, b.Do1(MulTensor, nil, g, b.Local(b.Do1(LogicalNot, nil, nan))))
	},
	Eval: op.Statistic{
		Of: func(x []float64, _ any) float64 {
			sum := 0.0
			for _, v := range x {
				if !math.IsNaN(v) {
					sum += v
				}
			}
			return sum
		},
		Slopes: func(x []float64, _ float64, _ any) []float64 {
			return array.Each(len(x), func(i int) float64 { return array.Truth(!math.IsNaN(x[i])) })
		},
		Over: overDims,
	}.Eval(),
	Source: "aten/src/ATen/native/ReduceOps.cpp: nansum_out; torch/csrc/autograd/FunctionsManual.cpp: nansum_backward",
})

func overDims(args any) []int64 { return args.(*ReduceArgs).Dim }

// Sums, and means, whose gradient is shared evenly.
var (
	evalSum  = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error { return reduced(m, c, 1) }}
	evalMean = &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return reduced(m, c, float64(c.Out[0].Numel())/float64(c.In[0].Numel()))
		},
		Backward: func(m op.Machine, b *op.Back) error {
			in, g := b.InM[0], b.Grads[0]
			ts := []kernel.Tensor{op.As(m, b.Results[0]), m.At(g, b.Args.(*ReduceArgs).Spread(g, in.Size))}
			return m.Launch(kernel.Affine, ts, nil, float64(g.Numel())/float64(in.Numel()), 0)
		},
	}
)

// reduced is a sum times a number.
func reduced(m op.Machine, c *op.Call, scale float64) error {
	in, y := c.In[0], c.Out[0]
	return m.Launch(kernel.Sum, []kernel.Tensor{m.At(y, c.Args.(*ReduceArgs).Spread(y, in.Size)), op.As(m, in)}, nil, scale)
}

// Spread is the result of a reduction under the sizes of what was reduced: its
// strides are 0 along the reduced dimensions.
func (a *ReduceArgs) Spread(y *op.Tensor, in tensor.Dims) tensor.Layout {
	reduced := make([]bool, in.Len())
	for _, d := range a.Dim {
		if in.Len() > 0 {
			reduced[array.Dim(int(d), in.Len())] = true
		}
	}
	l := tensor.Layout{Size: in, Stride: in, Offset: y.Offset}
	k := 0
	for i := range in.Len() {
		all := reduced[i] || len(a.Dim) == 0
		stride := int64(0)
		if !all && k < y.Rank() {
			stride = y.Stride.At(k)
		}
		if !all || a.KeepDim {
			k++
		}
		l.Stride = l.Stride.Set(i, stride)
	}
	return l
}
