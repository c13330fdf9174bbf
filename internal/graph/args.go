package graph

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

func sorted(s []string) []string {
	sort.Strings(s)
	return s
}

// argReader reads the argument of a layer, operator or optimizer by its
// signature: a mapping by name, a scalar for the first argument, a list for
// the first ones.
type argReader struct {
	el   *elaborator
	env  spec.Env
	what string
	at   spec.Span
	sigs []*op.Sig
	also []string               // names of tensors
	skip func(name string) bool // whether a name is one of them

	vals  map[string]any
	given map[string]bool
	from  map[string]*spec.Value
	order []string    // in the order given
	list  *spec.Value // the list by which they were given
}

func (a *argReader) names() []string {
	var out []string
	for _, name := range a.also {
		out = append(out, strings.TrimSuffix(name, "?"))
	}
	for _, s := range a.sigs {
		for _, p := range s.Params {
			out = append(out, p.Name)
		}
	}
	return out
}

func (a *argReader) find(name string) *op.Param {
	for _, s := range a.sigs {
		if p := s.Find(name); p != nil {
			return p
		}
	}
	return nil
}

// read reads an argument; tensors have no place in it.
func (a *argReader) read(v *spec.Value) {
	if a.vals == nil {
		a.vals, a.given, a.from = map[string]any{}, map[string]bool{}, map[string]*spec.Value{}
	}
	if v == nil {
		return
	}
	if v.Kind != spec.Map {
		for _, p := range a.match(v) {
			a.set(p.param, p.value)
		}
		return
	}
	for _, p := range v.Pairs {
		param := a.find(p.Key.Str)
		switch {
		case param != nil:
			a.set(param, p.Value)
		case a.skip == nil || !a.skip(p.Key.Str):
			a.el.errs.Unknown(p.Key.Span, "argument of "+a.what, p.Key.Str, a.names())
			panic(spec.Stop{})
		}
	}
}

// argument is a value with the parameter that it is for.
type argument struct {
	param *op.Param
	value *spec.Value
}

// match gives positional arguments their parameters: a list in the order of the
// constructor in torch, Linear: [784, 10], a scalar to the first that is not
// inferred if something else is required: Linear: 10 gives out_features, but
// LayerNorm: 64 gives normalized_shape.
func (a *argReader) match(v *spec.Value) []argument {
	if v.Kind == spec.List {
		a.list = v
	}
	all, asked := a.positional()
	switch {
	case len(asked) == 0 && len(a.sigs[0].Params) > 0:
		a.el.fail(v.Span, "%s takes its arguments by name: %s", a.what, strings.Join(a.names(), ", "))
	case len(asked) == 0:
		a.el.fail(v.Span, "%s takes no arguments", a.what)
	case v.Kind != spec.List:
		return []argument{{asked[0], v}}
	case a.isWhole(v, all):
		return []argument{{all[0], v}}
	case len(v.Items) > len(all):
		a.el.fail(v.Span, "%s takes at most %s by position (%s), not %d", a.what, spec.Plural(len(all), "argument"), paramNames(all), len(v.Items))
	}
	for _, p := range all[len(v.Items):] {
		if p.Required && len(all) > len(asked) && len(v.Items) > 0 {
			a.el.fail(v.Span, "%s: %s lacks %s%s", a.what, v.Flow(), p.Name, a.inOrder(v))
		}
	}
	var out []argument
	for i, it := range v.Items {
		out = append(out, argument{all[i], it})
	}
	return out
}

// positional are the parameters that may be given by position: all, and those that a
// scalar may be for.
func (a *argReader) positional() (all, asked []*op.Param) {
	params := a.sigs[0].Params
	required := slices.ContainsFunc(params, func(p op.Param) bool { return p.Required })
	for i := range params {
		p := &params[i]
		if p.KwOnly {
			continue
		}
		all = append(all, p)
		if !(p.Infer && required) {
			asked = append(asked, p)
		}
	}
	return all, asked
}

