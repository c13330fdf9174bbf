package python

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// Value is what a Python name or stack slot holds: a tensor, a list or tuple,
// or nothing (None, or unbound).
type Value struct {
	T    *op.Tensor
	List *List
}

// List is a Python list or tuple.
type List struct {
	Items []Value
	refs  int
}

// NewList returns a list or tuple that takes over its items.
func NewList(items []Value) *List { return &List{refs: 1, Items: items} }

// Hold adds a reference to what v holds.
func (p *Interp) Hold(v Value) Value {
	switch {
	case v.T != nil:
		p.Keep(v.T)
	case v.List != nil:
		v.List.refs++
	}
	return v
}

// LetGo gives one up. A list or tuple that is destroyed drops its items from
// the last to the first.
func (p *Interp) LetGo(v Value) {
	switch {
	case v.T != nil:
		p.Drop(v.T)
	case v.List != nil:
		if v.List.refs--; v.List.refs == 0 {
			for i := len(v.List.Items) - 1; i >= 0; i-- {
				p.LetGo(v.List.Items[i])
			}
		}
	}
}

// HoldAll adds a reference to each value of a tuple.
func (p *Interp) HoldAll(vs []Value) []Value {
	out := make([]Value, len(vs))
	for i, v := range vs {
		out[i] = p.Hold(v)
	}
	return out
}

// LetGoAll gives up those of HoldAll, from the last to the first.
func (p *Interp) LetGoAll(vs []Value) {
	for i := len(vs) - 1; i >= 0; i-- {
		p.LetGo(vs[i])
	}
}

// copied is a copy of args, which may lie on the stack of a Go function. What
// slices.Clone returns is over the same array as far as the compiler can tell.
func copied(args []Value) []Value { return append([]Value(nil), args...) }

// letGoEach gives up the values of a dict, from the first on.
func (p *Interp) letGoEach(vs []Value) {
	for _, v := range vs {
		p.LetGo(v)
	}
}

// Frame is one call of a function.
type Frame struct {
	Self  *Module
	Fn    *program.Func
	Slots []Value

	held       []Value          // arguments that the caller keeps to the end
	checkpoint *checkpointFrame // of a call of torch.utils.checkpoint
	node       *autograd.Node   // of an autograd.Function
	wanted     []bool           // in its backward: which inputs' gradients
}

// wants reports whether the gradient of input i is wanted; one that is absent
// has none.
func (fr *Frame) wants(i int) bool { return i < len(fr.wanted) && fr.wanted[i] }

// Store binds a slot: the new value first, then the old one drops.
func (p *Interp) Store(fr *Frame, slot int, v Value) {
	old := fr.Slots[slot]
	fr.Slots[slot] = v
	p.LetGo(old)
}

// requires reports whether a tensor requires grad.
func (p *Interp) requires(fr *Frame, e *program.Expr) bool {
	v := p.Eval(fr, e)
	defer p.LetGo(v)
	return autograd.Of(v.T).Requires
}

// call runs a function whose first slots are bound, returns its value and gives
// up the frame. The locals drop in slot order after the value was taken.
func (p *Interp) call(fr *Frame) Value {
	var ret Value
	outer := p.Push()
	p.trail.enter(*fr)
	p.Env().Autocast = p.Env().Autocast && !fr.Fn.NoAutocast
	for i := range fr.Fn.Body {
		s := &fr.Fn.Body[i]
		if s.InEval && p.Env().Training || s.Fast && !p.inference(fr) || s.Wants > 0 && !fr.wants(s.Wants-1) || s.Requires != nil && p.requires(fr, s.Requires) == s.Unless {
			continue
		}
		p.Meter.Work(stmtWork)
		p.EnterStmt(fr.Fn, s)
		if s.Kind == program.Return || (s.Kind == program.FastReturn && p.inference(fr) && !p.hooked(fr.Self)) {
			p.InGradMode(s.Grad, func() { ret = p.Returned(fr, s) })
			break
		}
		if s.Grad == program.GradAround {
			p.Exec(fr, s)
		} else {
			p.InGradMode(s.Grad, func() { p.Exec(fr, s) })
		}
	}
	p.trail.leave()
	slots := fr.Slots
	for i := range slots {
		p.LetGo(slots[i])
	}
	*fr = Frame{Slots: slots[:0]}
	p.frames.Put(fr)
	p.Pop(outer)
	return ret
}

