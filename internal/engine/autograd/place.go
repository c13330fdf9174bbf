package autograd

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// place is a line of the spec, or of a preset: that of the statement at work. The
// statements of library modules have none; their place is the caller's.
type place struct {
	fn   *program.Func
	line int
}

// EnterFunc notes the function at work, of which no statement is yet.
func (p *Player) EnterFunc(fn *program.Func) { p.at = place{fn: fn} }

// EnterStmt notes the statement at work.
func (p *Player) EnterStmt(fn *program.Func, s *program.Stmt) {
	if s.Line > 0 {
		p.at = place{fn, s.Line}
	}
}

// failAt reports an error of the program at a place.
func (p *Player) failAt(at place, format string, args ...any) {
	e := &program.Error{Layer: p.tr.Layers[p.Layer], Op: p.tr.Ops[p.Op], Msg: fmt.Sprintf(format, args...)}
	if at.fn != nil {
		e.File, e.Line = at.fn.File, at.line
		if at.fn.Remedy != "" {
			e.Msg += "; " + at.fn.Remedy
		}
	}
	panic(e)
}

// Changes notes that an operator modifies t in place: PyTorch counts it
// in the version of all tensors over its storage.
func (p *Player) Changes(t *op.Tensor) {
	st := Of(t).st
	st.version++
	st.changed = p.at
}

// refuseChanged fails at the statement that changed t in place after a node had
// saved it (SavedVariable::unpack in torch/csrc/autograd/saved_variable.cpp).
func (p *Player) refuseChanged(n *Node, t *op.Tensor) {
	p.failAt(Of(t).st.changed, "one of the variables needed for gradient computation has been modified by an inplace operation, PyTorch says: "+
		"here a tensor of shape %v is changed that %s needs", t.Size, p.tr.Ops[n.op])
}
