package op

import "github.com/memplan/memplan/internal/tensor"

// binaryFunction is a row of a pointwise function of two or three tensors. A
// gradient that is "grad" is the incoming one.
type binaryFunction struct {
	name, sig string
	args      any
	cast      CastPolicy
	float     bool // integers become float32
	save      []Save
	node      string
	grads     []string // of the inputs, by the order in which they are computed
	order     []int
}

func (f binaryFunction) define() *Row {
	var formulas []*formula
	for _, g := range f.grads {
		formulas = append(formulas, parseFormula(g))
	}
	node := f.node
	if node == "" {
		node = nodeName(f.name)
	}
	r := Row{
		Name: f.name, Sig: f.sig, Args: f.args, Cast: f.cast, Save: f.save, Node: node, Run: func(c *Call) {
			c.Return(c.New(c.elementwise(c.In...), c.promoted(f.float)))
		},
		Source: "tools/autograd/derivatives.yaml: " + f.name,
	}
	if formulas != nil {
		r.Grad = func(b *Back) {
			for k, i := range f.order {
				if b.Need(i) {
					formulas[k].grad(b, i)
				}
			}
		}
	}
	return define(r)
}

// promoted is the type of a result over all inputs and the number among the
// arguments; with float, integers become float32.
func (c *Call) promoted(float bool) tensor.DType {
	var n Number
	if a, ok := c.Args.(*BinaryArgs); ok && a != nil {
		n = a.Other
	}
	d := c.In[0].DType
	if c.Opt(1) != nil || n.Set {
		d = resultType(c.In[0], c.Opt(1), n)
	}
	if t := c.Opt(2); t != nil {
		d = tensor.Promote(d, t.DType)
	}
	if float {
		d = floatOf(d)
	}
	return d
}

// The pointwise functions of several tensors.
var (
	Hypot = binaryFunction{
		name: "hypot", sig: "torch.hypot(input, other)", save: []Save{In(1, 1), In(0, 0), Out(0)},
		grads: []string{"grad * other / result", "grad * self / result"}, order: []int{1, 0},
	}.define().takes((*Call).floats)
	Logaddexp = binaryFunction{
		name: "logaddexp", sig: "torch.logaddexp(input, other)", save: []Save{In(1), In(0)},
		grads: []string{"grad / (1 + exp(self - other))", "grad / (1 + exp(other - self))"}, order: []int{1, 0},
	}.define().takes((*Call).floats)
	Fmod = binaryFunction{
		name: "fmod", sig: "torch.fmod(input, other: operand)", args: &BinaryArgs{}, save: []Save{In(1, 1), In(0, 1)},
		grads: []string{"-grad * self.div(other)", "grad"}, order: []int{1, 0},
	}.define()
	Remainder = binaryFunction{
		name: "remainder", sig: "% remainder(input, other: operand)", args: &BinaryArgs{}, save: []Save{In(1, 1), In(0, 1)},
		grads: []string{"-grad * self.div(other)", "grad"}, order: []int{1, 0},
	}.define()
	Addcmul = binaryFunction{
		name: "addcmul", sig: "torch.addcmul(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: CastPromote,
		save: []Save{In(1, 2), In(2, 1)}, grads: []string{"grad", "grad * (tensor2 * 1)", "grad * (tensor1 * 1)"}, order: []int{0, 1, 2},
	}.define()
	Addcdiv = binaryFunction{
		name: "addcdiv", sig: "torch.addcdiv(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: CastPromote,
		save:  []Save{In(1, 2), In(2, 1, 2)},
		grads: []string{"grad", "grad * (1 / tensor2)", "-grad * (1 * tensor1 / (tensor2 * tensor2))"}, order: []int{0, 1, 2},
	}.define().takes((*Call).floats)
	Lerp = binaryFunction{ // a number as the weight is the row's own argument
		name: "lerp", sig: "torch.lerp(input, end, weight: operand)", args: &LerpArgs{}, save: []Save{In(1, 2), In(0, 2), In(2, 0, 1)},
		grads: []string{"grad * tensor2", "grad * (1 - tensor2)", "grad * (other - self)"}, order: []int{1, 0, 2},
	}.define().takes((*Call).floats)
	// What floors has no derivative; PyTorch says so in the backward pass.
	FloorDivide = define(Row{
		Name: "floor_divide", Sig: "// floor_divide(input, other: operand)", Args: &BinaryArgs{}, Run: func(c *Call) {
			for _, t := range c.In {
				if c.NeedsGrad(t) {
					c.Fail("the derivative for aten::floor_divide is not implemented, PyTorch says; detach its operands")
				}
			}
			c.Return(c.New(c.elementwise(c.In...), c.promoted(false)))
		},
		Source: "tools/autograd/derivatives.yaml: floor_divide",
	})
	Atan2 = define(Row{
		Name: "atan2", Sig: "torch.atan2(input, other)", Cast: CastPromote, Run: func(c *Call) {
			c.Return(c.New(c.elementwise(c.In...), c.promoted(true)))
		},
		Save: []Save{In(1), In(0)}, Node: "Atan2Backward0", Grad: gradAtan2,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: atan2_backward",
	})
)

