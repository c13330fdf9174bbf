package aten

import (
	"errors"
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// binaryFunction is a row of a pointwise function of two or three tensors. A
// gradient that is "grad" is the incoming one.
type binaryFunction struct {
	name, sig string
	args      any
	cast      op.CastPolicy
	float     bool // integers become float32
	save      []op.Save
	node      string
	grads     []string // of the inputs, by the order in which they are computed
	order     []int
	values    op.Elements
}

func (f binaryFunction) define() *op.Op {
	var formulas [3]*op.Formula
	for k, g := range f.grads {
		formulas[f.order[k]] = parseFormula(g)
	}
	node := f.node
	if node == "" {
		node = op.NodeName(f.name)
	}
	r := op.Op{
		Name: f.name, Sig: f.sig, Args: f.args, Cast: f.cast, Save: f.save, Node: node, Run: func(c *op.Call) {
			c.Return(c.New(c.Elementwise(c.In...), promoted(c, f.float)))
		},
		Grad: func(b *op.Back) {
			for _, i := range f.order {
				if b.Need(i) {
					formulas[i].Grad(b, i)
				}
			}
		},
		Eval:   f.values.Derived(formulas),
		Source: "tools/autograd/derivatives.yaml: " + f.name,
	}
	return define(r)
}

// promoted is the type of a result over all inputs and the number among the
// arguments; with float, integers become float32.
func promoted(c *op.Call, float bool) tensor.DType {
	var n op.Number
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
		name: "hypot", sig: "torch.hypot(input, other)", save: []op.Save{op.In(1, 1), op.In(0, 0), op.Out(0)},
		grads: []string{"grad * (other / result)", "grad * (self / result)"}, order: []int{1, 0},
		values: op.Two(math.Hypot),
	}.define().Taking(op.Floats)
	Logaddexp = binaryFunction{
		name: "logaddexp", sig: "torch.logaddexp(input, other)", save: []op.Save{op.In(1), op.In(0)},
		grads: []string{"grad / (1 + exp(self - other))", "grad / (1 + exp(other - self))"}, order: []int{1, 0},
		values: op.Two(logaddexp),
	}.define().Taking(op.Floats)
	Fmod = binaryFunction{
		name: "fmod", sig: "torch.fmod(input, other: operand)", args: &BinaryArgs{}, save: []op.Save{op.In(1, 1), op.In(0, 1)},
		grads: []string{"-grad * self.div_trunc(other)", "grad"}, order: []int{1, 0},
		values: op.Two(math.Mod),
	}.define()
	Remainder = binaryFunction{
		name: "remainder", sig: "% remainder(input, other: operand)", args: &BinaryArgs{}, save: []op.Save{op.In(1, 1), op.In(0, 1)},
		grads: []string{"-grad * self.div_floor(other)", "grad"}, order: []int{1, 0},
		values: op.Two(remainder),
	}.define()
	Addcmul = binaryFunction{
		name: "addcmul", sig: "torch.addcmul(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: op.CastPromote,
		save: []op.Save{op.In(1, 2), op.In(2, 1)}, grads: []string{"grad", "grad * (tensor2 * value)", "grad * (tensor1 * value)"}, order: []int{0, 1, 2},
		values: op.Elements{Of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]*x[2] }, Param: valueOf},
	}.define()
	Addcdiv = binaryFunction{
		name: "addcdiv", sig: "torch.addcdiv(input, tensor1, tensor2, *, value: float = 1.0)", args: &ValueArgs{}, cast: op.CastPromote,
		save:  []op.Save{op.In(1, 2), op.In(2, 1, 2)},
		grads: []string{"grad", "grad * (value / tensor2)", "-grad * (value * tensor1 / (tensor2 * tensor2))"}, order: []int{0, 1, 2},
		values: op.Elements{Of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]/x[2] }, Param: valueOf},
	}.define().Taking(op.Floats)
	Lerp = binaryFunction{ // a number as the weight is the row's own argument
		name: "lerp", sig: "torch.lerp(input, end, weight: operand)", args: &LerpArgs{}, save: []op.Save{op.In(1, 2), op.In(0, 2), op.In(2, 0, 1)},
		grads: []string{"grad * weight", "grad * (1 - weight)", "grad * (end - self)"}, order: []int{1, 0, 2},
		values: op.Elements{
			Of:     func(x [3]float64, _ float64) float64 { return x[0] + x[2]*(x[1]-x[0]) },
			Number: func(args any) op.Number { return args.(*LerpArgs).Weight }, At: 2,
		},
	}.define().Taking(op.Floats)
	// What floors has no derivative; PyTorch says so in the backward pass.
	FloorDivide = define(op.Op{
		Name: "floor_divide", Sig: "// floor_divide(input, other: operand)", Args: &BinaryArgs{}, Run: func(c *op.Call) {
			for _, t := range c.In {
				if c.NeedsGrad(t) {
					c.Fail("the derivative for aten::floor_divide is not implemented, PyTorch says; detach its operands")
				}
			}
			c.Return(c.New(c.Elementwise(c.In...), promoted(c, false)))
		},
		Eval: (&op.Eval{Forward: func(m op.Machine, c *op.Call) error {
			n := c.Args.(*BinaryArgs).Other
			if c.Opt(1) != nil || c.In[0].DType.IsFloating() || c.Out[0].DType != c.In[0].DType || n.Value == 0 || n.Value != math.Trunc(n.Value) {
				return op.ErrView
			}
			return m.Apply(kernel.FloorDivide, c.Out[0], c.In[:1], n.Value)
		}}).Otherwise(op.Two(floorDivide).Eval()),
		Source: "tools/autograd/derivatives.yaml: floor_divide",
	})
	Atan2 = define(op.Op{
		Name: "atan2", Sig: "torch.atan2(input, other)", Cast: op.CastPromote, Run: func(c *op.Call) {
			c.Return(c.New(c.Elementwise(c.In...), promoted(c, true)))
		},
		Save: []op.Save{op.In(1), op.In(0)}, Node: "Atan2Backward0", Grad: gradAtan2,
		Eval: op.Two(math.Atan2).Derived([3]*op.Formula{
			parseFormula("grad * other * (self * self + other * other).reciprocal()"),
			parseFormula("grad * -self * (self * self + other * other).reciprocal()"),
		}),
		Source: "torch/csrc/autograd/FunctionsManual.cpp: atan2_backward",
	})
)

