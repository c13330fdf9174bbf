package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// truth defines an operator on any types whose result is bool.
func truth(name, params string, of elements) *Op {
	return define(Op{Name: name, Eval: of.eval(), Sig: "torch." + name + params, Run: func(c *Call) {
		c.Return(c.New(c.elementwise(c.In...), tensor.Bool))
	}})
}

// The operators of truth.
var (
	LogicalAnd = truth("logical_and", "(input, other)", two(func(a, b float64) float64 { return array.Truth(a != 0 && b != 0) }))
	LogicalOr  = truth("logical_or", "(input, other)", two(func(a, b float64) float64 { return array.Truth(a != 0 || b != 0) }))
	LogicalXor = truth("logical_xor", "(input, other)", two(func(a, b float64) float64 { return array.Truth((a != 0) != (b != 0)) }))
	LogicalNot = truth("logical_not", "(input)", single(func(x float64) float64 { return array.Truth(x == 0) }))
	IsNaN      = truth("isnan", "(input)", single(func(x float64) float64 { return array.Truth(math.IsNaN(x)) }))
)

// larger defines maximum or minimum. Where both sides are equal each gets half
// of the gradient.
func larger(name, node string, first func(a, b float64) bool) *Op {
	return define(Op{
		Name: name, Sig: "torch." + name + "(input, other)", Run: func(c *Call) {
			c.Return(c.New(c.elementwise(c.In...), resultType(c.In[0], c.In[1], Number{})))
		},
		Save: []Save{In(1), In(0)}, Node: node,
		Grad: func(b *Back) { // where(self == other, grad / 2, grad).masked_fill_(self < other, 0)
			g := b.Grads[0]
			for i := 1; i >= 0; i-- {
				if !b.Need(i) {
					continue
				}
				mark := b.Mark()
				half := b.Local(b.Do1(MulScalar, nil, g))
				l := b.elementwise(b.SavedIns()...)
				equal := b.Local(b.New(l, tensor.Bool))
				b.Set(i, b.Do1(WhereSelf, nil, equal, half, g))
				b.Local(b.New(l, tensor.Bool))
				b.DropTo(mark)
			}
		},
		Eval: two(func(a, b float64) float64 { return extremeOf(a, b, first(a, b)) },
			func(x [3]float64, _, _ float64) float64 { return share(!first(x[1], x[0]), x[0], x[1]) },
			func(x [3]float64, _, _ float64) float64 { return share(!first(x[0], x[1]), x[0], x[1]) }).eval(),
		Source: "tools/autograd/derivatives.yaml: maximum, minimum",
	})
}

// The larger and the smaller of two.
var (
	Maximum = larger("maximum", "MaximumBackward0", func(a, b float64) bool { return a > b })
	Minimum = larger("minimum", "MinimumBackward0", func(a, b float64) bool { return a < b })
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

// The square and the reciprocal.
var (
	square = define(Op{
		Name: "square", Sig: "torch.square(input)", Composite: true, Run: func(c *Call) {
			c.Return(c.Do1(PowScalar, &PowArgs{Exponent: Number{Set: true, Value: 2}}, c.In[0]))
		},
	})
	Reciprocal = define(Op{
		Name: "reciprocal", Sig: "torch.reciprocal(input)", Cast: CastFP32, Run: floatMap, Save: []Save{Out(0)}, Node: "ReciprocalBackward0",
		Grad: func(b *Back) { // -grad * (result * result)
			res := b.SavedOut(0)
			square := b.Local(b.Do1(MulTensor, nil, res, res))
			neg := b.Local(b.NewLike(b.Grads[0]))
			b.Set(0, b.Do1(MulTensor, nil, neg, square))
		},
		Eval:   single(func(x float64) float64 { return 1 / x }).derived([3]*formula{parseFormula("-grad * (result * result)")}),
		Source: "tools/autograd/derivatives.yaml: reciprocal",
	})
)

// Filling in place makes no copy.
var MaskedFillInPlace = define(Op{
	Name: "masked_fill_", Eval: evalMaskedFill, Of: MaskedFill, Args: MaskedFill.Args, Run: func(c *Call) {
		c.fillValue()
		checkInPlace(c)
	}, InPlace: true, Save: []Save{In(1)}, Node: "MaskedFillBackward0",
	Grad: gradMaskedFill,
})

// In-place functions that keep their result.
var (
	SigmoidInPlace = inPlace(Sigmoid, gradMap)
	TanhInPlace    = inPlace(Tanh, gradMap)
	ExpInPlace     = inPlace(Exp, gradMap)
)