// InGradMode runs f in a mode of gradients.
func (p *Interp) InGradMode(m program.GradMode, f func()) {
	if m == program.GradAround {
		f()
		return
	}
	outer := p.Push()
	p.Env().GradMode = m.Within(p.Env().GradMode)
	f()
	p.Pop(outer)
}

// newFrame makes the frame of a call, which call gives up.
func (p *Interp) newFrame(self *Module, fn *program.Func) *Frame {
	fr := p.frames.Get(p.Meter)
	fr.Self, fr.Fn, fr.Slots = self, fn, p.slots.Zeroed(fr.Slots, len(fn.Slots))
	return fr
}

// Returned is the value of a return statement.
func (p *Interp) Returned(fr *Frame, s *program.Stmt) Value {
	if s.Value != nil {
		return p.Eval(fr, s.Value)
	}
	return Value{List: p.items(fr, s.Values)}
}

func (p *Interp) items(fr *Frame, es []*program.Expr) *List {
	l := NewList(make([]Value, len(es)))
	from := len(p.trail.temps)
	for i, e := range es {
		l.Items[i] = p.pushed(fr, e)
	}
	p.trail.pop(from)
	return unstarred(p, es, l)
}

// unstarred is a list whose items with a star are those of the lists that they
// hold.
func unstarred(p *Interp, es []*program.Expr, l *List) *List {
	if !slices.ContainsFunc(es, func(e *program.Expr) bool { return e.Kind == program.Star }) {
		return l
	}
	var items []Value
	for i, e := range es {
		if e.Kind != program.Star {
			items = append(items, l.Items[i])
			continue
		}
		items = append(items, p.HoldAll(l.Items[i].List.Items)...)
		p.LetGo(l.Items[i])
	}
	l.Items = items
	return l
}

// taken are some items of a list or tuple, as a new one; the list itself goes.
func (p *Interp) taken(from Value, items []int) Value {
	l := NewList(make([]Value, len(items)))
	for k, i := range items {
		l.Items[k] = p.Hold(from.List.Items[i])
	}
	p.LetGo(from)
	return Value{List: l}
}

// concat is x + y of lists or tuples.
func (p *Interp) concat(fr *Frame, e *program.Expr) Value {
	from := len(p.trail.temps)
	x, y := p.pushed(fr, e.Args[0]), p.pushed(fr, e.Args[1])
	p.trail.pop(from)
	l := NewList(append(p.HoldAll(x.List.Items), p.HoldAll(y.List.Items)...))
	p.LetGo(x)
	p.LetGo(y)
	return Value{List: l}
}

// number evaluates what a number is made of, which then goes.
func (p *Interp) number(fr *Frame, e *program.Expr) Value {
	from := len(p.trail.temps)
	var room [2]Value
	args := p.args(room[:0], fr, e)
	p.trail.pop(from)
	for _, a := range args {
		p.LetGo(a)
	}
	return Value{}
}

// inference reports whether the library module of a call takes its fused path:
// in eval mode, where no gradient of its arguments and parameters is wanted.
func (p *Interp) inference(fr *Frame) bool {
	if p.Env().Training || p.Env().Autocast {
		return false
	}
	if !p.Env().GradMode {
		return true
	}
	for _, v := range fr.Slots[:fr.Fn.Params] {
		if p.Requires(v.T) {
			return false
		}
	}
	wanted := false
	EachParameter(fr.Self, func(m *Module, i int) { wanted = wanted || autograd.Of(m.Params[i].T).Requires })
	return !wanted
}

// Exec runs a statement of a module or function.
func (p *Interp) Exec(fr *Frame, s *program.Stmt) {
	switch s.Kind {
	case program.Assign:
		if s.Value == nil {
			p.assignEach(fr, s)
			return
		}
		p.Assign(fr, s, p.Eval(fr, s.Value))
	case program.Append:
		l := fr.Slots[s.Targets[0]].List
		l.Items = append(l.Items, p.Eval(fr, s.Value))
	case program.Extend:
		l, more := fr.Slots[s.Targets[0]].List, p.Eval(fr, s.Value)
		l.Items = append(l.Items, p.HoldAll(more.List.Items)...)
		p.LetGo(more)
	case program.ListNew:
		p.Store(fr, s.Targets[0], Value{List: &List{refs: 1}})
	case program.Del:
		for _, t := range s.Targets {
			p.Store(fr, t, Value{})
		}
	case program.Expression:
		p.LetGo(p.Eval(fr, s.Value))
	case program.SetAttr:
		p.setAttr(*fr.Self.param(s.Path), p.Eval(fr, s.Value).T)
	case program.FastReturn: // not taken
	default:
		p.Fail("statement of a step inside of a module")
	}
}

