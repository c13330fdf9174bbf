package op

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// BinaryArgs is the right-hand side of an arithmetic operator when it is a
// number.
type BinaryArgs struct {
	Other Number `arg:"other"`
	Left  Number `arg:"left"` // a number on the left: 1 - x
}

// Operand implements Operand.
func (a *BinaryArgs) Operand() Number {
	if a == nil {
		return Number{}
	}
	return a.Other
}

// AddArgs are the arguments of add.
type AddArgs = BinaryArgs

// resultType is the type of an arithmetic result. A number is weak: it changes
// the type only if it is of a higher category than the tensor (integers become
// the default float32 beside a float); so is a tensor without dimensions.
func resultType(a, b *Tensor, n Number) tensor.DType {
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
func weak(d tensor.DType, n Number) tensor.DType {
	switch {
	case n.Float && !d.IsFloating():
		return tensor.Float32
	case d == tensor.Bool && !n.Float && !n.Bool:
		return tensor.Int64
	}
	return d
}

// arithmetic is the Run of a binary kernel.
func arithmetic(c *Call) { binaryKernel(c, c.In[0], c.Opt(1)) }

// binaryKernel computes a result over tensors in the order in which the kernel
// takes them: the first decides the order of the result's dimensions.
func binaryKernel(c *Call, a, b *Tensor) {
	var n Number
	if args, ok := c.Args.(*BinaryArgs); ok && args != nil {
		n = args.Other
		if args.Left.Set {
			n = args.Left
		}
	}
	c.Return(c.New(c.elementwise(a, b), resultType(c.In[0], c.Opt(1), n)))
}

// Add is a + b; the gradient goes to both sides as it is.
var Add = define(Op{
	Name: "add", Eval: evalAdd, Sig: "+ add(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic,
	Node: "AddBackward0", Grad: passBoth,
})

// passBoth hands the incoming gradient to every input that wants one.
func passBoth(b *Back) {
	for i := range b.Needs {
		if b.Need(i) {
			b.Pass(i)
		}
	}
}

// AddInPlace is a += b.
var AddInPlace = define(Op{
	Name: "add_", Eval: evalAdd, Of: Add, Args: &BinaryArgs{}, Run: func(c *Call) { checkInPlace(c) }, InPlace: true,
	Node: "AddBackward0", Grad: passBoth,
})

// CountBatch is num_batches_tracked.add_(1), which a batch norm does in training
// alone (torch/nn/modules/batchnorm.py).
var CountBatch = define(Op{Name: "add_.batch", Run: func(*Call) {}, InPlace: true, Eval: &Eval{Forward: func(m Machine, c *Call) error {
	if !c.Env().Training {
		return nil
	}
	return m.Apply(kernel.Affine, c.In[0], c.In[:1], 1, 1)
}}})

// checkInPlace refuses an in-place result that would have to grow.
func checkInPlace(c *Call) {
	if b := c.Opt(1); b != nil {
		l := c.elementwise(c.In[0], b)
		if l.Size != c.In[0].Size {
			c.Fail("an in-place result of shape %v cannot take the broadcast shape %v", c.In[0].Size, l.Size)
		}
	}
}

// Sub is a - b; the gradient of b is negated.
var (
	Sub = define(Op{
		Name: "sub", Eval: evalSub, Sig: "- sub(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic, Node: "SubBackward0", Grad: gradSub,
	})
	SubInPlace = define(Op{
		Name: "sub_", Eval: evalSub, Of: Sub, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true, Node: "SubBackward0", Grad: gradSub,
	})
)

func gradSub(b *Back) {
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
	Mul = define(Op{
		Name: "mul", Eval: evalMul, Sig: "* mul(input, other: operand)", Args: &BinaryArgs{}, Run: arithmetic,
		Save: []Save{In(1, 0), In(0, 1)}, Node: "MulBackward0", Grad: gradMul,
	})
	MulInPlace = define(Op{
		Name: "mul_", Eval: evalMul, Of: Mul, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true,
		Save: []Save{In(1, 0), In(0, 1)}, Node: "MulBackward0", Grad: gradMul,
	})
	// MulScalar is the product with a number inside derivative formulas.
	MulScalar = define(Op{Name: "mul.Scalar", Args: &BinaryArgs{}, Run: mapOf})
	MulTensor = define(Op{Name: "mul.Tensor", Eval: &Eval{Forward: multiply}, Args: &BinaryArgs{}, Run: arithmetic})
	DivTensor = define(Op{Name: "div.Tensor", Eval: &Eval{Forward: quotient}, Args: &BinaryArgs{}, Run: arithmetic})
)

func gradMul(b *Back) { // mul_tensor_backward: grad * other, cast to the input's type
	for i := len(b.Needs) - 1; i >= 0; i-- {
		if b.Need(i) {
			var other *Tensor
			if len(b.Needs) > 1 {
				other = b.SavedIn(1 - i)
			}
			b.Set(i, b.product(b.Grads[0], other))
		}
	}
}

// product is grad * other, where a nil other is a number.
func (b *Back) product(g, other *Tensor) *Tensor {
	if other == nil {
		return b.Do1(MulScalar, nil, g)
	}
	return b.Do1(MulTensor, nil, g, other)
}

// Div is a / b.
var (
	Div = define(Op{
		Name: "div", Eval: evalDiv, Sig: "/ div(input, other: operand)", Args: &BinaryArgs{}, Run: trueDiv,
		Save: []Save{In(1), In(0, 1)}, Node: "DivBackward0", Grad: gradDiv,
	})
	DivInPlace = define(Op{
		Name: "div_", Eval: evalDiv, Of: Div, Args: &BinaryArgs{}, Run: checkInPlace, InPlace: true,
		Save: []Save{In(1), In(0, 1)}, Node: "DivBackward0", Grad: gradDiv,
	})
)

// trueDiv divides; integers give float32.
func trueDiv(c *Call) {
	a, b := c.In[0], c.Opt(1)
	d := resultType(a, b, Number{Float: true})
	if !d.IsFloating() {
		d = tensor.Float32
	}
	c.Return(c.New(c.elementwise(a, b), d))
}

func gradDiv(b *Back) {
	if b.Need(1) { // div_tensor_other_backward: -grad * ((self / other) / other)
		neg := b.Local(b.NewLike(b.Grads[0]))
		q := b.Local(b.Do1(DivTensor, nil, b.SavedIn(0), b.SavedIn(1)))
		qq := b.Local(b.Do1(DivTensor, nil, q, b.SavedIn(1)))
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
func compare(name, sig string, tensors, number *kernel.Kernel) *Op {
	return define(Op{Name: name, Eval: comparison(tensors, number), Sig: sig, Args: &BinaryArgs{}, Run: func(c *Call) {
		c.Return(c.New(c.elementwise(c.In[0], c.Opt(1)), tensor.Bool))
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

// FillValueArgs is the number with which masked_fill fills.
type FillValueArgs struct {
	Value Number `arg:"value"`
}

// MaskedFill is x.masked_fill(mask, value), where the value is a number or a
// tensor without dimensions: the mask is kept.
var MaskedFill = define(Op{
	Name: "masked_fill", Eval: evalMaskedFill, Sig: "Tensor.masked_fill(self, mask, value: operand)", Args: &FillValueArgs{}, Run: func(c *Call) {
		c.fillValue()
		l := c.elementwise(c.In[0], c.In[1])
		c.Return(c.New(tensor.Contiguous(l.Size), c.In[0].DType)) // a row-major clone, filled in place
	}, Save: []Save{In(1)}, Node: "MaskedFillBackward0", Grad: gradMaskedFill,
})

// maskedFillInPlace is its in-place form, of rows alone.
var FillByMask = define(Op{
	Name: "masked_fill_.mask", Eval: evalMaskedFill, Run: func(*Call) {}, InPlace: true, Save: []Save{In(1)}, Node: "MaskedFillBackward0", Grad: gradMaskedFill,
})

// fillValue checks the mask and the value of a masked_fill.
func (c *Call) fillValue() {
	if c.In[1].DType != tensor.Bool {
		c.Fail("the mask must be of type bool, not %v", c.In[1].DType)
	}
	if v := c.Opt(2); v != nil && v.Rank() != 0 {
		c.Fail("the value must be a number or a tensor without dimensions, not of shape %v", v.Size)
	}
}

func gradMaskedFill(b *Back) { // grad.masked_fill(mask, 0)
	if b.Need(2) {
		b.Fail("the gradient of the value of masked_fill is not modelled: it selects by the mask, how much depends on the data; detach the value")
	}
	if !b.Need(0) {
		return
	}
	l := b.elementwise(b.Grads[0], b.SavedIn(1))
	b.Set(0, b.New(tensor.Contiguous(l.Size), b.Grads[0].DType))
}

// evalMaskedFill fills with a number, which has a kernel, or with a tensor of one element.
var evalMaskedFill = &Eval{
	Forward: func(m Machine, c *Call) error {
		y, value := c.Target(), c.Opt(2)
		if value == nil {
			v := 0.0
			if a, is := c.Args.(*FillValueArgs); is {
				v = a.Value.Value
			}
			return m.Apply(kernel.MaskedFill, y, c.In[:2], v)
		}
		return m.Aside(func(a Arrays) {
			x, mask, v := a.Like(c.In[0], y.Size), a.Like(c.In[1], y.Size), a.Get(value)[0]
			for i := range x {
				if mask[i] != 0 {
					x[i] = v
				}
			}
			a.Put(y, x)
		})
	},
	Backward: func(m Machine, b *Back) error {
		if y := m.Wanted(b, 0); y != nil {
			return m.Apply(kernel.MaskedFill, y, []*Tensor{b.Grads[0], b.SavedIn(1)}, 0)
		}
		return nil
	},
}
