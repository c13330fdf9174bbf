package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// VarArgs are the arguments of var and std.
type VarArgs struct {
	ReduceArgs
	Correction float64 `arg:"correction"`
}

const varSig = "(input, dim: ints? = None, *, correction: float = 1, keepdim: bool = False)"

// Variance and standard deviation, by Welford's algorithm in one kernel.
var (
	Var = define(Op{
		Name: "var", Sig: "torch.var" + varSig, Args: &VarArgs{}, Run: runVar, Save: []Save{In(0)}, Node: "VarBackward0",
		Grad:   func(b *Back) { b.gradVar(b.Grads[0]) },
		Eval:   statistic{of: variance, slopes: func(x []float64, _ float64, args any) []float64 { return varianceSlopes(x, args) }, over: overVar}.eval(),
		Source: "aten/src/ATen/native/ReduceOps.cpp: std_var_out; torch/csrc/autograd/FunctionsManual.cpp: var_backward",
	})
	Std = define(Op{
		Name: "std", Sig: "torch.std" + varSig, Args: &VarArgs{}, Run: runVar, Save: []Save{In(0), Out(0)}, Node: "StdBackward0",
		Grad: func(b *Back) { // (grad / (result * 2)).masked_fill_(result == 0, 0)
			res := b.SavedOut(0)
			mark := b.Mark()
			two := b.Local(b.Do1(MulScalar, nil, res))
			g := b.Do1(DivTensor, nil, b.Grads[0], two)
			b.Local(b.New(res.LikeDense(), tensor.Bool))
			b.DropTo(mark)
			b.gradVar(b.Local(g))
		},
		Eval: statistic{
			of: func(x []float64, args any) float64 { return math.Sqrt(variance(x, args)) },
			slopes: func(x []float64, y float64, args any) []float64 {
				s := varianceSlopes(x, args)
				return array.Each(len(s), func(i int) float64 {
					if y == 0 {
						return 0
					}
					return s[i] / (2 * y)
				})
			},
			over: overVar,
		}.eval(),
		Source: "torch/csrc/autograd/FunctionsManual.cpp: std_backward",
	})
)

func overVar(args any) []int64 { return args.(*VarArgs).Dim }

func variance(x []float64, args any) float64 { return array.Variance(x, args.(*VarArgs).Correction) }

func varianceSlopes(x []float64, args any) []float64 {
	return array.VarianceSlopes(x, args.(*VarArgs).Correction)
}

func runVar(c *Call) {
	x, a := c.In[0], c.Args.(*VarArgs)
	if !x.DType.IsFloating() {
		c.Fail("the variance needs a floating type, not %v", x.DType)
	}
	dims, size := c.reducedDims(x.Meta(), &a.ReduceArgs)
	out := c.grown(x.DType, size.Slice()...)
	acc := int64(welford)
	if x.DType == tensor.Float64 {
		acc *= 2
	}
	reduceScratch(c, x, dims, acc, 2)
	c.Return(out)
}

// gradVar is 2 / (n - correction) * grad * (self - self.mean(dim)).
func (b *Back) gradVar(g *Tensor) {
	x, a := b.SavedIn(0), b.Args.(*VarArgs)
	over := &ReduceArgs{}
	if x.Rank() > 0 && len(a.Dim) > 0 {
		dims, _ := b.reducedDims(&b.InM[0], &a.ReduceArgs)
		if x.Rank() > 1 {
			g = b.restored(g, dims, a.KeepDim)
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
