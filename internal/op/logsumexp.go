package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// LogSumExp is log(sum(exp(x))), computed around the maximum.
var LogSumExp = define(Op{
	Name: "logsumexp", Sig: "torch.logsumexp(input, dim: ints, keepdim: bool = False)", Args: &ReduceArgs{}, Cast: CastFP32, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*ReduceArgs)
		if !x.DType.IsFloating() || x.Numel() == 0 {
			c.Fail("logsumexp needs elements of a floating type, not shape %v of %v", x.Size, x.DType)
		}
		dims, size := c.reducedDims(x.Meta(), a)
		_, kept := c.reducedDims(x.Meta(), &ReduceArgs{Dim: a.Dim, KeepDim: true})
		maxes := c.Local(c.New(tensor.Contiguous(kept), x.DType))
		reduceScratch(c, x, dims, x.DType.Size(), 4)
		abs := c.grown(x.DType, size.Slice()...)
		c.Drop(c.New(tensor.Contiguous(size), tensor.Bool), abs) // maxes_squeezed.abs() == INFINITY
		exp := c.Local(c.Do1(Sub, &BinaryArgs{}, x, maxes))
		out := c.grown(x.DType, size.Slice()...)
		reduceScratch(c, exp, dims, x.DType.Accumulate().Size(), 4)
		c.Return(out)
	},
	Save: []Save{In(0), Out(0)}, Node: "LogsumexpBackward0",
	Grad: func(b *Back) { // grad * (self - result).exp()
		a, x := b.Args.(*ReduceArgs), b.SavedIn(0)
		dims, _ := b.reducedDims(&b.InM[0], a)
		keep := a.KeepDim || x.Rank() == 0
		g, res := b.restored(b.Grads[0], dims, keep), b.restored(b.SavedOut(0), dims, keep)
		diff := b.Local(b.Do1(Sub, &BinaryArgs{}, x, res))
		exp := b.Local(b.NewLike(diff))
		b.Set(0, b.Do1(MulTensor, nil, g, exp))
	},
	Eval: statistic{
		of: func(x []float64, _ any) float64 { return array.LogSumExp(x) },
		slopes: func(x []float64, y float64, _ any) []float64 {
			return array.Each(len(x), func(i int) float64 { return math.Exp(x[i] - y) })
		},
		over: overDims,
	}.eval(),
	Source: "aten/src/ATen/native/ReduceOps.cpp: logsumexp_out_impl; torch/csrc/autograd/FunctionsManual.cpp: logsumexp_backward",
})
