package op

import "github.com/memplan/memplan/internal/tensor"

// WhereArgs are the numbers of where, in the place of a tensor.
type WhereArgs struct {
	Input Number `arg:"input"`
	Other Number `arg:"other"`
}

// Where is torch.where(condition, input, other). A number becomes a scalar
// tensor of the result's type; a tensor of another type is converted.
var _ = define(Op{
	Name: "where.any", Sig: "torch.where(condition, input: operand, other: operand)", Args: &WhereArgs{}, Composite: true, Run: func(c *Call) {
		a := c.Args.(*WhereArgs)
		cond, x, y := c.In[0], c.In[1], c.In[2]
		if cond.DType != tensor.Bool {
			c.Fail("the condition must be of type bool, not %v", cond.DType)
		}
		switch {
		case x == nil && y == nil:
			c.Fail("where needs a tensor beside the condition")
		case x == nil:
			c.Return(c.where(cond, x, y, weak(y.DType, a.Input), a.Input.Value))
		case y == nil:
			c.Return(c.where(cond, x, y, weak(x.DType, a.Other), a.Other.Value))
		default:
			c.Return(c.Do1(WhereSelf, nil, cond, x, y))
		}
	},
	Source: "aten/src/ATen/native/TensorCompare.cpp: where",
})

// where calls the operator with a scalar tensor of a number for the operand that is
// nil and the other one converted. Its locals die before it returns.
func (c *Call) where(cond, x, y *Tensor, d tensor.DType, number float64) *Tensor {
	mark := c.Mark()
	operand := func(t *Tensor) *Tensor {
		if t == nil {
			return c.Local(c.Do1(Full, &FullArgs{FillArgs: FillArgs{DType: &d}, Value: number}))
		}
		return c.Local(c.Do1(To, &ToCopyArgs{DType: d}, t))
	}
	x, y = operand(x), operand(y)
	out := c.Do1(WhereSelf, nil, cond, x, y)
	c.DropTo(mark)
	return out
}

// WhereSelf is where of three tensors. Each gradient is where itself, with 0
// in the other's place.
var WhereSelf = define(Op{
	Name: "where", Run: func(c *Call) {
		cond, x, y := c.In[0], c.In[1], c.In[2]
		d := resultType(x, y, Number{})
		operand := func(t *Tensor) *Tensor { // autograd does not see this conversion
			if t.DType == d {
				return t
			}
			return c.Local(c.New(t.LikeDense(), d))
		}
		x = operand(x)
		y = operand(y)
		c.Return(c.New(c.elementwise(cond, x, y), d))
	},
	Save: []Save{In(0)}, Node: "WhereBackward0",
	Eval: elements{of: func(x [3]float64, _ float64) float64 {
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	}}.eval().inParts(),
	Source: "tools/autograd/derivatives.yaml: where.self",
})

var _ = WhereSelf.derive(func(b *Back) {
	g := b.Grads[0]
	if b.Need(2) {
		b.Set(2, b.where(b.SavedIn(0), nil, g, g.DType, 0))
	}
	if b.Need(1) {
		b.Set(1, b.where(b.SavedIn(0), g, nil, g.DType, 0))
	}
})
