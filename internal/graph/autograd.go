package graph

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// apply elaborates a torch.autograd.Function and applies it to inputs. Its
// backward is a function that takes the gradients of the results, then the saved
// and the kept tensors; it gets the params of the block that it has, too.
func (u *unit) apply(b *spec.Named[spec.Block], with map[string]any, ins []value.Value, at spec.Span) value.Value {
	el := u.el
	key := fmt.Sprintf("%p %s %s", b, keyOf(with), el.keyOfVals(ins))
	made, ok := el.cache[key]
	if !ok {
		el.enter(at)
		spec.Try(func() { made = u.autograd(b, with, ins, at) })
		el.depth--
		el.cache[key] = made
	}
	if made == nil { // its mistakes are known
		panic(spec.Stop{})
	}
	f := made.class.Forward
	known := false
	for _, g := range u.class.Applied {
		known = known || g == f
	}
	if !known {
		u.class.Applied = append(u.class.Applied, f)
	}
	x := &program.Expr{Kind: program.CallFun, Func: f}
	for _, v := range ins {
		x.Args = append(x.Args, v.Expr)
	}
	v := value.Value{Expr: x, Meta: value.Returned(made.rets)}
	el.bound(f, made.class, at)
	return v
}

// autograd elaborates the forward and the backward of a torch.autograd.Function.
func (u *unit) autograd(b *spec.Named[spec.Block], with map[string]any, ins []value.Value, at spec.Span) *elaborated {
	el := u.el
	sc := el.blockScope(b, u, with)
	n := el.newUnit(b.Name.V, sc, u.blocks)
	n.what = "block " + b.Name.V
	f := n.newFn("forward", program.Module, sc, inputNames(b.V), ins, at)
	n.class.Forward = f.f
	var rets []value.Value
	el.in(b, func() {
		rets = f.body(b)
		n.gradients(f, b, u, ins, rets)
	})
	if len(n.class.Children) > 0 {
		el.fail(b.Name.At, "block %q is an autograd function and cannot hold modules", b.Name.V)
	}
	return &elaborated{class: n.class, rets: rets}
}

// gradients makes the autograd function of a forward: what it saves, and its
// backward.
func (u *unit) gradients(f *fn, b *spec.Named[spec.Block], outer *unit, ins, rets []value.Value) {
	el := u.el
	a := &program.Autograd{Class: u.class, Results: len(rets)}
	for _, r := range rets {
		if r.Meta.Tensor == nil {
			el.fail(b.Name.At, "an autograd function returns tensors, not %s", r.Meta.Describe())
		}
		for _, v := range ins {
			if v.Meta.Tensor == r.Meta.Tensor {
				el.fail(b.Name.At, "an autograd function that returns one of its inputs is not modelled")
			}
		}
	}
	saved, save := f.saved(b, a, rets)
	var noGrad []int
	for i := a.Results; i < len(f.ret); i++ {
		noGrad = append(noGrad, i)
	}
	a.Row = op.Function(u.class.Name, save, noGrad)
	f.f.Autograd = a
	a.Backward = u.backward(b, outer, ins, rets, saved)
}

// saved resolves the names that an autograd function saves and those that it
// keeps. Forward returns them behind its results, because they are saved when it
// has returned.
func (f *fn) saved(b *spec.Named[spec.Block], a *program.Autograd, rets []value.Value) (saved []value.Value, save []op.Save) {
	ret := &f.f.Body[len(f.f.Body)-1]
	hide := func(v value.Value) {
		if ret.Value != nil {
			ret.Value, ret.Values = nil, []*program.Expr{ret.Value}
		}
		ret.Values = append(ret.Values, v.Expr)
		f.ret = append(f.ret[:len(f.ret):len(f.ret)], v)
	}
	for _, s := range b.V.Save {
		v := f.tensor(s)
		saved, a.Saved = append(saved, v), append(a.Saved, v.Expr.Slot)
		if i := slices.IndexFunc(rets, func(r value.Value) bool { return r.Meta.Tensor == v.Meta.Tensor }); i >= 0 {
			save = append(save, op.Out(i))
		} else {
			hide(v)
			save = append(save, op.Out(len(ret.Values)-1))
		}
	}
	for _, s := range b.V.Keep {
		v := f.tensor(s)
		saved, a.Kept = append(saved, v), append(a.Kept, v.Expr.Slot)
		hide(v)
	}
	return saved, save
}

// tensor is the local tensor of that name.
func (f *fn) tensor(s spec.String) value.Value {
	slot, ok := f.slots[s.V]
	if !ok || !f.bound[slot] {
		f.u.el.errs.Unknown(s.At, "value", s.V, f.boundNames())
		panic(spec.Stop{})
	}
	if f.holds[slot].by != nil {
		f.u.el.fail(s.At, "%s", f.twoValues(slot))
	}
	v := f.local(s.V)
	if v.Meta.Tensor == nil {
		f.u.el.fail(s.At, "this must be a tensor, not %s", v.Meta.Describe())
	}
	return v
}

// backward elaborates the function that computes the gradients of ins.
func (u *unit) backward(b *spec.Named[spec.Block], outer *unit, ins, rets, saved []value.Value) *program.Func {
	el := u.el
	back := u.blocks[b.V.Backward.V]
	given := map[string]any{}
	if p := back.V.Params; p != nil {
		for _, pair := range p.Pairs {
			if v, ok := u.scope.vars[pair.Key.Str]; ok {
				given[pair.Key.Str] = v
			}
		}
	}
	var args []value.Value
	for _, r := range rets {
		args = append(args, value.Value{Meta: value.Tensor(&op.Tensor{Layout: tensor.Contiguous(r.Meta.Tensor.Size), DType: r.Meta.Tensor.DType})})
	}
	args = append(args, saved...)
	sc := el.blockScope(back, outer, given)
	u.what = "block " + back.Name.V
	f := u.newFn("backward", program.Function, sc, inputNames(back.V), args, back.Name.At)
	var grads []value.Value
	el.in(back, func() { grads = f.body(back) })
	if len(grads) != len(ins) {
		el.fail(back.Name.At, "function %q returns %s for %s of %q; return None for an input without one", back.Name.V,
			spec.Plural(len(grads), "gradient"), spec.Plural(len(ins), "input"), b.Name.V)
	}
	for i, g := range grads {
		switch in := ins[i].Meta.Tensor; {
		case g.Meta.None || g.Meta.Tensor == nil && in == nil:
		case g.Meta.Tensor == nil || in == nil || g.Meta.Tensor.Size != in.Size:
			el.fail(back.Name.At, "function %q returns %s as the gradient of %s", back.Name.V, g.Meta.Describe(), ins[i].Meta.Describe())
		}
	}
	return f.f
}