// inOrder says, behind a message about a list of arguments, which order it has, and
// what to write to leave out what is inferred.
func (a *argReader) inOrder(v *spec.Value) string {
	all, asked := a.positional()
	for len(all) > 0 && !all[len(all)-1].Required && !all[len(all)-1].Infer {
		all = all[:len(all)-1]
	}
	text := fmt.Sprintf("; a list has the order of torch: %s(%s)", a.what, paramNames(all))
	if len(v.Items) > len(asked) {
		return text
	}
	return fmt.Sprintf("%s; to leave out what is inferred, write {%s: %s}", text, a.what, named(asked, v.Items))
}

// named writes arguments by their names.
func named(params []*op.Param, items []*spec.Value) string {
	var out []string
	for i, it := range items {
		out = append(out, params[i].Name+": "+it.Flow())
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// isWhole reports whether a list is the first argument, of which the value is a list,
// and not the first arguments: LayerNorm: [64], but not LayerNorm: [64, 1.0e-6]. Where
// it may be both, as LayerNorm: [16, 64], it is refused.
func (a *argReader) isWhole(v *spec.Value, params []*op.Param) bool {
	p := params[0]
	if v.Kind != spec.List || p.Kind != op.KInts && p.Kind != op.KPair && p.Kind != op.KSizes && p.Kind != op.KFloats || !allScalars(v) {
		return false
	}
	if len(params) == 1 {
		return true
	}
	if p.Kind != op.KInts {
		return false
	}
	for _, it := range v.Items {
		if it.HasExpr() && a.env == nil { // not to be known yet
			return true
		}
		if _, is := a.value(it).(int64); !is {
			return false
		}
	}
	if len(v.Items) < 2 || len(v.Items) > len(params) {
		return true
	}
	for i, it := range v.Items[1:] {
		if q := params[i+1]; q.IsTensor() && q.Kind != op.KOperand {
			return true
		} else if _, err := q.Check(a.value(it)); err != nil {
			return true
		}
	}
	text := v.Flow()
	a.el.fail(v.Span, "%s: %s is %s(%s) in torch, with %s as %s; write [%s] for %s, or %s", a.what, text, a.what, strings.Trim(text, "[]"),
		v.Items[1].Flow(), params[1].Name, text, p.Name, named(params, v.Items))
	return false
}

// value evaluates an argument.
func (a *argReader) value(v *spec.Value) any {
	if a.env == nil {
		x, _ := v.Eval(a.el.spec.Env)
		return x
	}
	return a.el.eval(v, a.env)
}

func allScalars(v *spec.Value) bool {
	for _, it := range v.Items {
		if it.Kind == spec.List || it.Kind == spec.Map {
			return false
		}
	}
	return true
}

// misplaced says, behind a message about an argument that is inferred if it is not
// given, in which order the list that gave it is read.
func (a *argReader) misplaced(p *op.Param) string {
	if a.list == nil || !p.Infer {
		return ""
	}
	return a.inOrder(a.list)
}

// set checks and stores one argument.
func (a *argReader) set(p *op.Param, v *spec.Value) {
	if a.given[p.Name] {
		a.el.fail(v.Span, "argument %s of %s is given twice", p.Name, a.what)
	}
	given := a.el.eval(v, a.env)
	if m, is := given.(value.Meta); is {
		a.el.fail(v.Span, "%s: %s is %s, not an argument", a.what, v.Flow(), m.Describe())
	}
	x, err := p.Check(given)
	if err != nil {
		a.el.fail(v.Span, "%s: %v%s", a.what, err, a.misplaced(p))
	}
	a.vals[p.Name], a.given[p.Name], a.from[p.Name] = x, true, v
	a.order = append(a.order, p.Name)
}

// require reports arguments that are missing.
func (a *argReader) require() {
	var missing []string
	for _, s := range a.sigs {
		for _, p := range s.Params {
			if p.Required && !p.IsTensor() && !a.given[p.Name] {
				missing = append(missing, p.Name)
			}
		}
	}
	if len(missing) > 0 {
		a.el.fail(a.at, "%s needs %s", a.what, strings.Join(missing, ", "))
	}
}

// callOp calls an operator.
func (f *fn) callOp(e *spec.Entry, sc *scope, s *op.Signed) value.Value {
	el := f.u.el
	row := s.Op
	a := &argReader{el: el, env: sc, what: e.Head.V, at: e.Head.At, sigs: []*op.Sig{s.Sig}}
	a.read(nil)
	t := &tensorArgs{f: f, e: e, sc: sc, sig: s.Sig, vals: map[string][]value.Value{}}
	t.byInput()
	t.place(a)
	t.fill()
	a.require()

	x := &program.Expr{Kind: program.CallOp, Row: row, Sig: s.Sig}
	if e.InPlace != nil && el.evalBool(e.InPlace, sc, "inplace") {
		row = row.InPlaceInSpecs()
		if row == nil {
			el.fail(e.InPlace.Span, "%s has no in-place form", e.Head.V)
		}
		x.Row, x.InPlace = row, true
		if v := t.first(); v.Expr != nil && v.Expr.Kind == program.Attr && el.job.Inference == "" && f.u.class.IsParameter(v.Expr.Path) {
			el.fail(e.InPlace.Span, "a parameter, which requires a gradient, cannot be changed in place")
		}
	}
	vals := map[string]any{}
	for _, p := range s.Sig.Params {
		if p.IsTensor() {
			continue
		}
		v, ok := a.vals[p.Name]
		if !ok {
			v = module.DefaultValue(&p)
		} else {
			x.Given = append(x.Given, program.KwArg{Name: p.Name, Value: v})
		}
		vals[p.Name] = v
	}
	reflected := t.reflected()
	ins := t.collect(x, vals)
	if reflected { // 1 - x
		var arg string
		row, arg = aten.Reflected(row)
		vals = map[string]any{arg: x.Args[0].Value}
		x.Row, x.Inputs, ins = row, []int{1}, ins[1:]
	}
	x.OpArgs = op.BindArgs(row.Args, vals)
	spread := el.spreadOperand(t, row, x.OpArgs, e.Head)
	outs, err := el.shapes.Infer(row, x.OpArgs, ins...)
	if err != nil {
		at := e.At
		if v := a.from[module.ArgOf(err)]; v != nil {
			at = v.Span
		}
		el.fail(at, "%s: %v", e.Head.V, err)
	}
	el.beyond(e.Head.At)
	m := value.Results(row, outs)
	m.Causal = row == aten.CausalMask
	if spread != nil {
		m.Spread = el.spreadResult(spread, m.Tensor, e.Head)
	}
	return value.Value{Expr: x, Meta: m}
}

// beyond warns of a lookup beyond the rows of a table, which the GPU asserts
// against, unless something was said to fail before.
func (el *elaborator) beyond(at spec.Span) {
	if what := el.shapes.Beyond; what != "" && len(el.fails) == 0 {
		el.fails = append(el.fails, failure{spec.Diag{Span: at, Msg: fmt.Sprintf("%s (%s:%d)", what, el.spec.Path, at.Line)}, el.spec.Path})
	}
	el.shapes.Beyond = ""
}

// tensorArgs places the tensors of an operator call.
type tensorArgs struct {
	f    *fn
	e    *spec.Entry
	sc   *scope
	sig  *op.Sig
	vals map[string][]value.Value // by parameter; several for a list of tensors

	places []*spec.Operand // of inputs:, by position

	failed bool // there are mistakes in operands
}

// sound stops at mistakes in operands.
func (t *tensorArgs) sound() {
	if t.failed {
		panic(spec.Stop{})
	}
}

// first is the value of the first tensor parameter, which in-place operators
// change.
func (t *tensorArgs) first() value.Value {
	if ps := t.params(); len(ps) > 0 && len(t.vals[ps[0].Name]) > 0 {
		return t.vals[ps[0].Name][0]
	}
	return value.Value{}
}

func (t *tensorArgs) params() []*op.Param {
	var out []*op.Param
	for i := range t.sig.Params {
		if t.sig.Params[i].IsTensor() {
			out = append(out, &t.sig.Params[i])
		}
	}
	return out
}

// byInput gives the tensors their values that inputs: names, and keeps the others.
func (t *tensorArgs) byInput() {
	var names []string
	for _, p := range t.params() {
		names = append(names, p.Name)
	}
	places, named := t.f.given(t.e, t.e.Head.V, names, nil)
	for _, p := range t.params() {
		if o := named[p.Name]; o != nil {
			t.put(p, o)
		}
	}
	t.places = places
}

// assign gives a tensor parameter its value.
func (t *tensorArgs) assign(p *op.Param, v *spec.Value) {
	el := t.f.u.el
	if len(t.vals[p.Name]) > 0 {
		el.fail(v.Span, "argument %s of %s is given twice", p.Name, t.e.Head.V)
	}
	if v.Kind == spec.Null && p.Optional {
		return
	}
	o := el.spec.Operand(v)
	if o == nil {
		panic(spec.Stop{})
	}
	t.put(p, o)
}

// put evaluates an operand for a tensor parameter. After a mistake the other
// operands are evaluated too.
func (t *tensorArgs) put(p *op.Param, o *spec.Operand) {
	if !t.f.u.el.attempt(func() { t.putOne(p, o) }) {
		t.failed = true
	}
}

func (t *tensorArgs) putOne(p *op.Param, o *spec.Operand) {
	el := t.f.u.el
	if p.Kind == op.KTensors && o.List != nil {
		if len(o.List) == 0 {
			el.fail(o.At, "%s needs at least one tensor", t.e.Head.V)
		}
		for i, v := range t.f.listed(o.List, t.sc) {
			it := o.List[i]
			if v.Meta.Tensor == nil && v.Expr.Kind != program.Star {
				el.fail(it.At, "argument %s of %s is a list of tensors, but this is %s", p.Name, t.e.Head.V, v.Describe())
			}
			t.put1(p, v, it.At)
		}
		return
	}
	if o.List != nil {
		el.fail(o.At, "argument %s of %s is one tensor, not a list", p.Name, t.e.Head.V)
	}
	t.put1(p, t.f.operand(o, t.sc), o.At)
}

func (t *tensorArgs) put1(p *op.Param, v value.Value, at spec.Span) {
	el := t.f.u.el
	if p.Optional && v.Meta.None {
		return // as if it were not given
	}
	switch {
	case v.Expr.Kind == program.Const && p.Kind != op.KOperand && !t.reflects(p):
		el.fail(at, "argument %s of %s is a tensor, not a number", p.Name, t.e.Head.V)
	case p.Kind == op.KTensors && v.Meta.Tuple != nil: // a list or tuple as a whole
	case v.Meta.Tensor == nil && v.Expr.Kind != program.Const:
		el.fail(at, "argument %s of %s is a tensor, not %s", p.Name, t.e.Head.V, v.Meta.Describe())
	}
	t.vals[p.Name] = append(t.vals[p.Name], v)
}

// fill takes inputs: or the previous value for the tensors that the argument
// does not name.
func (t *tensorArgs) fill() {
	el := t.f.u.el
	t.sound()
	var open []*op.Param
	for _, p := range t.params() {
		if len(t.vals[p.Name]) == 0 {
			open = append(open, p)
		}
	}
	if t.e.HasIn {
		if len(open) > 0 && open[0].Kind == op.KTensors {
			for _, o := range t.places {
				t.put(open[0], o)
			}
			t.sound()
			return
		}
		if len(t.places) > len(open) {
			el.fail(t.e.At, "%s takes %s, but %d inputs are given", t.e.Head.V, spec.Plural(len(open), "tensor"), len(t.places))
		}
		for i, o := range t.places {
			t.put(open[i], o)
		}
	} else if len(open) > 0 && open[0].Required && open[0].Name == t.params()[0].Name {
		t.vals[open[0].Name] = []value.Value{t.f.previous(t.e)}
	}
	t.sound()
	for _, p := range t.params() {
		if p.Required && len(t.vals[p.Name]) == 0 {
			el.fail(t.e.At, "%s needs %s", t.e.Head.V, p.Name)
		}
	}
}

// reflects reports whether a number may stand for the first operand, p.
func (t *tensorArgs) reflects(p *op.Param) bool {
	row, _ := aten.Reflected(aten.Lookup(t.e.Head.V).Op)
	return row != nil && p.Name == t.sig.Params[0].Name
}

// reflected reports whether a number stands for the first operand; it refuses
// arithmetic between numbers alone.
func (t *tensorArgs) reflected() bool {
	ps := t.params()
	if len(ps) != 2 || ps[1].Kind != op.KOperand || t.first().Expr == nil || t.first().Expr.Kind != program.Const {
		return false
	}
	if t.e.InPlace != nil || t.vals[ps[1].Name][0].Expr.Kind == program.Const {
		t.f.u.el.fail(t.e.At, "the first operand of %s must be a tensor", t.e.Head.V)
	}
	return true
}

// collect builds the call's arguments and the row's inputs, in signature
// order.
func (t *tensorArgs) collect(x *program.Expr, vals map[string]any) []*op.Tensor {
	var ins []*op.Tensor
	for _, p := range t.params() {
		vs := t.vals[p.Name]
		if p.Kind == op.KTensors {
			return t.collectList(x, vs)
		}
		if len(vs) == 0 {
			x.Inputs = append(x.Inputs, -1)
			ins = append(ins, nil)
			continue
		}
		v := vs[0]
		x.Inputs = append(x.Inputs, len(x.Args))
		x.Args = append(x.Args, v.Expr)
		ins = append(ins, v.Meta.Tensor)
		if v.Expr.Kind == program.Const {
			vals[p.Name] = v.Expr.Value
			x.Inputs[len(x.Inputs)-1] = -1
		}
	}
	if t.sig.Python == "[]" && len(x.Args) > 2 { // x[i, j]: the indices are a tuple
		x.Args = []*program.Expr{x.Args[0], {Kind: program.ListLit, Args: x.Args[1:]}}
		x.Inputs = nil
	}
	return ins
}

// collectList passes a literal list, or one value that is a list or tuple.
func (t *tensorArgs) collectList(x *program.Expr, vs []value.Value) []*op.Tensor {
	var ins []*op.Tensor
	if len(vs) == 1 && vs[0].Meta.Tuple != nil && vs[0].Expr.Kind != program.Star {
		x.Args = []*program.Expr{vs[0].Expr}
		for _, m := range vs[0].Meta.Tuple {
			if m.Tensor == nil {
				t.f.u.el.fail(t.e.At, "%s needs a list of tensors", t.e.Head.V)
			}
			ins = append(ins, m.Tensor)
		}
	} else {
		list := &program.Expr{Kind: program.ListLit}
		for _, v := range vs {
			list.Args = append(list.Args, v.Expr)
			items := []value.Meta{v.Meta}
			if v.Expr.Kind == program.Star {
				items = v.Meta.Tuple
			}
			for _, m := range items {
				if m.Tensor == nil {
					t.f.u.el.fail(t.e.At, "%s needs a list of tensors; one of these is %s", t.e.Head.V, m.Describe())
				}
				ins = append(ins, m.Tensor)
			}
		}
		x.Args = []*program.Expr{list}
	}
	if len(ins) == 0 {
		t.f.u.el.fail(t.e.At, "%s needs at least one tensor", t.e.Head.V)
	}
	x.Inputs = nil // the list is spread over the row's inputs
	return ins
}
