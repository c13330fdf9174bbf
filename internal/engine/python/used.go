package python

import "github.com/memplan/memplan/internal/program"

// Used lists the parameters and buffers of a module and of those in it, each once, in
// the order in which the code of forward names them.
func (m *Module) Used() []*Cell {
	u := &used{seen: map[*Cell]bool{}}
	u.function(m, m.Class.Forward)
	return u.cells
}

type used struct {
	cells []*Cell
	seen  map[*Cell]bool
}

func (u *used) function(m *Module, fn *program.Func) {
	if fn == nil {
		return
	}
	for i := range fn.Body {
		s := &fn.Body[i]
		if s.InEval || s.Fast || s.Kind == program.FastReturn {
			continue
		}
		u.expr(m, s.Value)
		for _, e := range s.Values {
			u.expr(m, e)
		}
	}
}

func (u *used) expr(m *Module, e *program.Expr) {
	if e == nil {
		return
	}
	for _, a := range e.Args {
		u.expr(m, a)
	}
	switch e.Kind {
	case program.Attr:
		if at := m.param(e.Path); at != nil && *at != nil && !u.seen[*at] {
			u.seen[*at] = true
			u.cells = append(u.cells, *at)
		}
	case program.CallMod:
		to, fn := m.Children[e.Child], e.Forward
		if fn == nil {
			if fn = to.Class.Forward; to.forward != nil {
				fn = to.forward
			}
		}
		u.function(to, fn)
	case program.CallFun:
		u.function(m, e.Func)
	}
}