// Assign binds the targets; a tuple is unpacked from left to right.
func (p *Interp) Assign(fr *Frame, s *program.Stmt, v Value) {
	if !s.Unpack {
		p.Store(fr, s.Targets[0], v)
		return
	}
	items := spread(v.List.Items, s.Nest)
	for _, it := range items {
		p.Hold(it)
	}
	p.LetGo(v)
	for i, t := range s.Targets {
		p.Store(fr, t, items[i])
	}
}

// spread replaces the items of a tuple that are unpacked again by theirs.
func spread(items []Value, nest []int) []Value {
	if nest == nil {
		return items
	}
	var out []Value
	for i, it := range items {
		if nest[i] == 0 {
			out = append(out, it)
		} else {
			out = append(out, it.List.Items...)
		}
	}
	return out
}

// assignEach is a, b = e1, e2: all values, then the targets. CPython makes no
// tuple of two or three of them and stores the last first (its compiler swaps
// the stores of local variables alone); more are a tuple and go from left to right,
// as do names of the script and those that a closure takes.
func (p *Interp) assignEach(fr *Frame, s *program.Stmt) {
	vs := make([]Value, len(s.Values))
	from := len(p.trail.temps)
	for i, e := range s.Values {
		vs[i] = p.pushed(fr, e)
	}
	p.trail.pop(from)
	swapped := len(vs) <= 3 && !slices.ContainsFunc(s.Targets, func(t int) bool { return t < fr.Fn.Globals || slices.Contains(fr.Fn.Cells, t) })
	for i := range vs {
		if swapped {
			i = len(vs) - 1 - i
		}
		p.Store(fr, s.Targets[i], vs[i])
	}
}

// Eval evaluates an expression; the caller owns the value.
func (p *Interp) Eval(fr *Frame, e *program.Expr) Value {
	switch e.Kind {
	case program.Local:
		return p.Hold(fr.Slots[e.Slot])
	case program.Item:
		items := fr.Slots[e.Slot].List.Items
		i := e.Index
		if i < 0 {
			i += len(items)
		}
		return p.Hold(items[i])
	case program.Pop:
		l := fr.Slots[e.Slot].List
		v := l.Items[len(l.Items)-1]
		l.Items = l.Items[:len(l.Items)-1]
		return v
	case program.Attr:
		return Value{T: p.Keep(p.attribute(*fr.Self.param(e.Path)))}
	case program.Pick:
		v := p.Eval(fr, e.Args[0])
		it := p.Hold(v.List.Items[e.Index])
		p.LetGo(v)
		return it
	case program.ListLit, program.TupleLit:
		return Value{List: p.items(fr, e.Args)}
	case program.Star:
		return p.Eval(fr, e.Args[0])
	case program.Slice, program.Times:
		return p.taken(p.Eval(fr, e.Args[0]), e.Items)
	case program.Concat:
		return p.concat(fr, e)
	case program.Scalar, program.Arith:
		return p.number(fr, e)
	case program.CallOp:
		return p.callOp(fr, e)
	case program.CallMod:
		var room [4]Value
		from := len(p.trail.temps)
		args := p.args(room[:0], fr, e)
		if e.Checkpoint != nil {
			return p.callCheckpoint(fr, e, copied(args))
		}
		p.trail.pop(from)
		p.names = e.Names
		return p.CallModule(fr.Self.Children[e.Child], e.Forward, args)
	case program.CallFun:
		if e.Func.Autograd != nil {
			return p.applyFunction(fr, e)
		}
		var room [4]Value
		from := len(p.trail.temps)
		args := p.args(room[:0], fr, e)
		if e.Checkpoint != nil {
			return p.callCheckpoint(fr, e, copied(args))
		}
		p.trail.pop(from)
		return p.CallFunction(fr.Self, e.Func, args)
	case program.CallGrad:
		return p.autogradGrad(fr, e)
	case program.CallModel:
		var room [4]Value
		from := len(p.trail.temps)
		args := p.args(room[:0], fr, e)
		p.trail.pop(from)
		return p.CallModel(e, copied(args))
	}
	return Value{} // None
}

