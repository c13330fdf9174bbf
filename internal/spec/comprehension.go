package spec

import (
	"maps"

	"go.starlark.net/syntax"
)

func (ev *evaluator) comprehension(e *syntax.Comprehension) (any, error) {
	if e.Curly || len(e.Clauses) == 0 {
		return nil, ev.fail(e, "only list comprehensions are part of the language")
	}
	var out []any
	var run func(k int) error
	run = func(k int) error {
		if k == len(e.Clauses) {
			v, err := ev.eval(e.Body)
			if err != nil {
				return err
			}
			if out = append(out, v); len(out) > maxList {
				return ev.fail(e, "list is longer than %d", maxList)
			}
			return nil
		}
		switch c := e.Clauses[k].(type) {
		case *syntax.IfClause:
			v, err := ev.eval(c.Cond)
			if err != nil {
				return err
			}
			if truth(v) {
				return run(k + 1)
			}
			return nil
		case *syntax.ForClause:
			names, err := ev.variables(c.Vars)
			if err != nil {
				return err
			}
			v, err := ev.eval(c.X)
			if err != nil {
				return err
			}
			list, ok := v.([]any)
			if !ok {
				return ev.fail(c.X, "\"for\" needs a list, not %s", typeName(v))
			}
			if ev.local == nil {
				ev.local = map[string]any{}
			}
			old := maps.Clone(ev.local)
			for _, it := range list {
				if err := ev.bind(c, names, it); err != nil {
					return err
				}
				if err := run(k + 1); err != nil {
					return err
				}
			}
			ev.local = old
		}
		return nil
	}
	if err := run(0); err != nil {
		return nil, err
	}
	return ev.made(e, out)
}

// variables are the names that each item of a loop is bound to.
func (ev *evaluator) variables(e syntax.Expr) ([]string, error) {
	switch e := e.(type) {
	case *syntax.Ident:
		return []string{e.Name}, nil
	case *syntax.ParenExpr:
		return ev.variables(e.X)
	case *syntax.TupleExpr:
		var out []string
		for _, x := range e.List {
			id, ok := x.(*syntax.Ident)
			if !ok {
				return nil, ev.fail(e, "the variables of \"for\" are names")
			}
			out = append(out, id.Name)
		}
		if len(out) > 1 {
			return out, nil
		}
	}
	return nil, ev.fail(e, "the variables of \"for\" are names")
}

// bind binds the variables of a loop to an item, which several unpack.
func (ev *evaluator) bind(c *syntax.ForClause, names []string, item any) error {
	if len(names) == 1 {
		ev.local[names[0]] = item
		return nil
	}
	items, ok := item.([]any)
	if !ok || len(items) != len(names) {
		return ev.fail(c.Vars, "%d variables cannot unpack %s", len(names), Show(item))
	}
	for i, n := range names {
		ev.local[n] = items[i]
	}
	return nil
}
