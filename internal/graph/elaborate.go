package graph

import (
	"fmt"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Limits on what one spec may unroll to.
const (
	maxStatements = 200_000
	maxNesting    = 40

	// statementBytes is what a statement takes in the program, with its module,
	// at the most but for rare ones.
	statementBytes = 4 << 10
	// statementWork is the work that there is in elaborating it.
	statementWork = 300
)

// elaborator holds what is shared while one spec becomes a job.
type elaborator struct {
	spec   *spec.Spec
	errs   *spec.Errors
	meter  *limit.Meter
	shapes *op.Shapes
	job    *program.Job
	batch  int64

	cache       map[string]*elaborated
	statements  int
	depth       int
	sizes       map[*program.Func]int // see sizeOf
	warnings    []string
	fails       []string             // why the job would fail, however much memory there is
	optimDefs   []*spec.OptimizerDef // of the job's optimizers
	names       map[string]int
	opts        Options
	ms          []*model
	others      []*spec.Errors               // of presets
	users       map[*spec.Errors]spec.String // how and where the spec names them
	tooLong     []spec.Diag                  // sequences that are longer than the positions of their models
	unread      bool                         // a file that the spec names could not be read
	over        bool                         // something is too large to be elaborated
	bad         map[inFile]bool              // entries with mistakes
	badBlocks   map[*spec.Block]bool         // with mistakes outside of their entries
	badOptim    bool                         // an optimizer is not known
	lostInputs  []string                     // of a batch, with mistakes
	noLoss      bool                         // the loss is missing, which was reported
	notModelled []string                     // what files ask for and is left out
	dataBytes   Data
	kept        *[]program.Kept // that the statements under way declare
	inEval      *program.Eval   // the evaluation under way
	shrunk      *shrinking      // of the model under way
	path        string          // of the module under way, in its model
	gpus        *spec.Parallel  // how the job is spread over several GPUs; nil: it is not
	gathered    *tensor.DType   // in which FSDP gathers the parameters of the model under way; nil: in their own
}

// elaborated is a block that was made for some params and inputs.
type elaborated struct {
	class *program.Class
	rets  []val
}

// stop unwinds to the model after an error was reported: later statements
// cannot be understood without its result.
type stop struct{}

// try runs f, which a mistake may stop, and reports whether it came to its end.
func (el *elaborator) try(f func()) (ok bool) {
	defer func() {
		switch r := recover().(type) {
		case nil, stop:
		default:
			panic(r)
		}
	}()
	f()
	return true
}

// attempt runs f like try, but for mistakes that end all: those of what is too
// large, and the last that is told.
func (el *elaborator) attempt(f func()) bool {
	ok := el.try(f)
	if !ok && (el.over || el.errs.Full()) {
		panic(stop{})
	}
	return ok
}

// tooLarge reports a mistake after which nothing more is elaborated.
func (el *elaborator) tooLarge(s spec.Span, format string, args ...any) {
	el.over = true
	el.fail(s, format, args...)
}

// fail reports a mistake at a place and stops.
func (el *elaborator) fail(s spec.Span, format string, args ...any) {
	el.errs.Addf(s, format, args...)
	panic(stop{})
}

// shaped is a contiguous tensor like t with another last dimension.
func (el *elaborator) shaped(t *op.Tensor, last int64) *op.Tensor {
	return &op.Tensor{Layout: tensor.Contiguous(t.Size.Set(t.Rank()-1, last)), DType: t.DType}
}

// scope resolves the names of expressions.
type scope struct {
	parent spec.Env
	vars   map[string]any
	fn     *fn // whose local values have shapes
}

func (s *scope) Lookup(name string) (any, bool) {
	if v, ok := s.vars[name]; ok {
		return v, true
	}
	local := meta{}
	if s.fn != nil {
		if i, ok := s.fn.slots[name]; ok && s.fn.bound[i] {
			switch local = s.fn.metas[i]; {
			case local.lost:
				return spec.Invalid{}, true
			case local.t != nil:
				return local, true
			case local.none:
				return nil, true
			}
		}
	}
	if s.parent != nil {
		if v, ok := s.parent.Lookup(name); ok {
			return v, true
		}
	}
	return local, local.tuple != nil // of which an expression says that it is none of a tensor
}

func (s *scope) Names() []string {
	var out []string
	for n := range s.vars {
		out = append(out, n)
	}
	if s.fn != nil {
		out = append(out, s.fn.boundNames()...)
	}
	sort.Strings(out)
	if s.parent != nil {
		out = append(out, s.parent.Names()...)
	}
	return out
}

// globals are the names that every expression may use: the batch size, and
// whether the models are in training mode.
func (el *elaborator) globals() map[string]any {
	return map[string]any{"B": el.batch, "training": el.training()}
}

// Meter is that of the spec's params, where the chain of scopes ends.
func (s *scope) Meter() *limit.Meter {
	for s.parent != nil {
		outer, ok := s.parent.(*scope)
		if !ok {
			return s.parent.Meter()
		}
		s = outer
	}
	return nil
}

func (s *scope) with(vars map[string]any) *scope { return &scope{parent: s, vars: vars} }

// eval computes a value; a mistake is reported at its place.
func (el *elaborator) eval(v *spec.Value, env spec.Env) any {
	x, err := v.Eval(env)
	if err != nil {
		el.errs.AddErr(v.Span, err)
		panic(stop{})
	}
	return x
}

func (el *elaborator) evalInt(v *spec.Value, env spec.Env, what string) int64 {
	x := el.eval(v, env)
	n, ok := x.(int64)
	if !ok {
		el.fail(v.Span, "%s must be an integer, not %s", what, spec.Show(x))
	}
	return n
}

// evalNumber evaluates a number.
func (el *elaborator) evalNumber(v *spec.Value, env spec.Env, what string) float64 {
	switch n := el.eval(v, env).(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	el.fail(v.Span, "%s must be a number, not %s", what, v.Describe())
	return 0
}

func (el *elaborator) evalBool(v *spec.Value, env spec.Env, what string) bool {
	x := el.eval(v, env)
	b, ok := x.(bool)
	if !ok {
		el.fail(v.Span, "%s must be true or false, not %s", what, spec.Show(x))
	}
	return b
}

func (el *elaborator) evalStr(v *spec.Value, env spec.Env, what string) string {
	x := el.eval(v, env)
	s, ok := x.(string)
	if !ok {
		el.fail(v.Span, "%s must be a string, not %s", what, spec.Show(x))
	}
	return s
}

// shape evaluates a list of sizes.
func (el *elaborator) shape(v *spec.Value, env spec.Env) []int64 {
	if v == nil {
		return nil
	}
	x := el.eval(v, env)
	list, ok := x.([]any)
	if n, isInt := x.(int64); isInt {
		list, ok = []any{n}, true
	}
	if !ok {
		el.fail(v.Span, "shape must be a list of integers, not %s", spec.Show(x))
	}
	if len(list) >= tensor.MaxRank {
		el.fail(v.Span, "shape has %d dimensions; at most %d are handled", len(list), tensor.MaxRank-1)
	}
	out := make([]int64, len(list))
	for i, e := range list {
		n, ok := e.(int64)
		if !ok || n < 0 {
			at := v.Span
			if len(v.Items) == len(list) {
				at = v.Items[i].Span
			}
			el.fail(at, "shape must be a list of integers that are not negative; %s is none", spec.Show(e))
		}
		out[i] = n
	}
	return out
}

// unit is a class while its forward is elaborated.
type unit struct {
	el       *elaborator
	what     string // how messages name it
	class    *program.Class
	scope    *scope
	blocks   map[string]*spec.Named[spec.Block]
	children map[string]int
	lists    map[string]bool // paths that children lie below
	declared map[string]*declared
	shapes   map[string][]int64 // of own parameters and buffers
	dtypes   map[string]tensor.DType
	funcs    map[string]*elaboratedFunc
	layers   int               // modules under the default path
	lost     bool              // modules may be missing for mistakes
	made     map[int]*declared // how each child came into being
}

// declared is a module of a modules section before its first call.
type declared struct {
	entry *spec.Entry
	scope *scope
}

type elaboratedFunc struct {
	fn   *program.Func
	rets []val
}

func (el *elaborator) newUnit(name string, sc *scope, blocks map[string]*spec.Named[spec.Block]) *unit {
	if name != "" {
		name = el.className(name)
	}
	return &unit{
		el: el, class: &program.Class{Name: name}, scope: sc, blocks: blocks, children: map[string]int{},
		declared: map[string]*declared{}, shapes: map[string][]int64{}, dtypes: map[string]tensor.DType{}, funcs: map[string]*elaboratedFunc{},
	}
}

// className makes a unique Python class name of a block's name.
func (el *elaborator) className(name string) string {
	var b strings.Builder
	for _, p := range strings.Split(name, "_") {
		if p != "" {
			b.WriteString(strings.ToUpper(p[:1]) + p[1:])
		}
	}
	n := b.String()
	if n == "" {
		n = "Block"
	}
	el.names[n]++
	if k := el.names[n]; k > 1 {
		n = fmt.Sprintf("%s%d", n, k)
	}
	return n
}

// parameters registers what a block declares of its own.
func (u *unit) parameters(params, buffers []*spec.Named[spec.Param]) {
	for i, list := range [][]*spec.Named[spec.Param]{params, buffers} {
		for _, p := range list {
			if p.V.If != nil && !spec.Truth(u.el.eval(p.V.If, u.scope)) {
				continue
			}
			if p.V.Shape == nil {
				u.el.fail(p.Name.At, "parameter or buffer %q needs a shape", p.Name.V)
			}
			size := u.el.shape(p.V.Shape, u.scope)
			d := u.el.dtype(p.V.DType)
			if p.V.DType.V == "float32" && !p.V.DType.Set {
				d = u.el.job.DType
			}
			if _, err := tensor.MulBytes(append(append([]int64(nil), size...), d.Size())...); err != nil {
				u.el.fail(p.Name.At, "shape %s: %v", tensor.SizeString(size), err)
			}
			u.shapes[p.Name.V], u.dtypes[p.Name.V] = append([]int64{}, size...), d
			if i == 0 {
				u.dtypes[p.Name.V] = u.el.computed(d)
			}
			pp := program.Param{Name: p.Name.V, Size: size, DType: d, Fixed: !d.IsFloating(), Init: p.V.Init.V, Aside: i == 1 && !p.V.Persistent.V}
			if i == 0 {
				u.class.Params = append(u.class.Params, pp)
			} else {
				u.class.Buffers = append(u.class.Buffers, pp)
			}
		}
	}
}

func (el *elaborator) dtype(s spec.String) tensor.DType {
	d, err := tensor.ParseDType(s.V)
	if err != nil {
		el.errs.Unknown(s.At, "dtype", s.V, tensor.DTypeNames())
		panic(stop{})
	}
	return d
}

// modules reserves the places of declared modules, in their order.
func (u *unit) modules(entries []*spec.Entry) {
	for _, e := range entries {
		u.expand(e, u.scope, func(sc *scope, i int) {
			path := u.modulePath(e, sc, i)
			if _, ok := u.children[path]; ok {
				u.el.fail(e.At, "module %q is declared twice", path)
			}
			u.child(path, e.At)
			u.declared[path] = &declared{e, sc}
		})
	}
}

// child makes a module at a path, which is no other attribute of the class, and
// returns its index.
func (u *unit) child(path string, at spec.Span) int {
	if first, _, _ := strings.Cut(path, "."); u.shapes[first] != nil {
		u.el.fail(at, "module %q: %q is a parameter or buffer already", path, first)
	}
	if u.lists[path] {
		u.el.fail(at, "module %q: there are modules below that name already, such as %q", path, u.below(path))
	}
	for p := path; strings.Contains(p, "."); {
		p = p[:strings.LastIndexByte(p, '.')]
		if _, ok := u.children[p]; ok {
			u.el.fail(at, "module %q: %q is a module already, no list of modules", path, p)
		}
		if u.lists == nil {
			u.lists = map[string]bool{}
		}
		u.lists[p] = true
	}
	idx := len(u.class.Children)
	u.children[path] = idx
	u.class.Children = append(u.class.Children, program.Child{Path: path})
	return idx
}

// below is the first child whose path goes on from a list's.
func (u *unit) below(list string) string {
	for _, c := range u.class.Children {
		if strings.HasPrefix(c.Path, list+".") {
			return c.Path
		}
	}
	return ""
}

// modulePath is the attribute path of an entry's module. An entry that is
// repeated (i ≥ 0) is an item of a list.
func (u *unit) modulePath(e *spec.Entry, sc *scope, i int) string {
	if e.Module == nil {
		for {
			p := fmt.Sprintf("layers.%d", u.layers)
			u.layers++
			if _, taken := u.children[p]; !taken {
				return p
			}
		}
	}
	s := e.Module.Str
	if e.Module.IsExpr() {
		s = u.el.evalStr(e.Module, sc, "module")
	}
	if !spec.IsModulePath(s) {
		u.el.fail(e.Module.Span, "module must be an attribute such as conv1, or an item of a list such as up[0], not %q", s)
	}
	u.el.attribute("module", s, e.Module.Span)
	p := strings.Join(spec.PathParts(s), ".")
	if i >= 0 && !e.Module.IsExpr() {
		n := i
		for {
			q := fmt.Sprintf("%s.%d", p, n)
			if _, taken := u.children[q]; !taken {
				return q
			}
			n++
		}
	}
	return p
}

// expand calls f for each time an entry stands for: not at all if its
// condition is false, once, or once a turn of repeat and for. i is -1 unless
// the entry is repeated.
func (u *unit) expand(e *spec.Entry, sc *scope, f func(sc *scope, i int)) {
	el := u.el
	room := func(turns int64) {
		if turns > int64(maxStatements-el.statements) {
			el.tooLarge(e.At, "the spec unrolls to more than %d statements", maxStatements)
		}
	}
	loop := func(turns int64) { room(saturating(turns, 1+u.least(e.Body, sc))) }
	turn := func(sc *scope, i int) {
		room(1)
		el.statements++
		el.meter.Work(statementWork)
		el.meter.Hold(statementBytes)
		if e.If != nil && !spec.Truth(el.eval(e.If, sc)) {
			return
		}
		f(sc, i)
	}
	switch {
	case e.Repeat != nil:
		n := el.evalInt(e.Repeat, sc, "repeat")
		if n < 0 {
			el.fail(e.Repeat.Span, "repeat must not be negative, but is %d", n)
		}
		loop(n)
		for i := range n {
			s := sc
			if e.As.Set {
				s = sc.with(map[string]any{e.As.V: i})
			}
			turn(s, int(i))
		}
	case len(e.For) > 0:
		var lists [][]any
		for _, l := range e.For {
			x := el.eval(l.In, sc)
			list, ok := x.([]any)
			if !ok {
				el.fail(l.In.Span, "for needs a list, not %s", spec.Show(x))
			}
			if len(lists) > 0 && len(list) != len(lists[0]) {
				el.fail(l.In.Span, "the lists of for have %d and %d items", len(lists[0]), len(list))
			}
			lists = append(lists, list)
		}
		loop(int64(len(lists[0])))
		for i := range lists[0] {
			vars := map[string]any{}
			for k, l := range e.For {
				vars[l.Var.V] = lists[k][i]
			}
			turn(sc.with(vars), i)
		}
	default:
		turn(sc, -1)
	}
}

// least is how many statements entries unroll to at the least, so that loops in
// loops are refused before they are unrolled. What is not known yet counts as
// nothing: conditions, what they and return leave out, and the loops whose number
// of turns follows from variables of others.
func (u *unit) least(es []*spec.Entry, sc *scope) int64 {
	var n int64
	for _, e := range es {
		turns, inner := int64(1), sc
		switch {
		case e.Repeat != nil:
			x, _ := e.Repeat.Eval(sc)
			turns, _ = x.(int64)
			inner = sc.with(map[string]any{e.As.V: spec.Invalid{}})
		case len(e.For) > 0:
			x, _ := e.For[0].In.Eval(sc)
			list, _ := x.([]any)
			turns = int64(len(list))
			vars := map[string]any{}
			for _, l := range e.For {
				vars[l.Var.V] = spec.Invalid{}
			}
			inner = sc.with(vars)
		}
		each := int64(1)
		if e.If == nil && turns > 0 {
			each += u.least(e.Body, inner)
		}
		n = min(n+saturating(turns, each), maxStatements+1)
		if e.Head.V == spec.HeadReturn {
			break
		}
	}
	return n
}

// saturating multiplies two counts of statements, up to one that is too many.
func saturating(a, b int64) int64 {
	if a > 0 && b > maxStatements/a {
		return maxStatements + 1
	}
	return a * b
}

// block elaborates a module block for some params and inputs.
func (el *elaborator) block(b *spec.Named[spec.Block], u *unit, with map[string]any, ins []val, at spec.Span) (*program.Class, []val) {
	key := fmt.Sprintf("%p %s %s %v", b, keyOf(with), el.keyOfVals(ins), el.job.DType)
	el.meter.Work(int64(len(key)))
	if el.shrunk != nil { // blocks that are alike may be pruned differently
		key += el.path
	}
	if c, ok := el.cache[key]; ok {
		if c == nil { // its mistakes are known
			panic(stop{})
		}
		return c.class, c.rets
	}
	el.enter(at)
	done := false
	defer func() {
		el.depth--
		if !done {
			el.cache[key] = nil
		}
	}()
	sc := el.blockScope(b, u, with)
	n := el.newUnit(b.Name.V, sc, u.blocks)
	n.what = "block " + b.Name.V
	el.in(b, func() {
		n.parameters(b.V.Parameters, b.V.Buffers)
		n.modules(b.V.Modules)
	})
	f := n.newFn("forward", program.Module, sc, inputNames(b.V), ins, at)
	n.class.Forward = f.f
	var rets []val
	el.in(b, func() {
		rets = f.body(b)
		n.close()
	})
	el.cache[key], done = &elaborated{n.class, rets}, true
	return n.class, rets
}

func (el *elaborator) enter(at spec.Span) {
	if el.depth++; el.depth > maxNesting {
		el.tooLarge(at, "blocks are nested deeper than %d levels; does one contain itself?", maxNesting)
	}
}

// close checks that every declared module was called, which gave it sizes.
func (u *unit) close() {
	uncalled := 0
	for _, path := range keys(u.declared) {
		if u.class.Children[u.children[path]].Class == nil {
			at := u.declared[path].entry.At
			u.el.errs.Addf(at, "module %q is declared but never called, so that its sizes are unknown; call it with {call: %s}", path, path)
			uncalled++
		}
	}
	if uncalled > 0 {
		panic(stop{})
	}
}

// blockScope binds a block's params.
func (el *elaborator) blockScope(b *spec.Named[spec.Block], u *unit, with map[string]any) *scope {
	vars := map[string]any{}
	outer := el.modelScope(u)
	sc := &scope{parent: outer, vars: vars}
	if p := b.V.Params; p != nil {
		for _, pair := range p.Pairs {
			if v, ok := with[pair.Key.Str]; ok {
				vars[pair.Key.Str] = v
			} else {
				el.in(b, func() { vars[pair.Key.Str] = el.eval(pair.Value, sc) })
			}
		}
	}
	return sc
}

// modelScope is the scope outside of all blocks: the spec's params and B.
func (el *elaborator) modelScope(u *unit) *scope {
	s := u.scope
	for {
		p, ok := s.parent.(*scope)
		if !ok || p == nil {
			return s
		}
		s = p
	}
}

func inputNames(b *spec.Block) []string {
	if len(b.Inputs) == 0 {
		return []string{"x"}
	}
	var out []string
	for _, i := range b.Inputs {
		out = append(out, i.V)
	}
	return out
}

func keyOf(with map[string]any) string {
	keys := make([]string, 0, len(with))
	for k := range with {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%#v;", k, with[k])
	}
	return b.String()
}

// keyOfVals describes arguments: shapes, and which are the same object.
func (el *elaborator) keyOfVals(ins []val) string {
	var b strings.Builder
	for i, v := range ins {
		key := v.m.key()
		el.meter.Work(int64(i + len(key)))
		b.WriteString(key)
		for j := range i {
			if v.e != nil && v.same(ins[j]) {
				fmt.Fprintf(&b, "=%d", j)
				break
			}
		}
		b.WriteByte(' ')
	}
	return b.String()
}