// args evaluates the arguments of a call, from the first, and appends them to
// to. It is small enough to be inlined, so that to may lie on a stack.
func (p *Interp) args(to []Value, fr *Frame, e *program.Expr) []Value {
	for _, a := range e.Args {
		to = append(to, p.pushed(fr, a))
	}
	return to
}

// pushed evaluates an expression whose value lies on the evaluation stack then.
func (p *Interp) pushed(fr *Frame, e *program.Expr) Value {
	v := p.Eval(fr, e)
	p.trail.push(v)
	return v
}

// callOp pushes the arguments, runs the operator, and drops the arguments in
// evaluation order.
func (p *Interp) callOp(fr *Frame, e *program.Expr) Value {
	var room [4]Value
	from := len(p.trail.temps)
	args := p.args(room[:0], fr, e)
	ins := p.Inputs(max(len(e.Inputs), len(args)))
	if e.Inputs == nil {
		for _, a := range args { // a list is spread over the inputs
			if a.List == nil {
				ins = append(ins, a.T)
				continue
			}
			for _, it := range a.List.Items {
				ins = append(ins, it.T)
			}
		}
	} else {
		for _, i := range e.Inputs {
			if i < 0 {
				ins = append(ins, nil)
			} else {
				ins = append(ins, args[i].T)
			}
		}
	}
	p.trail.running = from
	row := e.Row
	if r := p.Functions[row]; r != nil {
		row = r
	}
	outs := p.Do(row, e.OpArgs, ins...)
	p.trail.running = -1
	p.trail.pop(from)
	for _, a := range args {
		p.LetGo(a)
	}
	p.DropVariables()
	if len(outs) == 1 && !row.List {
		return Value{T: outs[0]}
	}
	l := &List{refs: 1, Items: make([]Value, len(outs))}
	for i, o := range outs {
		l.Items[i] = Value{T: o}
	}
	return Value{List: l}
}

// CallModule calls a module. The caller holds the arguments until the call has
// returned and its frame is gone.
func (p *Interp) CallModule(m *Module, forward *program.Func, args []Value) Value {
	if p.base {
		m, forward = m.withoutAdapter(), nil
	}
	if forward == nil {
		if forward = m.Class.Forward; m.forward != nil {
			forward = m.forward
		}
	}
	fr := p.newFrame(m, forward)
	outer := p.Push()
	p.Layer = m.Layer
	passed := args
	names := p.names
	p.names = nil
	if m.Hooks != nil {
		passed = m.Hooks.PreForward(args, names)
	}
	if p.Recomputing > 0 {
		fr.held = copied(args)
		if m.Hooks != nil {
			fr.held = append(fr.held, passed...)
		}
	}
	for i, a := range passed[:len(args)] {
		fr.Slots[i] = p.Hold(a)
	}
	done := p.onload(m)
	v := p.call(fr)
	done()
	if m.Hooks != nil {
		v = m.Hooks.PostForward(v)
		p.LetGoAll(passed)
	}
	p.Pop(outer)
	for _, a := range args {
		p.LetGo(a)
	}
	return v
}

// withoutAdapter is the module that is called in the place of m while adapters are disabled.
func (m *Module) withoutAdapter() *Module {
	for _, child := range []string{program.BaseLayer, program.OriginalModule} {
		if i := m.Class.Child(child); i >= 0 {
			return m.Children[i]
		}
	}
	return m
}

// CallFunction calls a function, into whose locals the arguments move.
func (p *Interp) CallFunction(self *Module, fn *program.Func, args []Value) Value {
	fr := p.newFrame(self, fn)
	copy(fr.Slots, args)
	return p.call(fr)
}

// stmtWork is the work in a statement, and moduleBytes what a module counts as memory
// of the program itself.
const (
	stmtWork    = 2
	moduleBytes = 1 << 10
)
