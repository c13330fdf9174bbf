package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// value is what a Python name or stack slot holds: a tensor, a list or tuple,
// or nothing (None, or unbound).
type value struct {
	t    *op.Tensor
	list *list
}

// list is a Python list or tuple.
type list struct {
	items []value
	refs  int
}

// hold adds a reference to what v holds.
func (p *interp) hold(v value) value {
	switch {
	case v.t != nil:
		p.Keep(v.t)
	case v.list != nil:
		v.list.refs++
	}
	return v
}

// letGo gives one up. A list or tuple that dies drops its items from
// the last to the first.
func (p *interp) letGo(v value) {
	switch {
	case v.t != nil:
		p.Drop(v.t)
	case v.list != nil:
		if v.list.refs--; v.list.refs == 0 {
			for i := len(v.list.items) - 1; i >= 0; i-- {
				p.letGo(v.list.items[i])
			}
		}
	}
}

// holdAll adds a reference to each value of a tuple, letGoAll gives it up, from
// the last to the first.
func (p *interp) holdAll(vs []value) []value {
	out := make([]value, len(vs))
	for i, v := range vs {
		out[i] = p.hold(v)
	}
	return out
}

func (p *interp) letGoAll(vs []value) {
	for i := len(vs) - 1; i >= 0; i-- {
		p.letGo(vs[i])
	}
}

// copied is a copy of args, which may lie on the stack of a Go function. What
// slices.Clone returns is over the same array as far as the compiler can tell.
func copied(args []value) []value { return append([]value(nil), args...) }

// letGoEach gives up the values of a dict, from the first on.
func (p *interp) letGoEach(vs []value) {
	for _, v := range vs {
		p.letGo(v)
	}
}

// frame is one call of a function.
type frame struct {
	self  *module
	fn    *program.Func
	slots []value

	held       []value          // arguments that the caller keeps to the end
	checkpoint *checkpointFrame // of a call of torch.utils.checkpoint
	node       *node            // of an autograd.Function
	wanted     []bool           // in its backward: which inputs' gradients
}

// wants reports whether the gradient of input i is wanted; one that is absent
// has none.
func (fr *frame) wants(i int) bool { return i < len(fr.wanted) && fr.wanted[i] }

// store binds a slot: the new value first, then the old one drops.
func (p *interp) store(fr *frame, slot int, v value) {
	old := fr.slots[slot]
	fr.slots[slot] = v
	p.letGo(old)
}

// call runs a function whose first slots are bound, returns its value and gives
// up the frame. The locals drop in slot order after the value was taken.
func (p *interp) call(fr *frame) value {
	var ret value
	outer := p.push()
	p.trail.enter(*fr)
	p.Env().Autocast = p.Env().Autocast && !fr.fn.NoAutocast
	for i := range fr.fn.Body {
		s := &fr.fn.Body[i]
		if s.Fast && !p.inference(fr) || s.Wants > 0 && !fr.wants(s.Wants-1) {
			continue
		}
		p.meter.Work(stmtWork)
		p.enterStmt(fr.fn, s)
		if s.Kind == program.Return || (s.Kind == program.FastReturn && p.inference(fr) && !p.hooked(fr.self)) {
			ret = p.returned(fr, s)
			break
		}
		p.exec(fr, s)
	}
	p.trail.leave()
	slots := fr.slots
	for i := range slots {
		p.letGo(slots[i])
	}
	*fr = frame{slots: slots[:0]}
	p.frames.put(fr)
	p.pop(outer)
	return ret
}

// newFrame makes the frame of a call, which call gives up.
func (p *interp) newFrame(self *module, fn *program.Func) *frame {
	fr := p.frames.get(p.meter)
	fr.self, fr.fn, fr.slots = self, fn, p.slots.zeroed(fr.slots, len(fn.Slots))
	return fr
}

func (p *interp) returned(fr *frame, s *program.Stmt) value {
	if s.Value != nil {
		return p.eval(fr, s.Value)
	}
	return value{list: p.items(fr, s.Values)}
}

