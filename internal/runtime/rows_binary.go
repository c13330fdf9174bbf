package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// operand2 is the right-hand side of an arithmetic operator: a tensor, or a
// number, which may stand on the left.
func operand2(c *op.Call) (t *op.Tensor, n float64, left bool) {
	if len(c.In) > 1 && c.In[1] != nil {
		return c.In[1], 0, false
	}
	if v, ok := number(c.Args, "left"); ok {
		return nil, v, true
	}
	v, _ := number(c.Args, "other")
	return nil, v, false
}

// target is where a row writes.
func target(c *op.Call) *op.Tensor {
	if c.Row.InPlace {
		return c.In[0]
	}
	return c.Out[0]
}

// sum is a + alpha*b.
func sum(alpha float64) func(x *Executor, c *op.Call) error {
	return func(x *Executor, c *op.Call) error {
		b, n, left := operand2(c)
		switch {
		case b != nil:
			return x.apply(kernel.Add, target(c), []*op.Tensor{c.In[0], b}, alpha)
		case left: // n + alpha*a
			return x.apply(kernel.Affine, target(c), c.In[:1], alpha, n)
		}
		return x.apply(kernel.Affine, target(c), c.In[:1], 1, alpha*n)
	}
}

func product(x *Executor, c *op.Call) error {
	b, n, _ := operand2(c)
	if b != nil {
		return x.apply(kernel.Mul, target(c), []*op.Tensor{c.In[0], b})
	}
	return x.apply(kernel.Affine, target(c), c.In[:1], n, 0)
}

func quotient(x *Executor, c *op.Call) error {
	b, n, left := operand2(c)
	switch {
	case b != nil:
		return x.apply(kernel.Div, target(c), []*op.Tensor{c.In[0], b})
	case left:
		return unsupported("a number divided by a tensor")
	}
	return x.apply(kernel.Affine, target(c), c.In[:1], 1/n, 0)
}

// factor is what the gradient of input i of a product is multiplied by.
func productGrad(x *Executor, b *op.Back) error {
	n, ok := number(b.Args, "left")
	if !ok {
		n, _ = number(b.Args, "other")
	}
	for i := range b.Results {
		y := wanted(b, i)
		switch {
		case y == nil:
		case len(b.Needs) > 1 && b.SavedIn[1-i] != nil:
			if err := x.apply(kernel.Mul, y, []*op.Tensor{b.Grads[0], b.SavedIn[1-i]}); err != nil {
				return err
			}
		default:
			if err := x.apply(kernel.Affine, y, b.Grads[:1], n, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func quotientGrad(x *Executor, b *op.Back) error {
	if y := wanted(b, 1); y != nil {
		if err := x.apply(kernel.DivGrad, y, []*op.Tensor{b.Grads[0], b.SavedIn[0], b.SavedIn[1]}); err != nil {
			return err
		}
	}
	y := wanted(b, 0)
	if y == nil {
		return nil
	}
	if len(b.SavedIn) > 1 && b.SavedIn[1] != nil {
		return x.apply(kernel.Div, y, []*op.Tensor{b.Grads[0], b.SavedIn[1]})
	}
	n, _ := number(b.Args, "other")
	return x.apply(kernel.Affine, y, b.Grads[:1], 1/n, 0)
}

func differenceGrad(x *Executor, b *op.Back) error {
	for i := range b.Results { // what is not handed on as it is has its sign changed
		if y := wanted(b, i); y != nil {
			if err := x.apply(kernel.Affine, y, b.Grads[:1], -1, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparison is one with a tensor or a number.
func comparison(tensors, scalar *kernel.Kernel) row {
	return row{forward: func(x *Executor, c *op.Call) error {
		b, n, _ := operand2(c)
		if b != nil {
			return x.apply(tensors, c.Out[0], []*op.Tensor{c.In[0], b})
		}
		return x.apply(scalar, c.Out[0], c.In[:1], n)
	}}
}

// binaryRows are arithmetic and comparisons.
var binaryRows = map[*op.Row]row{
	op.Add:        {forward: sum(1), composed: true},
	op.AddInPlace: {forward: sum(1), composed: true},
	op.Sub:        {forward: sum(-1), backward: differenceGrad},
	op.SubInPlace: {forward: sum(-1), backward: differenceGrad},
	op.Mul:        {forward: product, backward: productGrad},
	op.MulInPlace: {forward: product, backward: productGrad},
	op.MulTensor:  {forward: product},
	op.Div:        {forward: quotient, backward: quotientGrad},
	op.DivInPlace: {forward: quotient, backward: quotientGrad},
	op.DivTensor:  {forward: quotient},

	op.Equal:        comparison(kernel.Eq, kernel.EqScalar),
	op.NotEqual:     comparison(kernel.Ne, kernel.NeScalar),
	op.Less:         comparison(kernel.Lt, kernel.LtScalar),
	op.LessEqual:    comparison(kernel.Le, kernel.LeScalar),
	op.Greater:      comparison(kernel.Gt, kernel.GtScalar),
	op.GreaterEqual: comparison(kernel.Ge, kernel.GeScalar),
}
