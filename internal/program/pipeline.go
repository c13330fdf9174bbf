package program

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Pipeline cuts a model into stages, which ranks run on microbatches by a schedule of
// torch.distributed.pipelining. A program is what one rank does: the root of its model is
// the class of its stage.
type Pipeline struct {
	Whole        *Model // before it was cut
	Schedule     string // a class of torch.distributed.pipelining
	Microbatches int64  // of a batch
	Ranks        int64
	Rank         int64   // that is planned
	Stages       []Stage // of which a rank has every Ranks-th
	Loss         *Func   // loss_fn(output, target), a method of Job.Aux
	Target       int     // the slot of the step that holds the target
}

// The schedules of torch.distributed.pipelining.
const (
	GPipe       = "ScheduleGPipe"
	OneFOneB    = "Schedule1F1B"
	Interleaved = "ScheduleInterleaved1F1B"
	LoopedBFS   = "ScheduleLoopedBFS"
)

// Stage is what one rank has of the model.
type Stage struct {
	Class    *Class
	Received int   // the first so many parameters of its forward come from the stage before
	Inputs   []int // the slots of the step whose microbatches the others are: by position in the first stage, else by name
	// Takes are the tensors that it gets from the stage before; nil until the engine
	// infers their shapes.
	Takes []Boundary

	File         string // where the spec says that the stage begins here
	Line, Column int
}

// Boundary is a tensor that a stage sends to the next one.
type Boundary struct {
	tensor.Layout
	DType tensor.DType
}

// Loops reports whether a rank has several stages, as its schedule takes a list of them.
func (p *Pipeline) Loops() bool { return p.Schedule == Interleaved || p.Schedule == LoopedBFS }

// Own lists the stages of the planned rank by their index.
func (p *Pipeline) Own() []int {
	var out []int
	for i := int(p.Rank); i < len(p.Stages); i += int(p.Ranks) {
		out = append(out, i)
	}
	return out
}

// Action is what a schedule does with one microbatch in a stage: a forward or a backward pass.
type Action struct {
	Stage      int // its index among all
	Backward   bool
	Microbatch int
}

// PipelineRounds is how often Interleaved 1F1B goes through the stages of a rank
// (number_of_rounds of ScheduleInterleaved1F1B), of which the microbatches are a multiple.
func PipelineRounds(microbatches, ranks int64) int64 { return max(1, microbatches/ranks) }

// Actions are those of the planned rank in order
// (torch/distributed/pipelining/schedules.py: _step_microbatches of ScheduleGPipe and
// Schedule1F1B, _calculate_single_rank_operations of the others).
func (p *Pipeline) Actions() []Action {
	switch p.Schedule {
	case Interleaved:
		return p.interleaved()
	case LoopedBFS:
		return p.breadthFirst()
	}
	n, stage := int(p.Microbatches), int(p.Rank)
	ahead := n // forward passes before the first backward pass
	if p.Schedule == OneFOneB {
		ahead = min(n, len(p.Stages)-int(p.Rank))
	}
	var out []Action
	for i := range ahead {
		out = append(out, Action{Stage: stage, Microbatch: i})
	}
	for i := range n {
		out = append(out, Action{Stage: stage, Backward: true, Microbatch: i})
		if ahead+i < n {
			out = append(out, Action{Stage: stage, Microbatch: ahead + i})
		}
	}
	return out
}

// interleaved are the actions of Interleaved 1F1B (_get_1f1b_rank_ops).
func (p *Pipeline) interleaved() []Action {
	own, n := p.Own(), int(p.Microbatches)
	round := n / int(PipelineRounds(p.Microbatches, p.Ranks)) // microbatches in a row
	total := len(own) * n
	warmup := min((len(own)-1)*round+2*int(p.Ranks-1-p.Rank), total)
	forwards, backwards := make([]int, len(own)), make([]int, len(own)) // microbatches that went through
	var out []Action
	add := func(k int, backward bool, done []int) {
		out = append(out, Action{Stage: own[k], Backward: backward, Microbatch: done[k]})
		done[k]++
	}
	for i := range total + warmup {
		if i < total {
			add(i/round%len(own), false, forwards)
		}
		if i >= warmup {
			add(len(own)-1-(i-warmup)/round%len(own), true, backwards)
		}
	}
	return out
}

