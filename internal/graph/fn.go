package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// fn is a function while its statements are elaborated.
type fn struct {
	u     *unit
	f     *program.Func
	scope *scope
	slots map[string]int
	bound []bool
	metas []value.Meta
	holds []holder    // by slot
	cur   value.Value // the previous value
	why   string      // why there is none
	// before is the previous value, where an entry since then names another.
	before *program.Expr
	ret    []value.Value
	// entered is what is known of the arguments, ready are operands that were
	// evaluated before the call that takes them.
	entered []value.Meta
	ready   map[*spec.Operand]value.Value

	done  bool // a return was met
	early bool // under a condition, so that others may follow
	inner bool // a closure of a step
	steps intervals

	special func(f *fn, e *spec.Entry, sc *scope) bool // elaborates what only a step has; false if an entry is none of that

	astray bool // names that could not be read may be bound

	named []mention     // names in the statement under way
	tacit []*spec.Entry // entries of that statement that take the previous value without naming it
}

func (u *unit) newFn(name string, kind program.FuncKind, sc *scope, params []string, ins []value.Value, at spec.Span) *fn {
	f := &fn{u: u, f: &program.Func{Name: name, Kind: kind, File: u.el.errs.File}, slots: map[string]int{}, steps: intervals{every: 1, rare: map[int]int64{}}}
	f.scope = &scope{parent: sc.parent, vars: sc.vars, fn: f}
	if len(ins) != len(params) {
		u.el.fail(at, "%s takes %s (%s), but %s given", u.what, spec.Plural(len(params), "input"), strings.Join(params, ", "), spec.Are(len(ins)))
	}
	f.entered = value.Entered(ins)
	for i, p := range params {
		f.set(p, f.entered[i])
	}
	f.f.Params = len(params)
	if len(params) > 0 {
		f.cur = f.local(params[0])
		if f.cur.Meta.Tensor == nil && !f.cur.Meta.Lost {
			f.why = "the first input is " + f.cur.Meta.Describe()
			f.cur = value.Value{}
		}
	} else {
		f.why = "nothing precedes it"
	}
	return f
}

// set makes name a local variable with a value like m, as the user says, and
// returns its slot.
func (f *fn) set(name string, m value.Meta) int {
	s, ok := f.slots[name]
	if !ok {
		s = len(f.f.Slots)
		f.slots[name] = s
		f.f.Slots = append(f.f.Slots, name)
		f.bound, f.metas, f.holds = append(f.bound, false), append(f.metas, value.Meta{}), append(f.holds, holder{})
	}
	f.binds(s, m)
	f.bound[s], f.metas[s], f.holds[s] = true, m, holder{given: true}
	return s
}

func (f *fn) local(name string) value.Value {
	s := f.slots[name]
	m := f.metas[s].Now()
	if m.Number != nil {
		return value.Number(m.Number)
	}
	return value.Value{Expr: &program.Expr{Kind: program.Local, Slot: s}, Meta: m}
}

func (f *fn) emit(s program.Stmt) { f.f.Body = append(f.f.Body, s) }

// running is the name of unnamed results.
const running = "x"

// statements elaborates a list of entries in this frame. It goes on after an entry
// with a mistake, whose results are then lost, and stops at the end of the list.
func (f *fn) statements(es []*spec.Entry, sc *scope) {
	failed := false
	f.f.Body = slices.Grow(f.f.Body, len(es))
	for _, e := range es {
		if f.early {
			break
		}
		if f.done {
			f.u.el.fail(e.At, "statements after return are never reached")
		}
		if !f.u.el.attempt(func() { f.entry(e, sc) }) {
			failed = true
			f.lose(e)
		}
		f.early = f.done && e.If != nil
	}
	if failed {
		panic(spec.Stop{})
	}
}

