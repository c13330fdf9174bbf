package python

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// autogradGrad plays torch.autograd.grad, which returns a tuple. Its frame holds
// outputs and inputs in one tuple, then the gradients in another.
func (p *Interp) autogradGrad(fr *Frame, e *program.Expr) Value {
	from := len(p.trail.temps)
	var room [4]Value
	args := append([]Value(nil), p.args(room[:0], fr, e)...)
	p.trail.pop(from)
	n, m := e.Grad.Outputs, e.Grad.Outputs+e.Grad.Inputs
	tensors := make([]*op.Tensor, len(args))
	for i, v := range args {
		tensors[i] = v.T
	}
	grads := make([]*op.Tensor, n)
	copy(grads, tensors[m:])
	keep := e.Grad.Create
	if e.Grad.Retains {
		keep = e.Grad.Retain
	}
	result := NewList(make([]Value, e.Grad.Inputs))
	for i, t := range p.Grad(tensors[:n], tensors[n:m], grads, keep, e.Grad.Create) {
		result.Items[i] = Value{T: t}
	}
	p.LetGoAll(args[:m])
	for i := n - 1; i >= 0; i-- {
		p.Drop(grads[i])
	}
	return Value{List: result}
}
