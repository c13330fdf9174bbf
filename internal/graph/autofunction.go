package graph

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// apply applies a torch.autograd.Function of a library: forward returns its
// results and what it keeps as attributes of the context, backward takes the
// gradients and what was kept and returns the first inputs' gradients.
func (b *builder) apply(name string, params []string, args []val, forward func(f *builder, in []val) (rets, kept []val), backward func(f *builder, grads, kept []val) []val) val {
	f := b.function(&program.Func{Name: name, Kind: program.Module})
	call := &program.Expr{Kind: program.CallFun, Func: f.fn}
	in := make([]val, len(params))
	for i, p := range params {
		if args[i].isNone() {
			continue
		}
		in[i] = f.slot(p, args[i].m)
		call.Args = append(call.Args, args[i].e)
	}
	f.fn.Params = len(f.fn.Slots)
	rets, kept := forward(f, in)
	f.finish(append(append([]val{}, rets...), kept...))
	a := &program.Autograd{Class: b.class, Results: len(rets)}
	var noGrad []int
	for i, k := range kept {
		a.Kept = append(a.Kept, k.e.Slot)
		noGrad = append(noGrad, len(rets)+i)
	}
	if len(kept) > 0 {
		unkept := b.apply(name, params, args, func(f *builder, in []val) ([]val, []val) {
			rets, _ := forward(f, in)
			return rets, nil
		}, backward)
		a.Unkept = unkept.e.Func
	}
	a.Row = op.Function(name, nil, noGrad)
	f.fn.Autograd = a

	g := b.function(&program.Func{Name: "backward", Kind: program.Function})
	var grads, attrs []val
	for _, r := range rets {
		grads = append(grads, g.slot("grad_output", r.m))
	}
	for i, k := range kept {
		attrs = append(attrs, g.slot(f.fn.Slots[a.Kept[i]], k.m))
	}
	g.fn.Params = len(g.fn.Slots)
	out := backward(g, grads, attrs)
	g.finish(out[:len(call.Args)])
	a.Backward = g.fn
	return val{call, metaOf(rets)}
}

// slot makes a new local variable of the function under way.
func (b *builder) slot(name string, m meta) val {
	b.slots[name] = len(b.fn.Slots)
	b.fn.Slots = append(b.fn.Slots, name)
	return val{&program.Expr{Kind: program.Local, Slot: b.slots[name]}, m}
}

// wants makes the last n statements depend on whether the gradient of an input,
// counted from 1, is wanted.
func (b *builder) wants(input, n int) {
	for i := len(b.fn.Body) - n; i < len(b.fn.Body); i++ {
		b.fn.Body[i].Wants = input
	}
}

// attr is a parameter of the class under way, nothing if it has none of that
// name.
func (b *builder) attr(name string) val {
	p := b.class.FindParam(name)
	if p == nil {
		return val{}
	}
	return b.own(name, p.DType, p.Size)
}
