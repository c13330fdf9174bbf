package graph

import (
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// autogradGrad evaluates torch.autograd.grad, whose result is a tuple with the
// gradient of each input.
func (f *fn) autogradGrad(e *spec.Entry, sc *scope) value.Value {
	el := f.u.el
	if !f.u.script {
		el.fail(e.Head.At, "%s stands in a step, a loss or a function that these call, not in %s", e.Head.V, f.u.what)
	}
	a := f.keywords(e, []string{"outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"})
	tensors := func(key string) []value.Value {
		v := a[key]
		if v == nil {
			return nil
		}
		o := el.spec.Operand(v)
		if o == nil {
			panic(spec.Stop{})
		}
		list := []*spec.Operand{o}
		if o.List != nil {
			list = o.List
		}
		vs := f.operands(list, sc)
		for _, x := range vs {
			if x.Meta.Tensor == nil {
				el.fail(v.Span, "%s of grad are tensors, not %s", key, x.Describe())
			}
		}
		return vs
	}
	outputs, inputs, grads := tensors("outputs"), tensors("inputs"), tensors("grad_outputs")
	switch {
	case len(outputs) == 0 || len(inputs) == 0:
		el.fail(e.At, "grad needs outputs and inputs, such as {grad: {outputs: loss, inputs: x}}")
	case len(grads) > 0 && len(grads) != len(outputs):
		el.fail(a["grad_outputs"].Span, "grad_outputs are as many as the outputs: %d, not %d", len(outputs), len(grads))
	}
	for i, o := range outputs {
		switch t := o.Meta.Tensor; {
		case len(grads) == 0 && t.Numel() != 1:
			el.fail(a["outputs"].Span, "grad of an output of shape %v needs grad_outputs; without, an output has one element", t.Size)
		case len(grads) > 0 && grads[i].Meta.Tensor.Size != t.Size:
			el.fail(a["grad_outputs"].Span, "the gradient of an output of shape %v has shape %v", t.Size, grads[i].Meta.Tensor.Size)
		}
	}
	g := &program.GradCall{Outputs: len(outputs), Inputs: len(inputs)}
	if v := a["retain_graph"]; v != nil {
		g.Retains, g.Retain = true, el.evalBool(v, sc, "retain_graph")
	}
	if v := a["create_graph"]; v != nil {
		g.Create = el.evalBool(v, sc, "create_graph")
	}
	x := &program.Expr{Kind: program.CallGrad, Grad: g}
	m := value.Meta{}
	for _, vs := range [][]value.Value{outputs, inputs, grads} {
		for _, v := range vs {
			x.Args = append(x.Args, v.Expr)
		}
	}
	for _, v := range inputs {
		t := v.Meta.Tensor
		m.Tuple = append(m.Tuple, value.Tensor(&op.Tensor{Layout: tensor.Contiguous(t.Size), DType: t.DType}))
	}
	return value.Value{Expr: x, Meta: m}
}