func (p *interp) items(fr *frame, es []*program.Expr) *list {
	l := &list{refs: 1, items: make([]value, len(es))}
	from := len(p.trail.temps)
	for i, e := range es {
		l.items[i] = p.pushed(fr, e)
	}
	p.trail.pop(from)
	return l
}

// inference reports whether the library module of a call takes its fused path:
// in eval mode, where no gradient of its arguments and parameters is wanted.
func (p *interp) inference(fr *frame) bool {
	if p.Env().Training || p.Env().Autocast {
		return false
	}
	if !p.Env().GradMode {
		return true
	}
	for _, v := range fr.slots[:fr.fn.Params] {
		if p.Requires(v.t) {
			return false
		}
	}
	wanted := false
	eachParameter(fr.self, func(m *module, i int) { wanted = wanted || obj(m.params[i].t).requires })
	return !wanted
}

// exec runs a statement of a module or function.
func (p *interp) exec(fr *frame, s *program.Stmt) {
	switch s.Kind {
	case program.Assign:
		if s.Value == nil {
			p.assignEach(fr, s)
			return
		}
		p.assign(fr, s, p.eval(fr, s.Value))
	case program.Append:
		l := fr.slots[s.Targets[0]].list
		l.items = append(l.items, p.eval(fr, s.Value))
	case program.ListNew:
		p.store(fr, s.Targets[0], value{list: &list{refs: 1}})
	case program.Del:
		for _, t := range s.Targets {
			p.store(fr, t, value{})
		}
	case program.Expression:
		p.letGo(p.eval(fr, s.Value))
	case program.SetAttr:
		p.setAttr(*fr.self.param(s.Path), p.eval(fr, s.Value).t)
	case program.FastReturn: // not taken
	default:
		p.Fail("statement of a step inside of a module")
	}
}

// assign binds the targets; a tuple is unpacked from left to right.
func (p *interp) assign(fr *frame, s *program.Stmt, v value) {
	if !s.Unpack {
		p.store(fr, s.Targets[0], v)
		return
	}
	items := spread(v.list.items, s.Nest)
	for _, it := range items {
		p.hold(it)
	}
	p.letGo(v)
	for i, t := range s.Targets {
		p.store(fr, t, items[i])
	}
}

// spread replaces the items of a tuple that are unpacked again by theirs.
func spread(items []value, nest []int) []value {
	if nest == nil {
		return items
	}
	var out []value
	for i, it := range items {
		if nest[i] == 0 {
			out = append(out, it)
		} else {
			out = append(out, it.list.items...)
		}
	}
	return out
}

// assignEach is a, b = e1, e2: all values, then the targets. CPython makes no
// tuple of two or three of them and stores the last first (its compiler swaps
// the stores); more are a tuple and go from left to right.
func (p *interp) assignEach(fr *frame, s *program.Stmt) {
	vs := make([]value, len(s.Values))
	from := len(p.trail.temps)
	for i, e := range s.Values {
		vs[i] = p.pushed(fr, e)
	}
	p.trail.pop(from)
	for i := range vs {
		if len(vs) <= 3 {
			i = len(vs) - 1 - i
		}
		p.store(fr, s.Targets[i], vs[i])
	}
}