// squares is the sum of squares in the derivative of atan2.
var squares = parseFormula("(self * self + other * other).reciprocal()")

func gradAtan2(b *op.Back) {
	mark := b.Mark()
	recip := b.Keep(squares.Value(b))
	b.DropTo(mark)
	b.Local(recip)
	product := func(i int, t *op.Tensor) {
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
	Weight op.Number `arg:"weight"`
}

// The bitwise operators, on integers and masks.
var (
	BitwiseAnd = bitwise("bitwise_and", "& bitwise_and(input, other: operand)", &BinaryArgs{}, mapping(kernel.Mul, bools).Otherwise(op.Whole(func(a, b int64) int64 { return a & b }).Eval()))
	BitwiseOr  = bitwise("bitwise_or", "| bitwise_or(input, other: operand)", &BinaryArgs{}, mapping(kernel.Maximum, bools).Otherwise(op.Whole(func(a, b int64) int64 { return a | b }).Eval()))
	BitwiseXor = bitwise("bitwise_xor", "^ bitwise_xor(input, other: operand)", &BinaryArgs{}, mapping(kernel.Ne, bools).Otherwise(op.Whole(func(a, b int64) int64 { return a ^ b }).Eval()))
	BitwiseNot = bitwise("bitwise_not", "torch.bitwise_not(input)", nil, evalNot)
)

// evalNot is that of bools, or of the bits of integers.
var evalNot = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	if c.In[0].DType == tensor.Bool {
		return m.Apply(kernel.EqScalar, c.Out[0], c.In, 0)
	}
	return m.Apply(kernel.Affine, c.Out[0], c.In, -1, -1)
}}

func bitwise(name, sig string, args any, eval *op.Eval) *op.Op {
	return define(op.Op{Name: name, Sig: sig, Args: args, Eval: eval, Run: func(c *op.Call) {
		d := promoted(c, false)
		if d.IsFloating() {
			c.Fail("%s needs integers or bools, not %v", name, d)
		}
		c.Return(c.New(c.Elementwise(c.In...), d))
	}})
}

// truth defines an operator on any types whose result is bool.
func truth(name, params string, eval *op.Eval) *op.Op {
	return define(op.Op{Name: name, Eval: eval, Sig: "torch." + name + params, Run: func(c *op.Call) {
		c.Return(c.New(c.Elementwise(c.In...), tensor.Bool))
	}})
}

