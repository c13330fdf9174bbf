package graph

import (
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// picked is the item of a tuple that pick: names, or with a list of indices an
// item of an inner tuple: [1, 0] is result[1][0].
func (el *elaborator) picked(pick *spec.Value, env spec.Env, v value.Value) value.Value {
	x := el.eval(pick, env)
	path, ok := x.([]any)
	if !ok {
		path = []any{x}
	}
	if len(path) == 0 {
		el.fail(pick.Span, "pick needs an index")
	}
	for i, index := range path {
		k, ok := index.(int64)
		if !ok {
			el.fail(pick.Span, "pick must be an integer, not %s", spec.Show(index))
		}
		if v.Meta.Tuple == nil || k < 0 || k >= int64(len(v.Meta.Tuple)) {
			if i == 0 && v.Meta.Tensor != nil {
				el.fail(pick.Span, "the result is one tensor, not a tuple; remove pick")
			}
			el.fail(pick.Span, "pick %d is out of range for %s", k, v.Meta.Describe())
		}
		v = value.Value{Expr: &program.Expr{Kind: program.Pick, Index: int(k), Args: []*program.Expr{v.Expr}}, Meta: v.Meta.Tuple[k]}
	}
	return v
}

// spread lists what the names of an entry are bound to when the tuple m is
// unpacked, with its inner tuples where the names are nested.
func (f *fn) spread(e *spec.Entry, m value.Meta) []value.Meta {
	items := len(e.Name)
	if e.Nest != nil {
		items = len(e.Nest)
	}
	if m.Tuple == nil || len(m.Tuple) != items {
		f.u.el.fail(e.Name[0].At, "%d names cannot unpack %s", items, m.Describe())
	}
	if e.Nest == nil {
		return m.Tuple
	}
	var out []value.Meta
	for i, n := range e.Nest {
		switch inner := m.Tuple[i]; {
		case n == 0:
			out = append(out, inner)
		case inner.Tuple == nil || len(inner.Tuple) != n:
			f.u.el.fail(e.Name[len(out)].At, "%d names cannot unpack %s", n, inner.Describe())
		default:
			out = append(out, inner.Tuple...)
		}
	}
	return out
}
