package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/spec"
)

// inputs evaluates the inputs of what has parameters of these names: those of the
// entry, by position or by name, and the keywords of its call. Without any the previous
// value is the first.
func (f *fn) inputs(e *spec.Entry, sc *scope, what string, names []string, keywords *spec.Value) []value.Value {
	places, named := f.given(e, what, names, keywords)
	first := !e.HasIn && (len(names) == 0 || named[names[0]] == nil)
	var ins []value.Value
	if first {
		ins = append(ins, f.previous(e))
	} else {
		ins = f.operands(places, sc)
	}
	if len(named) == 0 {
		return ins
	}
	var rest []*spec.Operand
	for i, name := range names {
		o := named[name]
		switch {
		case i < len(ins) && o != nil: // behind *xs
			f.u.el.fail(o.At, "input %s of %s is given twice", name, what)
		case i < len(ins):
		case o == nil:
			f.u.el.fail(e.At, "%s needs %s", what, name)
		default:
			rest = append(rest, o)
		}
	}
	return append(ins, f.operands(rest, sc)...)
}

// given splits the inputs of a call into those by position and those by name, of which
// there are names. A mapping in inputs: gives names, unless it is an inline entry.
func (f *fn) given(e *spec.Entry, what string, names []string, keywords *spec.Value) (places []*spec.Operand, named map[string]*spec.Operand) {
	el := f.u.el
	named = map[string]*spec.Operand{}
	last, computed := -1, false // of those by name
	name := func(n spec.String, o *spec.Operand) {
		i := slices.Index(names, n.V)
		switch {
		case i < 0:
			el.errs.Unknown(n.At, "input of "+what, n.V, names)
			panic(spec.Stop{})
		case named[n.V] != nil || i < len(places):
			el.fail(n.At, "input %s of %s is given twice", n.V, what)
		case o == nil:
			panic(spec.Stop{})
		}
		computed = computed || o.Value == nil || spec.IsTree(o.Value.Str) || strings.HasSuffix(o.Value.Str, ".pop")
		if computed && i < last {
			el.fail(n.At, "inputs by name that are computed in the call stand in the order of %s(%s)", what, strings.Join(names, ", "))
		}
		named[n.V], last = o, max(last, i)
	}
	for _, o := range e.Inputs {
		switch {
		case o.Named != nil:
			for _, p := range o.Named {
				name(p.Name, p.V)
			}
		case o.Bare() && !isCall(o.Nested.Head.V):
			if v := o.Nested.Arg; v == nil {
				el.fail(o.At, "input %s of %s has no value; null is None", o.Nested.Head.V, what)
			} else {
				name(o.Nested.Head, el.spec.Operand(v))
			}
		case o.Bare() && slices.Contains(names, o.Nested.Head.V):
			el.fail(o.At, "%s is an operator and an input of %s; give this input by position", o.Nested.Head.V, what)
		case len(named) > 0:
			el.fail(o.At, "an input by position stands before those by name")
		default:
			places = append(places, o)
		}
	}
	if keywords != nil {
		for _, p := range keywords.Pairs {
			name(spec.String{V: p.Key.Str, At: p.Key.Span, Set: true}, el.spec.Operand(p.Value))
		}
	}
	if len(named) > 0 && len(places) > len(names) {
		el.fail(e.At, "%s takes %s (%s), but more are given", what, spec.Plural(len(names), "input"), strings.Join(names, ", "))
	}
	return places, named
}
