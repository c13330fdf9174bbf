package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

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
	values    elements
}

func (f binaryFunction) define() *Op {
	var formulas [3]*formula
	for k, g := range f.grads {
		formulas[f.order[k]] = parseFormula(g)
	}
	node := f.node
	if node == "" {
		node = nodeName(f.name)
	}
	r := Op{
		Name: f.name, Sig: f.sig, Args: f.args, Cast: f.cast, Save: f.save, Node: node, Run: func(c *Call) {
			c.Return(c.New(c.elementwise(c.In...), c.promoted(f.float)))
		},
		Grad: func(b *Back) {
			for _, i := range f.order {
				if b.Need(i) {
					formulas[i].grad(b, i)
				}
			}
		},
		Eval:   f.values.derived(formulas),
		Source: "tools/autograd/derivatives.yaml: " + f.name,
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
		grads: []string{"grad * (other / result)", "grad * (self / result)"}, order: []int{1, 0},
		values: two(math.Hypot),
	}.define().takes((*Call).floats)
	Logaddexp = binaryFunction{
		name: "logaddexp", sig: "torch.logaddexp(input, other)", save: []Save{In(1), In(0)},
		grads: []string{"grad / (1 + exp(self - other))", "grad / (1 + exp(other - self))"}, order: []int{1, 0},
		values: two(logaddexp),
	}.define().takes((*Call).floats)
	Fmod = binaryFunction{
		name: "fmod", sig: "torch.fmod(input, other: operand)", args: &BinaryArgs{}, save: []Save{In(1, 1), In(0, 1)},
		grads: []string{"-grad * self.div_trunc(other)", "grad"}, order: []int{1, 0},
		values: two(math.Mod),
	}.define()
	Remainder = binaryFunction{
		name: "remainder", sig: "% remainder(input, other: operand)", args: &BinaryArgs{}, save: []Save{In(1, 1), In(0, 1)},
		grads: []string{"-grad * self.div_floor(other)", "grad"}, order: []int{1, 0},
		values: two(remainder),
	}.define()
	Addcmul = binaryFunction{
		name: "addcmul", sig: "torch.addcmul(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: CastPromote,
		save: []Save{In(1, 2), In(2, 1)}, grads: []string{"grad", "grad * (tensor2 * value)", "grad * (tensor1 * value)"}, order: []int{0, 1, 2},
		values: elements{of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]*x[2] }, param: valueOf},
	}.define()
	Addcdiv = binaryFunction{
		name: "addcdiv", sig: "torch.addcdiv(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: CastPromote,
		save:  []Save{In(1, 2), In(2, 1, 2)},
		grads: []string{"grad", "grad * (value / tensor2)", "-grad * (value * tensor1 / (tensor2 * tensor2))"}, order: []int{0, 1, 2},
		values: elements{of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]/x[2] }, param: valueOf},
	}.define().takes((*Call).floats)
	Lerp = binaryFunction{ // a number as the weight is the row's own argument
		name: "lerp", sig: "torch.lerp(input, end, weight: operand)", args: &LerpArgs{}, save: []Save{In(1, 2), In(0, 2), In(2, 0, 1)},
		grads: []string{"grad * weight", "grad * (1 - weight)", "grad * (end - self)"}, order: []int{1, 0, 2},
		values: elements{
			of:     func(x [3]float64, _ float64) float64 { return x[0] + x[2]*(x[1]-x[0]) },
			number: func(args any) Number { return args.(*LerpArgs).Weight }, at: 2,
		},
	}.define().takes((*Call).floats)
	// What floors has no derivative; PyTorch says so in the backward pass.
	FloorDivide = define(Op{
		Name: "floor_divide", Sig: "// floor_divide(input, other: operand)", Args: &BinaryArgs{}, Run: func(c *Call) {
			for _, t := range c.In {
				if c.NeedsGrad(t) {
					c.Fail("the derivative for aten::floor_divide is not implemented, PyTorch says; detach its operands")
				}
			}
			c.Return(c.New(c.elementwise(c.In...), c.promoted(false)))
		},
		Eval:   two(floorDivide).eval(),
		Source: "tools/autograd/derivatives.yaml: floor_divide",
	})
	Atan2 = define(Op{
		Name: "atan2", Sig: "torch.atan2(input, other)", Cast: CastPromote, Run: func(c *Call) {
			c.Return(c.New(c.elementwise(c.In...), c.promoted(true)))
		},
		Save: []Save{In(1), In(0)}, Node: "Atan2Backward0", Grad: gradAtan2,
		Eval: two(math.Atan2).derived([3]*formula{
			parseFormula("grad * other * (self * self + other * other).reciprocal()"),
			parseFormula("grad * -self * (self * self + other * other).reciprocal()"),
		}),
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
		product(0, b.SavedIn(1))
	}
	if b.Need(1) { // grad * -self * recip
		product(1, b.Local(b.NewLike(b.SavedIn(0))))
	}
}

// logaddexp is log(exp(a) + exp(b)).
func logaddexp(a, b float64) float64 {
	if math.IsInf(a, 0) && a == b {
		return a
	}
	return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b)))
}

// remainder has the sign of b, as Python's %.
func remainder(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// floorDivide is Python's // (c10/util/generic_math.h: div_floor_floating).
func floorDivide(a, b float64) float64 {
	if b == 0 {
		return a / b
	}
	q := (a - math.Mod(a, b)) / b
	if m := math.Mod(a, b); m != 0 && (b < 0) != (m < 0) {
		q--
	}
	if q == 0 {
		return math.Copysign(0, a/b)
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f
}

// valueOf is the factor among the arguments.
func valueOf(args any) float64 { return args.(*ValueArgs).Value }

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
	BitwiseAnd = bitwise("bitwise_and", "& bitwise_and(input, other: operand)", whole(func(a, b int64) int64 { return a & b }).eval())
	BitwiseOr  = bitwise("bitwise_or", "| bitwise_or(input, other: operand)", whole(func(a, b int64) int64 { return a | b }).eval())
	BitwiseXor = bitwise("bitwise_xor", "^ bitwise_xor(input, other: operand)", whole(func(a, b int64) int64 { return a ^ b }).eval())
	BitwiseNot = bitwise("bitwise_not", "torch.bitwise_not(input)", evalNot)
)

// evalNot is that of bools, or of the bits of integers.
var evalNot = aside(func(a Arrays, c *Call) {
	x := a.Get(c.In[0])
	for i, v := range x {
		if c.In[0].DType == tensor.Bool {
			x[i] = array.Truth(v == 0)
		} else {
			x[i] = float64(^int64(v))
		}
	}
	a.Put(c.Out[0], x)
}, nil)

func bitwise(name, sig string, eval *Eval) *Op {
	var args any
	if len(sig) > 2 && sig[1] == ' ' {
		args = &BinaryArgs{}
	}
	return define(Op{Name: name, Sig: sig, Args: args, Eval: eval, Run: func(c *Call) {
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
	IsFinite = define(Op{
		Name: "isfinite", Eval: single(func(x float64) float64 { return array.Truth(isFiniteNumber(x)) }).eval(), Sig: "torch.isfinite(input)", Run: func(c *Call) {
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
	Isinf = define(Op{
		Name: "isinf", Eval: single(func(x float64) float64 { return array.Truth(math.IsInf(x, 0)) }).eval(), Sig: "torch.isinf(input)", Run: func(c *Call) {
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
