package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// picked is the item of a tuple that pick: names, or with a list of indices an
// item of an inner tuple: [1, 0] is result[1][0].
func (el *elaborator) picked(pick *spec.Value, env spec.Env, v val) val {
	x := el.eval(pick, env)
	path, ok := x.([]any)
	if !ok {
		path = []any{x}
	}
	if len(path) == 0 {
		el.fail(pick.Span, "pick needs an index")
	}
	for _, index := range path {
		k, ok := index.(int64)
		if !ok {
			el.fail(pick.Span, "pick must be an integer, not %s", spec.Show(index))
		}
		if v.m.tuple == nil || k < 0 || k >= int64(len(v.m.tuple)) {
			el.fail(pick.Span, "pick %d does not apply to %s", k, v.m.describe())
		}
		v = val{&program.Expr{Kind: program.Pick, Index: int(k), Args: []*program.Expr{v.e}}, v.m.tuple[k]}
	}
	return v
}

// spread lists what the names of an entry are bound to when the tuple m is
// unpacked, with its inner tuples where the names are nested.
func (f *fn) spread(e *spec.Entry, m meta) []meta {
	items := len(e.Name)
	if e.Nest != nil {
		items = len(e.Nest)
	}
	if m.tuple == nil || len(m.tuple) != items {
		f.u.el.fail(e.Name[0].At, "%d names for %s", items, m.describe())
	}
	if e.Nest == nil {
		return m.tuple
	}
	var out []meta
	for i, n := range e.Nest {
		switch inner := m.tuple[i]; {
		case n == 0:
			out = append(out, inner)
		case inner.tuple == nil || len(inner.tuple) != n:
			f.u.el.fail(e.Name[len(out)].At, "%d names for %s", n, inner.describe())
		default:
			out = append(out, inner.tuple...)
		}
	}
	return out
}
