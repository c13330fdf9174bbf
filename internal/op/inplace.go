package op

// inPlaceOriginal defines the in-place form of a pointwise function whose
// derivative needs what was overwritten: autograd clones the input first.
func inPlaceOriginal(of *Op, grad func(*Back)) *Op {
	return define(Op{
		Name: of.Name + "_", Of: of, Args: of.Args, Run: func(*Call) {}, InPlace: true, Save: []Save{In(0)}, Grad: grad, Eval: of.Eval, Node: of.Node,
		Source: "tools/autograd/derivatives.yaml: no formula of its own in terms of the result; gen_variable_type.py: original_self",
	})
}

// The in-place forms of activations that save a copy of their input.
var (
	HardtanhInPlace    = inPlaceOriginal(Hardtanh, gradMap)
	HardswishInPlace   = inPlaceOriginal(Hardswish, gradMap)
	HardsigmoidInPlace = inPlaceOriginal(Hardsigmoid, gradMap)
	SiluInPlace        = inPlaceOriginal(Silu, gradMap)
	MishInPlace        = inPlaceOriginal(Mish, gradMap)
)

// dropoutInPlace multiplies its input by noise of the same type, which
// autograd keeps.
var _ = define(Op{
	Name: "dropout_", Of: Dropout, Args: &DropoutArgs{}, Composite: true,
	Run: func(c *Call) {
		a, x := c.Args.(*DropoutArgs), c.In[0]
		if !c.drops(a) {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(MulInPlace, &BinaryArgs{}, x, c.Local(c.noise(a, x.LikeDense()))))
	},
	Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<inplace>",
})
