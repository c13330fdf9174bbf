package optim

import "github.com/memplan/memplan/internal/op"

// local is a variable of a Python function that holds temporaries: nothing, a
// tensor or a list.
type local struct {
	c    *Call
	held []*op.Tensor
}

// set binds the variable anew; what it held goes after the new value is made.
func (v *local) set(ts ...*op.Tensor) {
	old := v.held
	v.held = ts
	v.c.dropList(old)
}

// clear binds the variable to what is no temporary, or deletes it.
func (v *local) clear() { v.set() }

// clearAll ends a function: its variables go in the order in which the
// function first names them.
func clearAll(vs ...*local) {
	for _, v := range vs {
		v.clear()
	}
}

// gradients binds grad as foreach implementations do: a copy of the gradients
// if they are negated or the parameters are added to them, one for both.
func (v *local) gradients(ps []*Param, maximize, coupled bool) {
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
