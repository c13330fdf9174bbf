package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// quantifier defines a reduction of a bool tensor to bool.
func quantifier(name string, all bool) *Op {
	return define(Op{
		Name: name, Sig: "torch." + name + "(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{}, Run: func(c *Call) {
			if c.In[0].DType != tensor.Bool {
				c.Fail("%s of %v is not modelled; compare first", name, c.In[0].DType)
			}
			c.Return(c.reduce(tensor.Bool))
		},
		Eval:   statistic{of: func(x []float64, _ any) float64 { return array.Truth(array.Quantified(x, all)) }, over: overDims}.eval(),
		Source: "aten/src/ATen/native/cuda/ReduceLogicKernel.cu: gpu_reduce_kernel<scalar_t, bool>",
	})
}

// The quantifiers over masks.
var (
	All = quantifier("all", true)
	Any = quantifier("any", false)
)