// entry elaborates one entry as often as it stands for.
func (f *fn) entry(e *spec.Entry, sc *scope) {
	if f.u.el.isBad(e) {
		panic(spec.Stop{})
	}
	f.u.expand(e, sc, func(sc *scope, i int) {
		from, grad := len(f.f.Body), f.gradMode(e, sc)
		of, unless := f.requiresGrad(e, sc)
		plain := e.Autocast != nil && !f.u.el.evalBool(e.Autocast, sc, "autocast")
		f.u.el.outsideAutocast(plain, func() { f.inSteps(e, sc, func() { f.statement(e, sc, i) }) })
		for k := from; k < len(f.f.Body); k++ {
			st := &f.f.Body[k]
			st.Plain = st.Plain || plain
			if st.Grad == program.GradAround { // contexts within have their own
				st.Grad = grad
			}
			if of != nil {
				st.Requires, st.Unless = of, unless
			}
		}
	})
}

// outsideAutocast runs f as what stands outside of torch.autocast sees types.
func (el *elaborator) outsideAutocast(outside bool, f func()) {
	was := el.shapes.E.Autocast
	el.shapes.E.Autocast = was && !outside
	defer func() { el.shapes.E.Autocast = was }()
	f()
}

// requiresGrad is the tensor on which it depends whether an entry runs.
func (f *fn) requiresGrad(e *spec.Entry, sc *scope) (of *program.Expr, unless bool) {
	el, v, key := f.u.el, e.IfRequiresGrad, "if_requires_grad"
	if e.UnlessRequiresGrad != nil {
		if v != nil {
			el.fail(v.Span, "if_requires_grad and unless_requires_grad exclude each other")
		}
		v, key, unless = e.UnlessRequiresGrad, "unless_requires_grad", true
	}
	if v == nil {
		return nil, false
	}
	name, ok := el.eval(v, sc).(string)
	if !ok {
		el.fail(v.Span, "%s is the name of a tensor, not %s", key, v.Describe())
	}
	x := f.reference(name, v.Span)
	if x.Meta.Tensor == nil {
		el.fail(v.Span, "%s is the name of a tensor, not of %s", key, x.Meta.Describe())
	}
	return x.Expr, unless
}

// gradMode is the context of gradients that an entry stands in.
func (f *fn) gradMode(e *spec.Entry, sc *scope) program.GradMode {
	el := f.u.el
	flag := func(v *spec.Value, name string) bool { return v != nil && el.evalBool(v, sc, name) }
	none := flag(e.NoGrad, "no_grad")
	if e.Head.V == spec.HeadForward && e.Arg != nil && e.Arg.Kind == spec.Map {
		none = flag(e.Arg.Get("no_grad"), "no_grad") || none
	}
	enable := flag(e.EnableGrad, "enable_grad")
	switch {
	case none && enable:
		el.fail(e.EnableGrad.Span, "no_grad and enable_grad exclude each other")
	case none:
		return program.NoGrad
	case enable && (el.job.Inference == "inference_mode" || el.inEval != nil && el.inEval.Context == "inference_mode"):
		return program.GradAround // records nothing under torch.inference_mode
	case enable:
		return program.EnableGrad
	}
	return program.GradAround
}

// lose makes unknown what an entry with a mistake would have given.
func (f *fn) lose(e *spec.Entry) {
	for _, b := range e.Body {
		f.lose(b)
	}
	switch {
	case e.Head.V == spec.HeadDel || e.Head.V == spec.HeadRegister:
		return
	case e.Head.V == spec.HeadReturn:
		f.done = true
		return
	case slices.Contains(spec.StepStatements, e.Head.V) && !slices.Contains(stepValues, e.Head.V):
		return
	}
	f.astray = f.astray || e.Unnamed
	names := []string{running}
	if e.Head.V == spec.HeadForward {
		names[0] = "out"
	}
	if len(e.Name) > 0 {
		names = names[:0]
		for _, n := range e.Name {
			names = append(names, strings.TrimSuffix(n.V, "[]"))
		}
	}
	for _, n := range names {
		f.set(n, value.Meta{Lost: true})
	}
	f.cur, f.why = value.Value{Meta: value.Meta{Lost: true}}, ""
	f.u.lost = true
}