// breadthFirst are the actions of Looped BFS, which goes back through the microbatches from the last.
func (p *Pipeline) breadthFirst() []Action {
	own, n := p.Own(), int(p.Microbatches)
	var out []Action
	for _, stage := range own {
		for i := range n {
			out = append(out, Action{Stage: stage, Microbatch: i})
		}
	}
	for k := len(own) - 1; k >= 0; k-- {
		for i := n - 1; i >= 0; i-- {
			out = append(out, Action{Stage: own[k], Backward: true, Microbatch: i})
		}
	}
	return out
}

// Reads lists the slots whose values a statement takes, in no order.
func (s *Stmt) Reads() []int {
	var out []int
	add := func(e *Expr) {
		switch e.Kind {
		case Local, Item, Pop:
			out = append(out, e.Slot)
		}
	}
	s.exprs(add)
	if s.Kind == Append || s.Kind == Extend {
		out = append(out, s.Targets...)
	}
	return append(out, s.Captured...)
}

// exprs calls visit with every expression of a statement, outer ones first.
func (s *Stmt) exprs(visit func(e *Expr)) {
	var walk func(e *Expr)
	walk = func(e *Expr) {
		if e != nil {
			visit(e)
			for _, a := range e.Args {
				walk(a)
			}
		}
	}
	walk(s.Requires)
	walk(s.Value)
	for _, v := range s.Values {
		walk(v)
	}
}

// FirstCalls lists the children of c that a statement of its forward calls, in the order of
// the calls, those in its functions included.
func (c *Class) FirstCalls(s *Stmt) []int {
	var out []int
	var walk func(e *Expr)
	funcs := map[*Func]bool{}
	walk = func(e *Expr) {
		if e == nil {
			return
		}
		for _, a := range e.Args { // which are evaluated before the call
			walk(a)
		}
		switch {
		case e.Kind == CallMod:
			out = append(out, e.Child)
		case e.Kind == CallFun && !funcs[e.Func]:
			funcs[e.Func] = true
			for i := range e.Func.Body {
				walk(e.Func.Body[i].Value)
				for _, v := range e.Func.Body[i].Values {
					walk(v)
				}
			}
		}
		if e.Checkpoint != nil {
			out = append(out, e.Checkpoint.Chain...)
		}
	}
	walk(s.Value)
	for _, v := range s.Values {
		walk(v)
	}
	return out
}

// moved copies functions whose slots and children have other numbers in their new place.
type moved struct {
	children map[int]int
	funcs    map[*Func]*Func
}

func (m *moved) expr(e *Expr, slots func(int) int) *Expr {
	if e == nil {
		return nil
	}
	out := *e
	out.Args = m.exprs(e.Args, slots)
	switch e.Kind {
	case Local, Item, Pop:
		out.Slot = slots(e.Slot)
	case CallMod:
		out.Child = m.children[e.Child]
	}
	if f := m.funcs[e.Func]; f != nil {
		out.Func = f
	}
	if k := e.Checkpoint; k != nil && k.Chain != nil {
		chained := *k
		chained.Chain = make([]int, len(k.Chain))
		for i, ch := range k.Chain {
			chained.Chain[i] = m.children[ch]
		}
		out.Checkpoint = &chained
	}
	return &out
}

func (m *moved) exprs(es []*Expr, slots func(int) int) []*Expr {
	if es == nil {
		return nil
	}
	out := make([]*Expr, len(es))
	for i, e := range es {
		out[i] = m.expr(e, slots)
	}
	return out
}

func (m *moved) stmt(s Stmt, slots func(int) int) Stmt {
	s.Requires, s.Value, s.Values = m.expr(s.Requires, slots), m.expr(s.Value, slots), m.exprs(s.Values, slots)
	s.Targets = slices.Clone(s.Targets)
	for i, t := range s.Targets {
		s.Targets[i] = slots(t)
	}
	return s
}

// NewLoss makes the function loss_fn(output, target) of statements of a step, which compute
// loss of the values in two slots.
func NewLoss(step *Func, body []Stmt, loss *Expr, output, target int) *Func {
	f := &Func{Name: "loss_fn", Kind: Function, File: step.File}
	slots := f.renumbered(step, []int{output, target})
	m := &moved{}
	for _, s := range body {
		f.Body = append(f.Body, m.stmt(s, slots))
	}
	f.Body = append(f.Body, Stmt{Kind: Return, Value: m.expr(loss, slots), Line: body[len(body)-1].Line})
	return f
}