// The operators of truth.
var (
	LogicalAnd = truth("logical_and", "(input, other)", mapping(kernel.Mul, bools).Otherwise(op.Two(func(a, b float64) float64 { return array.Truth(a != 0 && b != 0) }).Eval()))
	LogicalOr  = truth("logical_or", "(input, other)", mapping(kernel.Maximum, bools).Otherwise(op.Two(func(a, b float64) float64 { return array.Truth(a != 0 || b != 0) }).Eval()))
	LogicalXor = truth("logical_xor", "(input, other)", mapping(kernel.Ne, bools).Otherwise(op.Two(func(a, b float64) float64 { return array.Truth((a != 0) != (b != 0)) }).Eval()))
	LogicalNot = truth("logical_not", "(input)", evalLogicalNot)
	IsNaN      = truth("isnan", "(input)", op.Single(func(x float64) float64 { return array.Truth(math.IsNaN(x)) }).Eval())
)

var evalLogicalNot = &op.Eval{Single: true, Forward: func(m op.Machine, c *op.Call) error {
	return m.Apply(kernel.EqScalar, c.Out[0], c.In, 0)
}}

// larger defines maximum or minimum. Where both sides are equal each gets half
// of the gradient.
func larger(name, node string, k *kernel.Kernel, first func(a, b float64) bool) *op.Op {
	// The gradient of one operand, which the other is compared with.
	grad := func(m op.Machine, b *op.Back, i int) error {
		y := m.Wanted(b, i)
		if y == nil {
			return nil
		}
		self, other := b.SavedIn(i), b.SavedIn(1-i)
		if k == kernel.Maximum {
			self, other = other, self
		}
		return m.Apply(kernel.MinimumGrad, y, []*op.Tensor{b.Grads[0], self, other})
	}
	kernels := (&op.Eval{
		Single:  true,
		Forward: func(m op.Machine, c *op.Call) error { return m.Apply(k, c.Target(), c.In) },
		Backward: func(m op.Machine, b *op.Back) error {
			for i := range b.Results {
				if y := m.Wanted(b, i); y != nil && (y.Size != b.OutM[0].Size || !y.DType.IsFloating()) {
					return op.ErrView
				}
			}
			return errors.Join(grad(m, b, 0), grad(m, b, 1))
		},
	}).When(alike(0))
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(input, other)", Run: func(c *op.Call) {
			c.Return(c.New(c.Elementwise(c.In...), resultType(c.In[0], c.In[1], op.Number{})))
		},
		Save: []op.Save{op.In(1), op.In(0)}, Node: node,
		Grad: func(b *op.Back) { // where(self == other, grad / 2, grad).masked_fill_(self < other, 0)
			g := b.Grads[0]
			for i := 1; i >= 0; i-- {
				if !b.Need(i) {
					continue
				}
				mark := b.Mark()
				half := b.Local(b.Do1(MulScalar, nil, g))
				l := b.Elementwise(b.SavedIns()...)
				equal := b.Local(b.New(l, tensor.Bool))
				b.Set(i, b.Do1(WhereSelf, nil, equal, half, g))
				b.Local(b.New(l, tensor.Bool))
				b.DropTo(mark)
			}
		},
		Eval: kernels.Otherwise(op.Two(func(a, b float64) float64 { return extremeOf(a, b, first(a, b)) },
			func(x [3]float64, _, _ float64) float64 { return share(!first(x[1], x[0]), x[0], x[1]) },
			func(x [3]float64, _, _ float64) float64 { return share(!first(x[0], x[1]), x[0], x[1]) }).Eval()),
		Source: "tools/autograd/derivatives.yaml: maximum, minimum",
	})
}

// The larger and the smaller of two.
var (
	Maximum = larger("maximum", "MaximumBackward0", kernel.Maximum, func(a, b float64) bool { return a > b })
	Minimum = larger("minimum", "MinimumBackward0", kernel.Minimum, func(a, b float64) bool { return a < b })
)

// share is the part of the gradient that an operand of maximum or minimum gets.
func share(wins bool, a, b float64) float64 {
	if a == b {
		return 0.5
	}
	return array.Truth(wins)
}

// extremeOf keeps a NaN.
func extremeOf(a, b float64, first bool) float64 {
	switch {
	case math.IsNaN(a):
		return a
	case math.IsNaN(b):
		return b
	case first:
		return a
	}
	return b
}