func (f *fn) statement(e *spec.Entry, sc *scope, i int) {
	f.named, f.tacit = f.named[:0], f.tacit[:0]
	switch e.Head.V {
	case "":
		if e.Tuple && e.Nest == nil && len(e.Inputs) > 1 && len(e.Inputs) == len(e.Name) {
			f.bindEach(e, sc)
			return
		}
		var v value.Value
		switch {
		case e.Augment != "":
			f.augment(e, sc)
			return
		case e.HasIn:
			v = f.only(e, sc)
			f.noStar(v, e.Inputs[0].At)
		default:
			v = f.previous(e)
		}
		f.settle(e)
		f.bind(e, v)
	case spec.HeadLayers:
		f.statements(e.Body, sc)
	case spec.HeadDel:
		f.del(e, sc)
	case spec.HeadReturn:
		f.doReturn(e, sc)
	case spec.HeadRegister:
		f.registerBuffer(e, sc)
	default:
		if f.special != nil && f.special(f, e, sc) {
			return
		}
		if e.Unused != nil && f.u.el.evalBool(e.Unused, sc, "unused") {
			f.unused(e, sc, i)
			return
		}
		v := f.call(e, sc, i)
		f.settle(e)
		f.bind(e, v)
	}
}

// unused makes the module of an entry as if it were called here.
func (f *fn) unused(e *spec.Entry, sc *scope, i int) {
	metas, put := slices.Clone(f.metas), value.Remember(f.metas)
	if v := f.call(e, sc, i); v.Expr.Kind != program.CallMod {
		f.u.el.fail(e.Unused.Span, "unused is for modules; this calls a function")
	}
	f.metas = metas
	put() // lists hold what they held
}

// only evaluates the single input of an entry.
func (f *fn) only(e *spec.Entry, sc *scope) value.Value {
	if len(e.Inputs) != 1 {
		f.u.el.fail(e.At, "a single name takes one input, not %d; for several values write as many names", len(e.Inputs))
	}
	return f.operand(e.Inputs[0], sc)
}

// noPrevious says why there is no previous value, "" if there is one.
func (f *fn) noPrevious() string {
	switch {
	case f.cur.Meta.Lost:
		panic(spec.Stop{})
	case f.cur.Expr == nil:
		return f.why
	case f.cur.Expr == f.before:
		return "the entry before gives a name to another value"
	}
	return ""
}

// bind gives the result of an entry its name.
func (f *fn) bind(e *spec.Entry, v value.Value) {
	el := f.u.el
	line := e.At.Line
	alias := v.Expr.Kind == program.Local
	if e.Pick != nil {
		v = el.picked(e.Pick, f.scope, v)
	}
	switch {
	case e.Tuple:
		st := program.Stmt{Kind: program.Assign, Unpack: true, Nest: e.Nest, Value: v.Expr, Line: line}
		for i, m := range f.spread(e, v.Meta) {
			n := e.Name[i]
			if strings.HasSuffix(n.V, "[]") {
				el.fail(n.At, "a list cannot be appended to while a tuple is unpacked")
			}
			st.Targets = append(st.Targets, f.set(n.V, m))
		}
		f.emit(st)
		f.cur, f.why = value.Value{}, fmt.Sprintf("the entry before gave %d values", len(e.Name))
		return
	case len(e.Name) == 1 && strings.HasSuffix(e.Name[0].V, "[]"):
		f.appendTo(e, strings.TrimSuffix(e.Name[0].V, "[]"), v)
		return
	}
	name := running
	if len(e.Name) == 1 {
		name = e.Name[0].V
	} else if alias && e.Head.V == "" {
		return
	}
	st := program.Stmt{Kind: program.Assign, Value: v.Expr, Line: line}
	if v.Expr.Kind == program.CallOp && v.Expr.InPlace && v.Expr.Args[0].Kind == program.Local && f.f.Slots[v.Expr.Args[0].Slot] == name {
		st.InPlace = true
	}
	if f.chooses(e) {
		st.Targets = []int{f.take(e, name, v.Meta, v.Expr)}
	} else {
		st.Targets = []int{f.set(name, v.Meta)}
	}
	f.emit(st)
	if e.Head.V == "" && (alias || e.Assigns && v.Meta.Tensor == nil) { // a second name for the value; the first goes on
		if v.Meta.Tensor != nil && !f.isPrevious(v.Expr.Slot) {
			f.before = f.cur.Expr
		}
		return
	}
	f.cur, f.why = f.local(name), ""
	if v.Meta.Tensor == nil {
		f.cur, f.why = value.Value{}, "the entry before gave "+v.Meta.Describe()
		if v.Meta.Tuple != nil && v.Meta.List == nil {
			f.why += ", of which pick: 0 takes the first item"
		}
	}
}

