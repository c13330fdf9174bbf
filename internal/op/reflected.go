package op

// reflected are the operators that a number may stand on the left of, with the
// row that Python runs then on the tensor and the argument that takes the number.
var reflected = map[*Op]struct {
	row *Op
	arg string
}{
	Add: {Add, "other"}, Mul: {Mul, "other"}, Sub: {Sub, "left"}, Div: {DivideNumber, "other"},
	Pow: {PowBase, "base"},
}

// Reflected returns the row of number OPERATOR tensor and the argument that the
// number is; nil if there is none.
func Reflected(r *Op) (row *Op, arg string) {
	m := reflected[r]
	return m.row, m.arg
}

// Tensor.__rdiv__ is self.reciprocal() * number.
var DivideNumber = define(Op{
	Name: "rdiv", Args: &BinaryArgs{}, Composite: true, Run: func(c *Call) {
		inverse := c.Do1(Reciprocal, nil, c.In[0])
		c.Return(c.Do1(Mul, c.Args, inverse))
		c.Drop(inverse)
	},
	Source: "torch/_tensor.py: __rdiv__",
})

// Rsub is other - input.
var Rsub = define(Op{
	Name: "rsub", Sig: "torch.rsub(input, other: operand)", Args: &BinaryArgs{}, Node: "RsubBackward0",
	Run: func(c *Call) { binaryKernel(c, c.Opt(1), c.In[0]) }, // at::sub(other, self)
	Grad: func(b *Back) {
		if b.Need(1) {
			b.Pass(1)
		}
		if b.Need(0) {
			b.Set(0, b.NewLike(b.Grads[0]))
		}
	},
	Eval:   two(func(a, b float64) float64 { return b - a }, func([3]float64, float64, float64) float64 { return -1 }, one).eval(),
	Source: "aten/src/ATen/native/BinaryOps.cpp: rsub",
})