// eval evaluates an expression; the caller owns the value.
func (p *interp) eval(fr *frame, e *program.Expr) value {
	switch e.Kind {
	case program.Local:
		return p.hold(fr.slots[e.Slot])
	case program.Item:
		items := fr.slots[e.Slot].list.items
		i := e.Index
		if i < 0 {
			i += len(items)
		}
		return p.hold(items[i])
	case program.Pop:
		l := fr.slots[e.Slot].list
		v := l.items[len(l.items)-1]
		l.items = l.items[:len(l.items)-1]
		return v
	case program.Attr:
		return value{t: p.Keep(p.attribute(*fr.self.param(e.Path)))}
	case program.Pick:
		v := p.eval(fr, e.Args[0])
		it := p.hold(v.list.items[e.Index])
		p.letGo(v)
		return it
	case program.ListLit:
		return value{list: p.items(fr, e.Args)}
	case program.CallOp:
		return p.callOp(fr, e)
	case program.CallMod:
		var room [4]value
		from := len(p.trail.temps)
		args := p.args(room[:0], fr, e)
		if e.Checkpoint != nil {
			return p.callCheckpoint(fr, e, copied(args))
		}
		p.trail.pop(from)
		return p.callModule(fr.self.children[e.Child], e.Forward, args)
	case program.CallFun:
		if e.Func.Autograd != nil {
			return p.applyFunction(fr, e)
		}
		var room [4]value
		from := len(p.trail.temps)
		args := p.args(room[:0], fr, e)
		if e.Checkpoint != nil {
			return p.callCheckpoint(fr, e, copied(args))
		}
		p.trail.pop(from)
		return p.callFunction(fr.self, e.Func, args)
	}
	return value{} // None
}

// args evaluates the arguments of a call, from the first, and appends them to
// to. It is small enough to be inlined, so that to may lie on a stack.
func (p *interp) args(to []value, fr *frame, e *program.Expr) []value {
	for _, a := range e.Args {
		to = append(to, p.pushed(fr, a))
	}
	return to
}

// pushed evaluates an expression whose value lies on the evaluation stack then.
func (p *interp) pushed(fr *frame, e *program.Expr) value {
	v := p.eval(fr, e)
	p.trail.push(v)
	return v
}

// callOp pushes the arguments, runs the operator, and drops the arguments in
// evaluation order.
func (p *interp) callOp(fr *frame, e *program.Expr) value {
	var room [4]value
	from := len(p.trail.temps)
	args := p.args(room[:0], fr, e)
	ins := p.inputs(max(len(e.Inputs), len(args)))
	if e.Inputs == nil {
		for _, a := range args { // a list is spread over the inputs
			if a.list == nil {
				ins = append(ins, a.t)
				continue
			}
			for _, it := range a.list.items {
				ins = append(ins, it.t)
			}
		}
	} else {
		for _, i := range e.Inputs {
			if i < 0 {
				ins = append(ins, nil)
			} else {
				ins = append(ins, args[i].t)
			}
		}
	}
	p.trail.running = from
	outs := p.Do(e.Row, e.OpArgs, ins...)
	p.trail.running = -1
	p.trail.pop(from)
	for _, a := range args {
		p.letGo(a)
	}
	if len(outs) == 1 && !e.Row.List {
		return value{t: outs[0]}
	}
	l := &list{refs: 1, items: make([]value, len(outs))}
	for i, o := range outs {
		l.items[i] = value{t: o}
	}
	return value{list: l}
}

// callModule calls a module. The caller holds the arguments until the call has
// returned and its frame is gone.
func (p *interp) callModule(m *module, forward *program.Func, args []value) value {
	if forward == nil {
		forward = m.class.Forward
	}
	fr := p.newFrame(m, forward)
	outer := p.push()
	p.layer = m.layer
	passed := args
	if m.hooks != nil {
		passed = m.hooks.PreForward(args)
	}
	if p.recomputing > 0 {
		fr.held = copied(args)
		if m.hooks != nil {
			fr.held = append(fr.held, passed...)
		}
	}
	for i, a := range passed {
		fr.slots[i] = p.hold(a)
	}
	done := p.onload(m)
	v := p.call(fr)
	done()
	if m.hooks != nil {
		v = m.hooks.PostForward(v)
		p.letGoAll(passed)
	}
	p.pop(outer)
	for _, a := range args {
		p.letGo(a)
	}
	return v
}

// callFunction calls a function, into whose locals the arguments move.
func (p *interp) callFunction(self *module, fn *program.Func, args []value) value {
	fr := p.newFrame(self, fn)
	copy(fr.slots, args)
	return p.call(fr)
}

// stmtWork is the work in a statement, and moduleBytes what a module counts as memory
// of the program itself.
const (
	stmtWork    = 2
	moduleBytes = 1 << 10
)