// bindEach gives several values each its name in one statement, so that all are
// computed before the first name is bound again: q, k = rope(q), rope(k).
func (f *fn) bindEach(e *spec.Entry, sc *scope) {
	st := program.Stmt{Kind: program.Assign, Line: e.At.Line}
	var metas []value.Meta
	seen := map[string]bool{}
	for i, o := range e.Inputs {
		n := e.Name[i]
		if strings.HasSuffix(n.V, "[]") || seen[n.V] {
			f.u.el.fail(n.At, "several values need as many different names")
		}
		seen[n.V] = true
		v := f.operand(o, sc)
		st.Values = append(st.Values, v.Expr)
		metas = append(metas, v.Meta)
	}
	f.settle(e)
	for i, n := range e.Name {
		st.Targets = append(st.Targets, f.set(n.V, metas[i]))
	}
	f.emit(st)
	f.cur, f.why = value.Value{}, fmt.Sprintf("the entry before gave %d values", len(e.Name))
}

// appendTo is name.append(v); the list is made when it is first appended to.
func (f *fn) appendTo(e *spec.Entry, name string, v value.Value) {
	s, ok := f.slots[name]
	if ok && f.bound[s] {
		f.name(s, e.Name[0].At)
	} else {
		s = f.set(name, value.ListOf([]value.Meta{}))
		f.emit(program.Stmt{Kind: program.ListNew, Targets: []int{s}, Line: e.At.Line})
	}
	if f.metas[s].Lost {
		panic(spec.Stop{})
	}
	l := f.metas[s].List
	if l == nil {
		f.u.el.fail(e.Name[0].At, "%q is %s, not a list", name, f.metas[s].Describe())
	}
	f.changesList(s, e.At)
	f.mayHold(l, v.Meta, e.At)
	l.Append(v.Meta)
	f.emit(program.Stmt{Kind: program.Append, Targets: []int{s}, Value: v.Expr, Line: e.At.Line})
	if e.Assigns { // xs.append(x) leaves the previous value as it is
		return
	}
	f.cur, f.why = value.Value{Expr: &program.Expr{Kind: program.Item, Slot: s, Index: -1}, Meta: v.Meta}, ""
}

func (f *fn) del(e *spec.Entry, sc *scope) {
	el := f.u.el
	if e.Arg == nil {
		el.fail(e.Head.At, "del needs the name of a value")
	}
	st := program.Stmt{Kind: program.Del, Line: e.At.Line}
	items := []*spec.Value{e.Arg}
	if e.Arg.Kind == spec.List {
		items = e.Arg.Items
	}
	for _, it := range items {
		name := el.evalStr(it, sc, "del")
		s, ok := f.slots[name]
		if !ok || !f.bound[s] {
			el.errs.Unknown(it.Span, "value", name, f.boundNames())
			panic(spec.Stop{})
		}
		f.reads(s, it.Span)
		f.name(s, it.Span)
		f.bound[s], f.holds[s] = false, holder{}
		st.Targets = append(st.Targets, s)
		if f.cur.Expr != nil && f.cur.Expr.Slot == s && f.cur.Expr.Kind <= program.Item {
			f.cur, f.why = value.Value{}, fmt.Sprintf("%q was deleted", name)
		}
	}
	f.emit(st)
}

