package op

// Application is one call of a torch.autograd.Function, which the player of the
// call makes.
type Application interface {
	// Forward plays the function's forward without gradients and returns its
	// results, then whatever else it saves or keeps.
	Forward(c *Call)
	// Materialize makes the gradients that did not come, before what was saved is unpacked.
	Materialize(b *Back)
	// Backward plays its backward and sets the gradients of the inputs.
	Backward(b *Back)
}

// Function is the row of a torch.autograd.Function, which saves among what it
// returns. Its arguments are an Application; what it returns beyond its results,
// noGrad, has no gradient
// (torch/csrc/autograd/python_function.cpp: THPFunction_apply, PyNode::apply).
func Function(name string, save []Save, noGrad []int) *Op {
	return &Op{
		Name: name, Node: name + "Backward", Save: save, NoGrad: noGrad,
		Run:  func(c *Call) { c.Args.(Application).Forward(c) },
		Grad: func(b *Back) { b.Args.(Application).Backward(b) },
	}
}
