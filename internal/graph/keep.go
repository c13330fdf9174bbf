package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// The variables that keep values unless a spec names another.
const (
	keptList = "kept"
	keptSum  = "total"
)

// keep elaborates a statement that holds a value longer than its name does: in
// a list, or added to a sum.
func (f *fn) keep(e *spec.Entry, sc *scope, st program.Stmt) {
	el := f.u.el
	a := f.keywords(e, []string{"of", "detach", "item", "to", "in", "sum"})
	if a["of"] == nil {
		el.fail(e.At, "keep needs the name of a value, such as {keep: loss}")
	}
	v := f.reference(el.evalStr(a["of"], sc, "of"), a["of"].Span)
	if v.Meta.Tensor == nil {
		el.fail(a["of"].Span, "keep takes a tensor, not %s", v.Meta.Describe())
	}
	flag := func(name string) bool { return a[name] != nil && el.evalBool(a[name], sc, name) }
	k := &program.Keep{List: keptList, Detach: flag("detach"), Item: flag("item"), Sum: flag("sum")}
	if to := a["to"]; to != nil {
		if s := el.evalStr(to, sc, "to"); s != "cpu" {
			el.errs.Unknown(to.Span, "value of to", s, []string{"cpu"})
			panic(spec.Stop{})
		}
		k.CPU = true
	}
	if k.Item && v.Meta.Tensor.Numel() != 1 {
		el.fail(a["item"].Span, "item needs a tensor of one element, not of shape %v", v.Meta.Tensor.Size)
	}
	if k.Sum {
		k.List = keptSum
	}
	at := e.At
	if in := a["in"]; in != nil {
		k.List, at = el.evalStr(in, sc, "in"), in.Span
		if !spec.IsName(k.List) {
			el.fail(at, "in must be a Python identifier, not %q", k.List)
		}
	}
	el.keepIn(k, at)
	st.Kind, st.Value, st.Keep = program.KeepValue, v.Expr, k
	f.emit(st)
}

// keepIn declares the variable of a keep.
func (el *elaborator) keepIn(k *program.Keep, at spec.Span) {
	for _, o := range *el.kept {
		if o.Name == k.List {
			if o.Sum != k.Sum {
				el.fail(at, "%s is a list in one keep and a sum in another; give one of them another name with in:", k.List)
			}
			return
		}
	}
	*el.kept = append(*el.kept, program.Kept{Name: k.List, Sum: k.Sum})
}
