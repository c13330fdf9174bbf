package aten

import (
	"errors"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// BinaryArgs is the right-hand side of an arithmetic operator when it is a
// number.
type BinaryArgs struct {
	Other op.Number `arg:"other"`
	Left  op.Number `arg:"left"` // a number on the left: 1 - x
}

// Operand implements Operand.
func (a *BinaryArgs) Operand() op.Number {
	if a == nil {
		return op.Number{}
	}
	return a.Other
}

// AddArgs are the arguments of add.
type AddArgs = BinaryArgs

// resultType is the type of an arithmetic result. A number is weak: it changes
// the type only if it is of a higher category than the tensor (integers become
// the default float32 beside a float); so is a tensor without dimensions.
func resultType(a, b *op.Tensor, n op.Number) tensor.DType {
	if b == nil {
		return weak(a.DType, n)
	}
	if (a.Rank() == 0) != (b.Rank() == 0) {
		strong, w := a, b
		if a.Rank() == 0 {
			strong, w = b, a
		}
		if strong.DType.IsFloating() || (!w.DType.IsFloating() && strong.DType != tensor.Bool) {
			return strong.DType
		}
		return w.DType
	}
	return tensor.Promote(a.DType, b.DType)
}

// weak is the type of a tensor of type d beside a number.
func weak(d tensor.DType, n op.Number) tensor.DType {
	switch {
	case n.Float && !d.IsFloating():
		return tensor.Float32
	case d == tensor.Bool && !n.Float && !n.Bool:
		return tensor.Int64
	}
	return d
}

// arithmetic is the Run of a binary kernel.
func arithmetic(c *op.Call) { binaryKernel(c, c.In[0], c.Opt(1)) }

// binaryKernel computes a result over tensors in the order in which the kernel
// takes them: the first decides the order of the result's dimensions.
func binaryKernel(c *op.Call, a, b *op.Tensor) {
	var n op.Number
	if args, ok := c.Args.(*BinaryArgs); ok && args != nil {
		n = args.Other
		if args.Left.Set {
			n = args.Left
		}
	}
	c.Return(c.New(c.Elementwise(a, b), resultType(c.In[0], c.Opt(1), n)))
}

// Add is a + b; the gradient goes to both sides as it is.
var Add = define(op.Op{
	Name: "add", Eval: evalAdd, Sig: "+ add(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic,
	Node: "AddBackward0", Grad: passBoth,
})

// passBoth hands the incoming gradient to every input that wants one.
func passBoth(b *op.Back) {
	for i := range b.Needs {
		if b.Need(i) {
			b.Pass(i)
		}
	}
}

// AddInPlace is a += b.
var AddInPlace = define(op.Op{
	Name: "add_", Eval: evalAdd, Of: Add, Args: &BinaryArgs{}, Run: func(c *op.Call) { checkInPlace(c) }, InPlace: true,
	Node: "AddBackward0", Grad: passBoth,
})

// checkInPlace refuses an in-place result that would have to grow.
func checkInPlace(c *op.Call) {
	if b := c.Opt(1); b != nil {
		l := c.Elementwise(c.In[0], b)
		if l.Size != c.In[0].Size {
			c.Fail("an in-place result of shape %v cannot take the broadcast shape %v", c.In[0].Size, l.Size)
		}
	}
}

// Sub is a - b; the gradient of b is negated.
var (
	Sub = define(op.Op{
		Name: "sub", Eval: evalSub, Sig: "- sub(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic, Node: "SubBackward0", Grad: gradSub,
	})
	SubInPlace = define(op.Op{
		Name: "sub_", Eval: evalSub, Of: Sub, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true, Node: "SubBackward0", Grad: gradSub,
	})
)

func gradSub(b *op.Back) {
	if len(b.Needs) > 1 && b.Need(1) {
		b.Set(1, b.NewLike(b.Grads[0])) // maybe_multiply(-grad, alpha)
	}
	switch a, _ := b.Args.(*BinaryArgs); {
	case b.Need(0) && a != nil && a.Left.Set: // number - x
		b.Set(0, b.NewLike(b.Grads[0]))
	case b.Need(0):
		b.Pass(0)
	}
}

// Mul is a * b: each side is kept for the gradient of the other.
var (
	Mul = define(op.Op{
		Name: "mul", Eval: evalMul, Sig: "* mul(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic,
		Save: []op.Save{op.In(1, 0), op.In(0, 1)}, Node: "MulBackward0", Grad: gradMul,
	})
	MulInPlace = define(op.Op{
		Name: "mul_", Eval: evalMul, Of: Mul, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true,
		Save: []op.Save{op.In(1, 0), op.In(0, 1)}, Node: "MulBackward0", Grad: gradMul,
	})
	// MulScalar is the product with a number inside derivative formulas.
	MulScalar = define(op.Op{Name: "mul.Scalar", Args: &BinaryArgs{}, Run: mapOf})
	MulTensor = define(op.Op{Name: "mul.Tensor", Eval: &op.Eval{Forward: multiply}, Args: &BinaryArgs{}, Run: arithmetic})
	DivTensor = define(op.Op{Name: "div.Tensor", Eval: &op.Eval{Forward: quotient}, Args: &BinaryArgs{}, Run: arithmetic})
)

func gradMul(b *op.Back) { // mul_tensor_backward: grad * other, cast to the input's type
	for i := len(b.Needs) - 1; i >= 0; i-- {
		if b.Need(i) {
			var other *op.Tensor
			if len(b.Needs) > 1 {
				other = b.SavedIn(1 - i)
			}
			b.Set(i, gradTimes(b, b.Grads[0], other))
		}
	}
}

// gradTimes is grad * other, where a nil other is a number.
func gradTimes(b *op.Back, g, other *op.Tensor) *op.Tensor {
	if other == nil {
		return b.Do1(MulScalar, nil, g)
	}
	return b.Do1(MulTensor, nil, g, other)
}

// Div is a / b.
var (
	Div = define(op.Op{
		Name: "div", Eval: evalDiv, Sig: "/ div(input, other: operand)", Args: &BinaryArgs{}, Run: trueDiv,
		Save: []op.Save{op.In(1), op.In(0, 1)}, Node: "DivBackward0", Grad: gradDiv,
	})
	DivInPlace = define(op.Op{
		Name: "div_", Eval: evalDiv, Of: Div, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true,
		Save: []op.Save{op.In(1), op.In(0, 1)}, Node: "DivBackward0", Grad: gradDiv,
	})
)

// trueDiv divides; integers give float32.
func trueDiv(c *op.Call) {
	a, b := c.In[0], c.Opt(1)
	d := resultType(a, b, op.Number{Float: true})
	if !d.IsFloating() {
		d = tensor.Float32
	}
	c.Return(c.New(c.Elementwise(a, b), d))
}

func gradDiv(b *op.Back) {
	if b.Need(1) { // div_tensor_other_backward: -grad * ((self / other) / other)
		q := b.Local(b.Do1(DivTensor, nil, b.SavedIn(0), b.SavedIn(1))) // GCC computes the last argument first
		qq := b.Local(b.Do1(DivTensor, nil, q, b.SavedIn(1)))
		neg := b.Local(b.NewLike(b.Grads[0]))
		b.Set(1, b.Do1(MulTensor, nil, neg, qq))
		b.End()
	}
	if b.Need(0) { // div_tensor_self_backward: grad / other
		if b.SavedIn(1) != nil {
			b.Set(0, b.Do1(DivTensor, nil, b.Grads[0], b.SavedIn(1)))
		} else {
			b.Set(0, b.Do1(MulScalar, nil, b.Grads[0]))
		}
	}
}

// compare defines a comparison: a bool result without gradient.
func compare(name, sig string, tensors, number *kernel.Kernel) *op.Op {
	return define(op.Op{Name: name, Eval: comparison(tensors, number), Sig: sig, Args: &BinaryArgs{}, Run: func(c *op.Call) {
		c.Return(c.New(c.Elementwise(c.In[0], c.Opt(1)), tensor.Bool))
	}})
}

// The comparisons.
var (
	Equal        = compare("eq", "== eq(input, other: operand)", kernel.Eq, kernel.EqScalar)
	NotEqual     = compare("ne", "!= ne(input, other: operand)", kernel.Ne, kernel.NeScalar)
	Less         = compare("lt", "< lt(input, other: operand)", kernel.Lt, kernel.LtScalar)
	LessEqual    = compare("le", "<= le(input, other: operand)", kernel.Le, kernel.LeScalar)
	Greater      = compare("gt", "> gt(input, other: operand)", kernel.Gt, kernel.GtScalar)
	GreaterEqual = compare("ge", ">= ge(input, other: operand)", kernel.Ge, kernel.GeScalar)
)

// reflected are the operators that a number may stand on the left of, with the
// row that Python runs then on the tensor and the argument that takes the number.
var reflected = map[*op.Op]struct {
	row *op.Op
	arg string
}{
	Add: {Add, "other"}, Mul: {Mul, "other"}, Sub: {Sub, "left"}, Div: {DivideNumber, "other"},
	Pow: {PowBase, "base"},
}

// Reflected returns the row of number OPERATOR tensor and the argument that the
// number is; nil if there is none.
func Reflected(r *op.Op) (row *op.Op, arg string) {
	m := reflected[r]
	return m.row, m.arg
}

// Tensor.__rdiv__ is self.reciprocal() * number.
var DivideNumber = define(op.Op{
	Name: "rdiv", Args: &BinaryArgs{}, Composite: true, Run: func(c *op.Call) {
		inverse := c.Do1(Reciprocal, nil, c.In[0])
		c.Return(c.Do1(Mul, c.Args, inverse))
		c.Drop(inverse)
	},
	Source: "torch/_tensor.py: __rdiv__",
})

// Rsub is other - input.
var Rsub = define(op.Op{
	Name: "rsub", Sig: "torch.rsub(input, other: operand)", Args: &BinaryArgs{}, Node: "RsubBackward0",
	Run: func(c *op.Call) { binaryKernel(c, c.Opt(1), c.In[0]) }, // at::sub(other, self)
	Grad: func(b *op.Back) {
		if b.Need(1) {
			b.Pass(1)
		}
		if b.Need(0) {
			b.Set(0, b.NewLike(b.Grads[0]))
		}
	},
	Eval: &op.Eval{Forward: reversed, Backward: evalSub.Backward}, Source: "aten/src/ATen/native/BinaryOps.cpp: rsub",
})

// operand is the right-hand side of an arithmetic operator: a tensor, or a number,
// which may stand on the left.
func operand(c *op.Call) (t *op.Tensor, n float64, left bool) {
	if t := c.Opt(1); t != nil {
		return t, 0, false
	}
	a := c.Args.(*BinaryArgs)
	if a.Left.Set {
		return nil, a.Left.Value, true
	}
	return nil, a.Other.Value, false
}

// plus is a + alpha*b.
func plus(alpha float64) func(m op.Machine, c *op.Call) error {
	return func(m op.Machine, c *op.Call) error {
		b, n, left := operand(c)
		switch {
		case b != nil:
			return m.Apply(kernel.Add, c.Target(), []*op.Tensor{c.In[0], b}, alpha)
		case left: // n + alpha*a
			return m.Apply(kernel.Affine, c.Target(), c.In[:1], alpha, n)
		}
		return m.Apply(kernel.Affine, c.Target(), c.In[:1], 1, alpha*n)
	}
}

// reversed is b - a.
func reversed(m op.Machine, c *op.Call) error {
	b, n, _ := operand(c)
	if b != nil {
		return m.Apply(kernel.Add, c.Target(), []*op.Tensor{b, c.In[0]}, -1)
	}
	return m.Apply(kernel.Affine, c.Target(), c.In[:1], -1, n)
}

func multiply(m op.Machine, c *op.Call) error {
	b, n, _ := operand(c)
	if b != nil {
		return m.Apply(kernel.Mul, c.Target(), []*op.Tensor{c.In[0], b})
	}
	return m.Apply(kernel.Affine, c.Target(), c.In[:1], n, 0)
}

// errReflected is a division of a number, which Python makes of other operators.
var errReflected = errors.New("a number is divided by a tensor")

func quotient(m op.Machine, c *op.Call) error {
	b, n, left := operand(c)
	switch {
	case b != nil:
		return m.Apply(kernel.Div, c.Target(), []*op.Tensor{c.In[0], b})
	case left:
		return errReflected
	}
	return m.Apply(kernel.Affine, c.Target(), c.In[:1], 1/n, 0)
}

// Arithmetic, as kernels.
var (
	evalAdd = &op.Eval{Forward: plus(1), InParts: true}
	evalSub = &op.Eval{Forward: plus(-1), Backward: func(m op.Machine, b *op.Back) error {
		for i := range b.Results { // what is not handed on as it is has its sign changed
			if y := m.Wanted(b, i); y != nil {
				if err := m.Apply(kernel.Affine, y, b.Grads[:1], -1, 0); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	evalMul = &op.Eval{Forward: multiply, Backward: func(m op.Machine, b *op.Back) error {
		for i := range b.Results {
			y := m.Wanted(b, i)
			if y == nil {
				continue
			}
			if len(b.Needs) > 1 && b.SavedIn(1-i) != nil {
				if err := m.Apply(kernel.Mul, y, []*op.Tensor{b.Grads[0], b.SavedIn(1 - i)}); err != nil {
					return err
				}
				continue
			}
			a := b.Args.(*BinaryArgs)
			n := a.Other
			if a.Left.Set {
				n = a.Left
			}
			if err := m.Apply(kernel.Affine, y, b.Grads[:1], n.Value, 0); err != nil {
				return err
			}
		}
		return nil
	}}
	evalDiv = &op.Eval{Forward: quotient, Backward: func(m op.Machine, b *op.Back) error {
		if y := m.Wanted(b, 1); y != nil {
			if err := m.Apply(kernel.DivGrad, y, []*op.Tensor{b.Grads[0], b.SavedIn(0), b.SavedIn(1)}); err != nil {
				return err
			}
		}
		y := m.Wanted(b, 0)
		if y == nil {
			return nil
		}
		if b.SavedIn(1) != nil {
			return m.Apply(kernel.Div, y, []*op.Tensor{b.Grads[0], b.SavedIn(1)})
		}
		return m.Apply(kernel.Affine, y, b.Grads[:1], 1/b.Args.(*BinaryArgs).Other.Value, 0)
	}}
)

// comparison is one with a tensor or a number.
func comparison(tensors, number *kernel.Kernel) *op.Eval {
	return &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
		b, n, _ := operand(c)
		if b != nil {
			return m.Apply(tensors, c.Out[0], []*op.Tensor{c.In[0], b})
		}
		return m.Apply(number, c.Out[0], c.In[:1], n)
	}}
}

// Xlogy is x * log(y), and 0 where x is, unless y is no number.
var Xlogy = define(op.Op{
	Name: "xlogy", Eval: evalXlogy, Run: func(c *op.Call) { c.Return(c.New(c.Elementwise(c.In...), resultType(c.In[0], c.In[1], op.Number{}))) },
	Save: []op.Save{op.In(1), op.In(0)}, Node: "XlogyBackward0",
	Grad: func(b *op.Back) {
		x, y, g := b.SavedIn(0), b.SavedIn(1), b.Grads[0]
		if b.Need(1) { // grad * self / other
			product := b.Do1(MulTensor, nil, g, x)
			b.Set(1, b.Do1(DivTensor, nil, product, y))
			b.Drop(product)
		}
		if b.Need(0) { // xlogy(grad, other).masked_fill((self == 0) & (other <= 0), 0)
			mark := b.Mark()
			all := b.Local(b.New(b.Elementwise(g, y), g.DType))
			b.Local(b.Do1(LessEqual, &BinaryArgs{Other: op.Number{Set: true}}, y))
			zero := b.Local(b.Do1(Equal, &BinaryArgs{Other: op.Number{Set: true}}, x))
			mask := b.Local(b.New(b.Elementwise(zero), zero.DType))
			b.Set(0, b.Do1(MaskedFill, nil, all, mask))
			b.DropTo(mark)
		}
	},
	Source: "tools/autograd/derivatives.yaml: xlogy.Tensor",
})

var evalXlogy = (&op.Eval{
	Single: true,
	Forward: func(m op.Machine, c *op.Call) error {
		if !c.In[0].DType.IsFloating() || !c.In[1].DType.IsFloating() {
			return op.ErrView
		}
		return m.Apply(kernel.Xlogy, c.Out[0], c.In)
	},
	Backward: func(op.Machine, *op.Back) error { return op.ErrView },
}).Otherwise(op.Two(
	func(x, y float64) float64 {
		switch {
		case math.IsNaN(y):
			return y
		case x == 0:
			return 0
		}
		return x * math.Log(y)
	},
	func(x [3]float64, _, _ float64) float64 {
		if x[0] == 0 && x[1] <= 0 {
			return 0
		}
		return math.Log(x[1])
	},
	func(x [3]float64, _, _ float64) float64 { return x[0] / x[1] },
).Eval())