// renumbered gives f parameters, which are slots of another function, and returns the number
// that a slot of that one has in f, which is made with its first use.
func (f *Func) renumbered(of *Func, params []int) func(slot int) int {
	number := map[int]int{}
	slot := func(old int) int {
		n, ok := number[old]
		if !ok {
			n = len(f.Slots)
			number[old] = n
			f.Slots = append(f.Slots, of.Slots[old])
		}
		return n
	}
	for _, p := range params {
		slot(p)
	}
	f.Params = len(params)
	return slot
}

// Part is a class with some statements of the forward of c and the children among those
// that are kept; received and inputs are slots of that forward that are its parameters, and
// results those that it returns, unless the statements themselves return.
func (c *Class) Part(name string, body []Stmt, kept map[int]bool, params, results []int) *Class {
	out := &Class{Name: name, Applied: c.Applied}
	m := &moved{children: map[int]int{}, funcs: map[*Func]*Func{}}
	for i, ch := range c.Children {
		if kept[i] {
			m.children[i] = len(out.Children)
			out.Children = append(out.Children, ch)
		}
	}
	same := func(slot int) int { return slot }
	for _, f := range c.Methods {
		g := *f
		m.funcs[f] = &g
	}
	for _, f := range c.Methods {
		if !c.calls(f, kept) {
			continue
		}
		g := m.funcs[f]
		g.Body = nil
		for _, s := range f.Body {
			g.Body = append(g.Body, m.stmt(s, same))
		}
		out.Methods = append(out.Methods, g)
	}
	f := &Func{Name: c.Forward.Name, Kind: Module, File: c.Forward.File, NoAutocast: c.Forward.NoAutocast, Remedy: c.Forward.Remedy}
	slots := f.renumbered(c.Forward, params)
	for _, s := range body {
		f.Body = append(f.Body, m.stmt(s, slots))
	}
	if results != nil {
		r := Stmt{Kind: Return, Line: body[len(body)-1].Line}
		for _, slot := range results {
			r.Values = append(r.Values, &Expr{Kind: Local, Slot: slots(slot)})
		}
		if len(results) == 1 {
			r.Value, r.Values = r.Values[0], nil
		}
		f.Body = append(f.Body, r)
	}
	out.Forward = f
	unused := func(p Param) bool { return !out.mentions(p.Name) }
	out.Params = slices.DeleteFunc(slices.Clone(c.Params), unused)
	out.Buffers = slices.DeleteFunc(slices.Clone(c.Buffers), unused)
	out.Attrs = slices.DeleteFunc(slices.Clone(c.Attrs), unused)
	return out
}

// calls reports whether all children that a function calls are kept.
func (c *Class) calls(f *Func, kept map[int]bool) bool {
	for i := range f.Body {
		for _, ch := range c.FirstCalls(&f.Body[i]) {
			if !kept[ch] {
				return false
			}
		}
	}
	return true
}

// mentions reports whether functions of c use an attribute of its own by its path.
func (c *Class) mentions(path string) bool {
	for _, f := range append([]*Func{c.Forward}, c.Methods...) {
		for _, s := range f.Statements() {
			found := s.Kind == SetAttr && s.Path == path
			s.exprs(func(e *Expr) { found = found || e.Kind == Attr && e.Path == path })
			if found {
				return true
			}
		}
	}
	return false
}

// AttrPaths lists the paths of parameters and buffers that a statement of the forward of c
// reads, those in its functions included.
func (c *Class) AttrPaths(s *Stmt) []string {
	var out []string
	funcs := map[*Func]bool{}
	var visit func(e *Expr)
	visit = func(e *Expr) {
		if e.Kind == Attr {
			out = append(out, e.Path)
		}
		if e.Kind == CallFun && !funcs[e.Func] {
			funcs[e.Func] = true
			e.Func.Exprs(visit)
		}
	}
	s.exprs(visit)
	if s.Kind == SetAttr {
		out = append(out, s.Path)
	}
	return out
}

// Holder is the index of the child in which a path lies, -1 if it is c's own.
func (c *Class) Holder(path string) int {
	return slices.IndexFunc(c.Children, func(ch Child) bool { return strings.HasPrefix(path, ch.Path+".") })
}

// InputOf is the tensor of a batch that the step has in a slot.
func (j *Job) InputOf(slot int) *Input {
	for i := range j.Step.Body {
		if s := &j.Step.Body[i]; s.Kind == Batch {
			return &j.Inputs[slices.Index(s.Targets, slot)]
		}
	}
	return nil
}
