package module

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// Apply applies a torch.autograd.Function of a library: forward returns its
// results and what it keeps as attributes of the context, backward takes the
// gradients and what was kept and returns the first inputs' gradients.
func (b *Builder) Apply(name string, params []string, args []value.Value, forward func(f *Builder, in []value.Value) (rets, kept []value.Value), backward func(f *Builder, grads, kept []value.Value) []value.Value) value.Value {
	f := b.function(&program.Func{Name: name, Kind: program.Module})
	call := &program.Expr{Kind: program.CallFun, Func: f.Func}
	in := make([]value.Value, len(params))
	for i, p := range params {
		if args[i].Absent() {
			continue
		}
		in[i] = f.slot(p, args[i].Meta)
		call.Args = append(call.Args, args[i].Expr)
	}
	f.Func.Params = len(f.Func.Slots)
	rets, kept := forward(f, in)
	f.Finish(slices.Concat(rets, kept)...)
	a := &program.Autograd{Class: b.Class, Results: len(rets)}
	var noGrad []int
	for i, k := range kept {
		a.Kept = append(a.Kept, k.Expr.Slot)
		noGrad = append(noGrad, len(rets)+i)
	}
	if len(kept) > 0 {
		unkept := b.Apply(name, params, args, func(f *Builder, in []value.Value) ([]value.Value, []value.Value) {
			rets, _ := forward(f, in)
			return rets, nil
		}, backward)
		a.Unkept = unkept.Expr.Func
	}
	a.Row = op.Function(name, nil, noGrad)
	f.Func.Autograd = a

	g := b.function(&program.Func{Name: "backward", Kind: program.Function})
	var grads, attrs []value.Value
	for _, r := range rets {
		grads = append(grads, g.slot("grad_output", r.Meta))
	}
	for i, k := range kept {
		attrs = append(attrs, g.slot(f.Func.Slots[a.Kept[i]], k.Meta))
	}
	g.Func.Params = len(g.Func.Slots)
	out := backward(g, grads, attrs)
	g.Finish(out[:len(call.Args)]...)
	a.Backward = g.Func
	return value.Value{Expr: call, Meta: value.Returned(rets)}
}

// slot makes a new local variable of the function under way.
func (b *Builder) slot(name string, m value.Meta) value.Value {
	b.slots[name] = len(b.Func.Slots)
	b.Func.Slots = append(b.Func.Slots, name)
	return value.Value{Expr: &program.Expr{Kind: program.Local, Slot: b.slots[name]}, Meta: m}
}

// Wants makes the last n statements depend on whether the gradient of an input,
// counted from 1, is wanted.
func (b *Builder) Wants(input, n int) {
	for i := len(b.Func.Body) - n; i < len(b.Func.Body); i++ {
		b.Func.Body[i].Wants = input
	}
}

// Attr is a parameter of the class under way, nothing if it has none of that
// name.
func (b *Builder) Attr(name string) value.Value {
	p := b.Class.FindParam(name)
	if p == nil {
		return value.Value{}
	}
	return b.Own(name, p.DType, p.Size)
}
