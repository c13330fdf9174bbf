package aten

import "github.com/memplan/memplan/internal/op"

// Tensor.requires_grad_ makes its input one whose gradient is wanted. A result of
// operators that require grad is left as it is.
var RequiresGrad = define(op.Op{
	Name: "requires_grad_", Sig: "Tensor.requires_grad_(self)", Composite: true,
	Run: func(c *op.Call) {
		if !c.In[0].DType.IsFloating() {
			c.Fail("only tensors of floating-point types can require gradients, not %v", c.In[0].DType)
		}
		c.RequireGrad(c.In[0])
		c.ReturnSelf(0)
	},
	Source: "torch/csrc/autograd/VariableTypeManual.cpp: requires_grad_",
})
