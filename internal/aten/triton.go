package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Libraries whose kernels are written in Triton allocate in Python; what the kernels
// compute memplan does not know.

// LaunchArgs names a kernel.
type LaunchArgs struct {
	Kernel string `arg:"kernel"`
}

// Launch runs a kernel that writes into its operand and allocates nothing.
var Launch = define(op.Op{
	Name: "launch", Sig: "launch(output, kernel: str)", Args: &LaunchArgs{}, Run: func(c *op.Call) { c.ReturnSelf(0) },
	Eval: &op.Eval{Over: true, Forward: func(op.Machine, *op.Call) error {
		return &op.Refusal{What: "what the kernel of another library computes"}
	}},
})

// EmptyPerMultiprocessor is a tensor of float32 with so many numbers for each
// multiprocessor: the partial sums of a kernel that has one block on each.
var EmptyPerMultiprocessor = define(op.Op{
	Name: "empty_per_multiprocessor", Sig: "empty_per_multiprocessor(*size: ints)", Args: &FillArgs{}, Run: func(c *op.Call) {
		filledOf(c, &FillArgs{Size: append([]int64{int64(c.Env().SMs)}, c.Args.(*FillArgs).Size...)}, tensor.Float32)
	},
	Eval: op.Constant(0),
})

// RequireHalf is the check of a kernel that takes float16 and bfloat16 alone.
var RequireHalf = define(op.Op{
	Name: "require_half", Sig: "require_half(input, kernel: str)", Args: &LaunchArgs{}, Run: func(c *op.Call) {
		if d := c.In[0].DType; !d.IsHalf() {
			c.Fail("%s takes float16 and bfloat16, not %v; load the weights in one of these", c.Args.(*LaunchArgs).Kernel, d)
		}
		c.ReturnSelf(0)
	},
	Eval: &op.Eval{Over: true, Forward: func(op.Machine, *op.Call) error { return nil }},
})
