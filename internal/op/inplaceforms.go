package op

import "strings"

// inPlaceForms are the operators whose in-place form differs from them in nothing
// but the result: it does not allocate, the derivative is the same formula, and
// autograd clones what the formula reads of the input before it is overwritten.
// Those of acosh, asinh and atanh have no derivative. Autocast leaves in-place
// forms alone. Sources: tools/autograd/derivatives.yaml, where one entry serves
// both; aten/src/ATen/autocast_mode.h.
const inPlaceForms = `abs acos asin atan ceil cos cosh digamma erf erfc erfinv exp2 expm1 floor frac lgamma
	log log10 log1p log2 logit nan_to_num neg reciprocal round rsqrt sign sin sinh sqrt tan trunc
	addcdiv addcmul atan2 fmod hypot lerp pow pow.Tensor_Tensor remainder
	index_add index_copy index_fill scatter scatter_add tril triu`

func init() {
	for _, name := range strings.Fields(inPlaceForms) {
		r := Row0(name)
		define(Row{
			Name: name + "_", Args: r.Args, Run: func(c *Call) { c.fitsInPlace(r) }, InPlace: true,
			Save: r.Save, Grad: r.Grad, Node: r.Node, Source: r.Source,
		})
	}
}

// fitsInPlace checks the operands as r does, and that its result would have the
// shape of the first of them, and a type that this can take.
func (c *Call) fitsInPlace(r *Row) {
	env := *c.Env()
	env.Autocast = false
	out, err := (&Shapes{E: env}).Infer(r, c.Args, c.In...)
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
	_ = define(Row{
		Name: "pow.any_", Args: &PowArgs{}, InPlace: true, Composite: true, Run: func(c *Call) {
			if c.Opt(1) != nil {
				c.Return(c.Do1(Row0("pow.Tensor_Tensor_"), nil, c.In...))
				return
			}
			c.Return(c.Do1(Row0("pow_"), c.Args, c.In[0]))
		},
		Source: "aten/src/ATen/native/Pow.cpp: pow_",
	})
	_ = define(Row{
		Name: "square_", InPlace: true, Composite: true, Run: func(c *Call) {
			c.Return(c.Do1(Row0("pow_"), &PowArgs{Exponent: Number{Set: true, Value: 2}}, c.In[0]))
		},
		Source: "aten/src/ATen/native/Pow.cpp: square_",
	})
)