// registerBuffer puts a value in the place of a buffer of the module.
func (f *fn) registerBuffer(e *spec.Entry, sc *scope) {
	el := f.u.el
	if f.f.Kind == program.StepFunc {
		el.fail(e.Head.At, "a step has no buffers; register_buffer is for the layers of models and blocks")
	}
	if e.Arg == nil {
		el.fail(e.Head.At, "register_buffer needs the name of a buffer")
	}
	name := el.evalStr(e.Arg, sc, "register_buffer")
	var names []string
	for _, b := range f.u.class.Buffers {
		names = append(names, b.Name)
	}
	i := slices.Index(names, name)
	if i < 0 {
		el.errs.Unknown(e.Arg.Span, "buffer", name, names)
		panic(spec.Stop{})
	}
	if !e.HasIn || len(e.Inputs) != 1 {
		el.fail(e.Head.At, "register_buffer takes one input, the new value of the buffer")
	}
	v := f.operand(e.Inputs[0], sc)
	if v.Meta.Tensor == nil {
		el.fail(e.Inputs[0].At, "a buffer is a tensor, not %s", v.Meta.Describe())
	}
	b := &f.u.class.Buffers[i]
	if got := v.Meta.Tensor.Size.Slice(); !slices.Equal(got, b.Size) {
		el.fail(e.Inputs[0].At, "buffer %s has the shape %s, its new value %s", name, tensor.SizeString(b.Size), tensor.SizeString(got))
	}
	f.u.dtypes[name] = v.Meta.Tensor.DType
	f.emit(program.Stmt{Kind: program.SetAttr, Path: name, Value: v.Expr, Line: e.At.Line})
}

func (f *fn) boundNames() []string {
	var out []string
	for i, n := range f.f.Slots {
		if f.bound[i] {
			out = append(out, n)
		}
	}
	return out
}

func (f *fn) doReturn(e *spec.Entry, sc *scope) {
	if f.f.Kind == program.StepFunc && !f.inner {
		f.u.el.fail(e.Head.At, "a step returns nothing; remove return")
	}
	if e.Arg == nil {
		f.u.el.fail(e.Head.At, "return needs the name of a value")
	}
	items := []*spec.Value{e.Arg}
	if e.Arg.Kind == spec.List {
		items = e.Arg.Items
	}
	var rets []value.Value
	for _, it := range items {
		o := f.u.el.spec.Operand(it)
		if o == nil {
			panic(spec.Stop{})
		}
		v := f.operand(o, sc)
		f.noStar(v, o.At)
		rets = append(rets, v)
	}
	f.settle(e)
	f.returns(rets, e.At.Line)
}

func (f *fn) returns(rets []value.Value, line int) {
	st := program.Stmt{Kind: program.Return, Line: line}
	if len(rets) == 1 {
		st.Value = rets[0].Expr
	} else {
		for _, r := range rets {
			st.Values = append(st.Values, r.Expr)
		}
		f.mayHold(nil, value.Returned(rets), spec.Span{Pos: spec.Pos{Line: line, Col: 1}, Len: 1})
	}
	f.emit(st)
	f.ret, f.done = rets, true
}

// body elaborates the statements of a block and returns its results.
func (f *fn) body(b *spec.Named[spec.Block]) []value.Value {
	env := &f.u.el.shapes.E
	casts := env.Autocast
	f.f.NoAutocast = !b.V.Autocast.V
	env.Autocast = casts && b.V.Autocast.V
	defer func() { env.Autocast = casts }()
	f.statements(b.V.Layers, f.scope)
	return f.finish(b.Name.At)
}

// finish returns the previous value unless there was a return.
func (f *fn) finish(at spec.Span) []value.Value {
	if !f.done {
		if why := f.noPrevious(); why != "" {
			f.u.el.fail(at, "has no value to return: %s; say return:", why)
		}
		f.returns([]value.Value{f.cur}, at.Line)
	}
	return f.ret
}
