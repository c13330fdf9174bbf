package aten

import "github.com/memplan/memplan/internal/op"

// inPlaceForm defines the in-place form of an operator that differs from it in nothing
// but the result: it does not allocate, the derivative is the same formula, and
// autograd clones what the formula reads of the input before it is overwritten.
// Those of acosh, asinh and atanh have no derivative. Autocast leaves in-place
// forms alone. Sources: tools/autograd/derivatives.yaml, where one entry serves
// both; aten/src/ATen/autocast_mode.h.
func inPlaceForm(of *op.Op) *op.Op {
	return define(op.Op{
		Name: of.Name + "_", Of: of, Args: of.Args, Run: func(c *op.Call) { fitsInPlace(c, of) }, InPlace: true,
		Save: of.Save, Grad: of.Grad, Eval: of.Eval, Indices: of.Indices, Node: of.Node, Source: of.Source,
	})
}

func inPlaceForms(rows ...*op.Op) []*op.Op {
	forms := make([]*op.Op, len(rows))
	for i, r := range rows {
		forms[i] = inPlaceForm(r)
	}
	return forms
}

// The in-place forms that are like their operators.
var (
	_ = inPlaceForms(
		Abs, Acos, Asin, Atan, Ceil, Cos, Cosh, Digamma, Erf, Erfc, Erfinv, Exp2, Expm1, Floor, Frac, Lgamma, Log,
		Log10, Log1p, Log2, Logit, NanToNum, Neg, Reciprocal, Round, Rsqrt, Sign, Sin, Sinh, Sqrt, Tan, Trunc, Addcdiv,
		Addcmul, Atan2, Fmod, Hypot, Lerp, Remainder, IndexAdd, IndexCopy, IndexFill, Scatter, ScatterAdd, Tril, Triu,
	)
	powInPlace       = inPlaceForm(PowScalar)
	powTensorInPlace = inPlaceForm(PowTensor)
)

// fitsInPlace checks the operands as r does, and that its result would have the
// shape of the first of them, and a type that this can take.
func fitsInPlace(c *op.Call, r *op.Op) {
	env := *c.Env()
	env.Autocast = false
	out, err := (&op.Shapes{E: env}).Infer(r, c.Args, c.In...)
	switch x := c.In[0]; {
	case err != nil:
		c.Fail("%v", err)
	case out[0].Size != x.Size:
		c.Fail("an in-place result of shape %v cannot take shape %v", x.Size, out[0].Size)
	case out[0].DType.IsFloating() && !x.DType.IsFloating():
		c.Fail("an in-place result of type %v cannot take type %v", x.DType, out[0].DType)
	}
}

// The in-place forms of what chooses among rows.
var (
	_ = define(op.Op{
		Name: "pow.any_", Of: Pow, Args: &PowArgs{}, InPlace: true, Composite: true, Run: func(c *op.Call) {
			if c.Opt(1) != nil {
				c.Return(c.Do1(powTensorInPlace, nil, c.In...))
				return
			}
			c.Return(c.Do1(powInPlace, c.Args, c.In[0]))
		},
		Source: "aten/src/ATen/native/Pow.cpp: pow_",
	})
	_ = define(op.Op{
		Name: "square_", Of: square, InPlace: true, Composite: true, Run: func(c *op.Call) {
			c.Return(c.Do1(powInPlace, &PowArgs{Exponent: op.Number{Set: true, Value: 2}}, c.In[0]))
		},
		Source: "aten/src/ATen/native/Pow.cpp: square_",
	})
)
