package program

import "slices"

// Statements lists the statements of a function, those of closures in it
// included.
func (f *Func) Statements() []*Stmt {
	var out []*Stmt
	for i := range f.Body {
		s := &f.Body[i]
		out = append(out, s)
		if s.Closure != nil {
			out = append(out, s.Closure.Statements()...)
		}
	}
	return out
}

// Exprs calls visit with every expression in a function, those of closures in it
// included.
func (f *Func) Exprs(visit func(e *Expr)) {
	var walk func(e *Expr)
	walk = func(e *Expr) {
		if e == nil {
			return
		}
		visit(e)
		for _, a := range e.Args {
			walk(a)
		}
	}
	for _, s := range f.Statements() {
		walk(s.Value)
		for _, v := range s.Values {
			walk(v)
		}
	}
}

// Calls reports whether a function, or one that it calls, calls a model.
func (f *Func) Calls(model string) bool {
	var funcs []*Func
	calls := false
	f.Exprs(func(e *Expr) {
		calls = calls || e.Kind == CallModel && e.Model == model
		if e.Kind == CallFun {
			funcs = append(funcs, e.Func)
		}
	})
	return calls || slices.ContainsFunc(funcs, func(g *Func) bool { return g.Calls(model) })
}