// squares is the sum of squares in the derivative of atan2.
var squares = parseFormula("(self * self + other * other).reciprocal()")

func gradAtan2(b *Back) {
	mark := b.Mark()
	recip := b.Keep(squares.value(b))
	b.DropTo(mark)
	b.Local(recip)
	product := func(i int, t *Tensor) {
		p := b.Local(b.Do1(MulTensor, nil, b.Grads[0], t))
		b.Set(i, b.Do1(MulTensor, nil, p, recip))
	}
	if b.Need(0) { // grad * other * recip
		product(0, b.SavedIn[1])
	}
	if b.Need(1) { // grad * -self * recip
		product(1, b.Local(b.NewLike(b.SavedIn[0])))
	}
}

// ValueArgs is the factor of addcmul and addcdiv.
type ValueArgs struct {
	Value float64 `arg:"value"`
}

// LerpArgs is the weight of lerp where it is a number.
type LerpArgs struct {
	Weight Number `arg:"weight"`
}

// The bitwise operators, on integers and masks.
var (
	BitwiseAnd = bitwise("bitwise_and", "& bitwise_and(input, other: operand)")
	BitwiseOr  = bitwise("bitwise_or", "| bitwise_or(input, other: operand)")
	BitwiseXor = bitwise("bitwise_xor", "^ bitwise_xor(input, other: operand)")
	BitwiseNot = bitwise("bitwise_not", "torch.bitwise_not(input)")
)

func bitwise(name, sig string) *Row {
	var args any
	if len(sig) > 2 && sig[1] == ' ' {
		args = &BinaryArgs{}
	}
	return define(Row{Name: name, Sig: sig, Args: args, Run: func(c *Call) {
		d := c.promoted(false)
		if d.IsFloating() {
			c.Fail("%s needs integers or bools, not %v", name, d)
		}
		c.Return(c.New(c.elementwise(c.In...), d))
	}})
}

// isFinite is (self == self) * (self.abs() != inf), isInf self.abs() == inf;
// integers are filled in.
var (
	IsFinite = define(Row{
		Name: "isfinite", Sig: "torch.isfinite(input)", Run: func(c *Call) {
			x := c.In[0]
			flags := func() *Tensor { return c.New(x.LikeDense(), tensor.Bool) }
			if x.DType.IsFloating() {
				c.Local(c.NewLike(x))
				c.filled(x.DType)
				c.Local(flags())
				c.Local(flags())
			}
			c.Return(flags())
		},
		Source: "aten/src/ATen/native/TensorCompare.cpp: isfinite",
	})
	Isinf = define(Row{
		Name: "isinf", Sig: "torch.isinf(input)", Run: func(c *Call) {
			x := c.In[0]
			if x.DType.IsFloating() {
				c.Local(c.NewLike(x))
				c.filled(x.DType)
			}
			c.Return(c.New(x.LikeDense(), tensor.Bool))
		},
		Source: "aten/src/ATen/native/TensorCompare.cpp: isinf",
	})
)
