package op

import (
	"errors"

	"github.com/memplan/memplan/internal/kernel"
)

// operand is the right-hand side of an arithmetic operator: a tensor, or a number,
// which may stand on the left.
func (c *Call) operand() (t *Tensor, n float64, left bool) {
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
func plus(alpha float64) func(m Machine, c *Call) error {
	return func(m Machine, c *Call) error {
		b, n, left := c.operand()
		switch {
		case b != nil:
			return m.Apply(kernel.Add, c.Target(), []*Tensor{c.In[0], b}, alpha)
		case left: // n + alpha*a
			return m.Apply(kernel.Affine, c.Target(), c.In[:1], alpha, n)
		}
		return m.Apply(kernel.Affine, c.Target(), c.In[:1], 1, alpha*n)
	}
}

func multiply(m Machine, c *Call) error {
	b, n, _ := c.operand()
	if b != nil {
		return m.Apply(kernel.Mul, c.Target(), []*Tensor{c.In[0], b})
	}
	return m.Apply(kernel.Affine, c.Target(), c.In[:1], n, 0)
}

// errReflected is a division of a number, which Python makes of other operators.
var errReflected = errors.New("a number is divided by a tensor")

func quotient(m Machine, c *Call) error {
	b, n, left := c.operand()
	switch {
	case b != nil:
		return m.Apply(kernel.Div, c.Target(), []*Tensor{c.In[0], b})
	case left:
		return errReflected
	}
	return m.Apply(kernel.Affine, c.Target(), c.In[:1], 1/n, 0)
}

// Arithmetic, as kernels.
var (
	evalAdd = &Eval{Forward: plus(1), InParts: true}
	evalSub = &Eval{Forward: plus(-1), Backward: func(m Machine, b *Back) error {
		for i := range b.Results { // what is not handed on as it is has its sign changed
			if y := m.Wanted(b, i); y != nil {
				if err := m.Apply(kernel.Affine, y, b.Grads[:1], -1, 0); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	evalMul = &Eval{Forward: multiply, Backward: func(m Machine, b *Back) error {
		for i := range b.Results {
			y := m.Wanted(b, i)
			if y == nil {
				continue
			}
			if len(b.Needs) > 1 && b.SavedIn(1-i) != nil {
				if err := m.Apply(kernel.Mul, y, []*Tensor{b.Grads[0], b.SavedIn(1 - i)}); err != nil {
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
	evalDiv = &Eval{Forward: quotient, Backward: func(m Machine, b *Back) error {
		if y := m.Wanted(b, 1); y != nil {
			if err := m.Apply(kernel.DivGrad, y, []*Tensor{b.Grads[0], b.SavedIn(0), b.SavedIn(1)}); err != nil {
				return err
			}
		}
		y := m.Wanted(b, 0)
		if y == nil {
			return nil
		}
		if b.SavedIn(1) != nil {
			return m.Apply(kernel.Div, y, []*Tensor{b.Grads[0], b.SavedIn(1)})
		}
		return m.Apply(kernel.Affine, y, b.Grads[:1], 1/b.Args.(*BinaryArgs).Other.Value, 0)
	}}
)

// comparison is one with a tensor or a number.
func comparison(tensors, number *kernel.Kernel) *Eval {
	return &Eval{Forward: func(m Machine, c *Call) error {
		b, n, _ := c.operand()
		if b != nil {
			return m.Apply(tensors, c.Out[0], []*Tensor{c.In[0], b})
		}
		return m.Apply(number, c.Out[0], c.In[:1], n)
	}}
}
