package optim

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// local is a variable of a Python function that holds temporaries: nothing, a
// tensor or a list.
type local struct {
	c    *Call
	held []*op.Tensor
}

// local returns the function's next variable. A function asks for all of its
// variables when it begins, in the order in which its text first names them;
// when it ends they go in that order. The function runs once for each type of
// parameters, in one Python call: what a variable holds lives until it is bound
// for the next type.
func (c *Call) local() *local {
	if c.asked == len(c.locals) {
		c.locals = append(c.locals, &local{c: c})
	}
	c.asked++
	return c.locals[c.asked-1]
}

// end ends a function.
func (c *Call) end() {
	for _, v := range c.locals {
		v.clear()
	}
	c.locals, c.asked = nil, 0
}

// set rebinds the variable; what it held goes after the new value is made.
func (v *local) set(ts ...*op.Tensor) {
	old := v.held
	v.held = ts
	v.c.dropList(old)
}

// clear binds the variable to what is no temporary, or deletes it.
func (v *local) clear() { v.set() }

// gradients binds grad as foreach implementations do: a copy of the gradients
// if they are negated or the parameters are added to them, one for both.
func (v *local) gradients(ps []*Param, maximize, coupled bool) {
	v.clear()
	if maximize || coupled {
		v.set(v.c.list(ps)...)
	}
}

// gradient binds grad as for-loop implementations do: "grad = grads[i]", then
// "-grad", then "grad.add(param, alpha=weight_decay)", each a new tensor.
func (v *local) gradient(p *Param, maximize, coupled bool) {
	v.clear()
	if maximize {
		v.set(v.c.temp(p))
	}
	if coupled {
		v.set(v.c.temp(p))
	}
}

// gradientAtOnce is gradient where it starts with "grad = grads[i] if not
// maximize else -grads[i]", so that the last one outlives the negation.
func (v *local) gradientAtOnce(p *Param, maximize, coupled bool) {
	if maximize {
		v.set(v.c.temp(p))
	} else {
		v.clear()
	}
	if coupled {
		v.set(v.c.temp(p))
	}
}

// share binds the variable to a tensor that something else holds too; nil is a
// number, or None.
func (v *local) share(t *op.Tensor) {
	if t != nil {
		v.set(v.c.Keep(t))
	}
}

// one is the tensor that the variable holds; nil if it holds none.
func (v *local) one() *op.Tensor {
	if len(v.held) == 0 {
		return nil
	}
	return v.held[0]
}

// moveTo gives what the variable holds another name.
func (v *local) moveTo(w *local) {
	held := v.held
	v.held = nil
	w.set(held...)
}

// of is the gradient that the variable holds for p.
func (v *local) of(p *Param) *op.Tensor {
	if t := v.one(); t != nil {
		return t
	}
	return p.Grad
}

// each makes a list of one tensor for each parameter.
func each(ps []*Param, f func(p *Param) *op.Tensor) []*op.Tensor {
	out := make([]*op.Tensor, len(ps))
	for i, p := range ps {
		out[i] = f(p)
	}
	return out
}

// list makes a list of temporaries like the parameters.
func (c *Call) list(ps []*Param) []*op.Tensor { return each(ps, c.temp) }

// dropList frees a list as Python does: the last item first.
func (c *Call) dropList(l []*op.Tensor) {
	for i := len(l) - 1; i >= 0; i-- {
		c.Drop(l[i])
	}
}

// temp makes a temporary like the parameter.
func (c *Call) temp(p *Param) *op.Tensor { return c.like(p.T) }

// like makes a tensor like t (t * t, t.clone()).
func (c *Call) like(t *op.Tensor) *op.Tensor { return c.New(t.LikeDense(), t.DType) }

// scalar makes a tensor without dimensions in float32, the type of step
// counters and of what is computed from them.
func (c *Call) scalar() *op.Tensor { return c.scalarOf(tensor.Float32) }

func (c *Call) scalarOf(d tensor.DType) *op.Tensor { return c.New(tensor.Contiguous(tensor.D()), d) }

// scalars makes a list of scalars.
func (c *Call) scalars(ps []*Param) []*op.Tensor {
	return each(ps, func(*Param) *op.Tensor { return c.scalar() })
}

// mask makes the result of a comparison of the parameter's size.
func (c *Call) mask(p *Param) *op.Tensor { return c.New(p.T.LikeDense(), tensor.Bool) }

// then is the next operation of an expression over scalars: its result is made
// before its operands, which only the expression holds, go.
func (c *Call) then(operands ...*op.Tensor) *op.Tensor {
	out := c.scalar()
	c.Drop(operands...)
	return out
}

// power is number ** t for a scalar t: the base goes to the GPU in float64
// (pow_Scalar_out in aten/src/ATen/native/Pow.cpp).
func (c *Call) power() *op.Tensor {
	out := c.scalar()
	if !c.Env().NoKernels() {
		c.Drop(c.scalarOf(tensor.Float64))
	}
	return out
}

// correction is 1 - beta ** step.
func (c *Call) correction() *op.Tensor { return c.then(c.power()) }

// quotient is number / t for a scalar t: t.reciprocal() * number
// (Tensor.__rtruediv__).
func (c *Call) quotient() *op.Tensor { return c.quotientOf(tensor.Float32) }

func (c *Call) quotientOf(d tensor.DType) *op.Tensor {
	reciprocal := c.scalarOf(d)
	out := c.scalarOf(d)
	c.Drop(reciprocal)
	return out
}
