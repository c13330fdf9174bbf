package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// NanSum is the sum of the elements that are numbers, over some or all dimensions.
// Integers are summed in int64.
var NanSum = define(Op{
	Name: "nansum", Sig: "torch.nansum(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{},
	Run: func(c *Call) {
		d := c.In[0].DType
		if !d.IsFloating() {
			d = tensor.Int64
		}
		c.Return(c.reduce(d))
	},
	Save: []Save{In(0)}, Node: "NansumBackward0",
	Grad: func(b *Back) { // sum_backward * self.isnan().logical_not()
		g := b.Local(b.gradExpand())
		nan := b.Local(b.Do1(IsNaN, nil, b.SavedIn(0)))
		b.Set(0, b.Do1(MulTensor, nil, g, b.Local(b.Do1(LogicalNot, nil, nan))))
	},
	Eval: statistic{
		of: func(x []float64, _ any) float64 {
			sum := 0.0
			for _, v := range x {
				if !math.IsNaN(v) {
					sum += v
				}
			}
			return sum
		},
		slopes: func(x []float64, _ float64, _ any) []float64 {
			return array.Each(len(x), func(i int) float64 { return array.Truth(!math.IsNaN(x[i])) })
		},
		over: overDims,
	}.eval(),
	Source: "aten/src/ATen/native/ReduceOps.cpp: nansum_out; torch/csrc/autograd/FunctionsManual.cpp: nansum_backward",
})
