package module

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// Outcome is what the forward of a torch.autograd.Function leaves: its results, what
// ctx.save_for_backward saves, and what it keeps as attributes of ctx, which live as
// long as the graph. What is saved or kept are local variables.
type Outcome struct {
	Returned, Saved, Kept []value.Value
	// IfWanted says that it keeps attributes only if the gradient of its first input
	// is wanted; its backward then finds none.
	IfWanted bool
}

// Apply applies a torch.autograd.Function of a library. Its backward takes the
// gradients and what was saved and kept, and returns the first inputs' gradients.
func (b *Builder) Apply(name string, params []string, args []value.Value, forward func(f *Builder, in []value.Value) Outcome, backward func(f *Builder, grads, saved []value.Value) []value.Value) value.Value {
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
	left := forward(f, in)
	a := &program.Autograd{Class: b.Class, Results: len(left.Returned)}
	outs := left.Returned // and behind them what is saved and kept
	var save []op.Save
	for _, v := range left.Saved {
		a.Saved = append(a.Saved, v.Expr.Slot)
		at := slices.IndexFunc(left.Returned, v.Same)
		if at < 0 {
			at, outs = len(outs), append(outs[:len(outs):len(outs)], v)
		}
		save = append(save, op.Out(at))
	}
	for _, v := range left.Kept {
		a.Kept = append(a.Kept, v.Expr.Slot)
		outs = append(outs[:len(outs):len(outs)], v)
	}
	f.Finish(outs...)
	var noGrad []int
	for i := a.Results; i < len(outs); i++ {
		noGrad = append(noGrad, i)
	}
	if left.IfWanted {
		unkept := b.Apply(name, params, args, func(f *Builder, in []value.Value) Outcome {
			left := forward(f, in)
			left.Kept, left.IfWanted = nil, false
			return left
		}, backward)
		a.Unkept = unkept.Expr.Func
	}
	a.Row = op.Function(name, save, noGrad)
	f.Func.Autograd = a

	g := b.function(&program.Func{Name: "backward", Kind: program.Function})
	var grads, saved []value.Value
	for _, r := range left.Returned {
		grads = append(grads, g.slot("grad_output", r.Meta))
	}
	for _, v := range slices.Concat(left.Saved, left.Kept) {
		saved = append(saved, g.slot(f.Func.Slots[v.Expr.Slot], v.Meta))
	}
	g.Func.Params = len(g.Func.Slots)
	out := backward(g, grads, saved)
	g.Finish(out[:len(call.Args)]...)
	a.Backward = g.Func
	return value.Value{Expr: call, Meta: value.Returned(left.Returned)}
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
