package graph

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// elaborator holds what is shared while one spec becomes a job.
type elaborator struct {
	spec   *spec.Spec
	loop   *spec.Spec // of the spec's trainer; nil: it has none
	errs   *spec.Errors
	meter  *limit.Meter
	shapes *op.Shapes
	job    *program.Job
	batch  int64

	cache      map[string]*elaborated
	statements int
	depth      int
	sizes      map[*program.Func]int // see sizeOf
	warnings   []note.Note
	fails      []failure            // why the job would fail, however much memory there is; a hint says what to change, if other mistakes come of it
	optimDefs  []*spec.OptimizerDef // of the job's optimizers
	names      map[string]int
	ms         []*model
	over       bool                    // something is too large to be elaborated
	bad        map[inFile]bool         // entries with mistakes
	badBlocks  map[*spec.Block]bool    // with mistakes outside of their entries
	badOptim   bool                    // an optimizer is not known
	lostInputs []string                // of a batch, with mistakes
	noLoss     bool                    // the loss is missing, which was reported
	kept       *[]program.Kept         // that the statements under way declare
	inEval     *program.Eval           // the evaluation under way
	otherSize  *ofSize                 // of its batches; nil: all are of one size
	inLast     bool                    // its last batch is under way
	modes      map[string]mode         // of models that statements put into one
	evalMode   bool                    // the model under way is in eval mode while the job trains
	first      *unit                   // of the statements before the loop; nil: there are none
	carried    []carried               // the names that they bind
	shrunk     *techniques.Shrinking   // of the model under way
	path       string                  // of the module under way, in its model
	parts      int64                   // microbatches into which a pipeline divides a batch; 1: the model takes it whole
	gpus       *spec.Parallel          // how the job is spread over several GPUs; nil: it is not
	loaded     *hf.Weights             // of the model under way; nil: they are not read from a checkpoint
	tied       map[string][]string     // modules of the model under way that share parameters, by path
	torun      map[int]map[string]bool // of units of FSDP with several modules, which are still to run in the call under way
	gathered   *tensor.DType           // in which FSDP gathers the parameters of the model under way; nil: in their own
	apart      bool                    // module.Env.Apart
	plan       []spec.Planned          // of parallelize_module
}

// ofSize is what the elaborator knows of batches of a size.
type ofSize struct {
	batch   int64
	cache   map[string]*elaborated
	classes []*program.Class // of the models
	calls   []map[string][]value.Value
}

// failure is why a job would fail, with the file that its place is in.
type failure struct {
	spec.Diag
	file string
}

// carried is a name that statements before the loop bind. It is one of the
// script: steps and evaluations that bind it rebind it, and it lives on when
// they return.
type carried struct {
	name string
	meta value.Meta
	// found is what the first step finds; steps change the lists of meta.
	found value.Meta
	at    spec.Span
	held  holder
}

// mode is whether a model is in eval mode, and the n of the steps, every n-th, in
// which it is.
type mode struct {
	eval  bool
	every int64
	at    spec.Span // of the statement that says so
}

// elaborated is a block that was made for some params and inputs.
type elaborated struct {
	class   *program.Class
	entered []value.Meta
	rets    []value.Value
}

// attempt runs f like spec.Try, but for mistakes that end all: those of what is too
// large, and the last that is told.
func (el *elaborator) attempt(f func()) bool {
	ok := spec.Try(f)
	if !ok && (el.over || el.errs.Full()) {
		panic(spec.Stop{})
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
	el.errs.Failf(s, format, args...)
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
	script   bool              // of a step or an evaluation: its functions call models
	made     map[int]*declared // how each child came into being
	later    []func()          // what is checked when all modules are there
}

// declared is a module of a modules section before its first call.
type declared struct {
	entry *spec.Entry
	scope *scope
}

type elaboratedFunc struct {
	fn      *program.Func
	entered []value.Meta
	rets    []value.Value
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
			d := u.el.errs.DType(p.V.DType)
			if p.V.DType.V == "float32" && !p.V.DType.Set {
				d = u.el.job.DType
				switch {
				case u.el.castByEngine() && i == 1:
					d = u.el.bufferType(p.V)
				case u.el.castByEngine():
				case i == 1 || p.V.Made.Set:
					d = u.el.ownType(p.V)
				}
			}
			if _, err := tensor.MulBytes(append(append([]int64(nil), size...), d.Size())...); err != nil {
				u.el.fail(p.Name.At, "shape %s: %v", tensor.SizeString(size), err)
			}
			u.shapes[p.Name.V], u.dtypes[p.Name.V] = append([]int64{}, size...), d
			if i == 0 {
				u.dtypes[p.Name.V] = u.el.env().Computed(d)
			}
			pp := program.Param{Name: p.Name.V, Size: size, DType: d, Fixed: !d.IsFloating(), Init: p.V.Init.V, NonPersistent: i == 1 && !p.V.Persistent.V, Frequencies: p.V.Computed.V != ""}
			if i == 0 {
				u.class.Params = append(u.class.Params, pp)
			} else {
				u.class.Buffers = append(u.class.Buffers, pp)
			}
		}
	}
}

// ownType is the type of a floating-point buffer that names none, or of a parameter whose
// type from_pretrained keeps: in a model that it reads, that in which the module makes it.
func (el *elaborator) ownType(p *spec.Param) tensor.DType {
	switch {
	case el.loaded == nil:
		return el.job.DType
	case p.Made.Set:
		return el.errs.DType(p.Made)
	}
	return el.loaded.DType // the default type meanwhile
}

// castByEngine reports whether DeepSpeed's engine converts the parameters of a model that is
// made in float32, and leaves its buffers.
func (el *elaborator) castByEngine() bool {
	return el.gpus.IsDeepSpeed() && el.gpus.Casts
}

// bufferType is the type in which a module makes a buffer: that of the weights before the
// engine converts them, unless the module says another.
func (el *elaborator) bufferType(p *spec.Param) tensor.DType {
	switch {
	case p.Made.Set:
		return el.errs.DType(p.Made)
	case el.loaded != nil:
		return el.loaded.Read
	}
	return tensor.Float32
}

// block elaborates a module block for some params and inputs.
func (el *elaborator) block(b *spec.Named[spec.Block], u *unit, with map[string]any, ins []value.Value, at spec.Span) (*program.Class, []value.Value) {
	key := fmt.Sprintf("%p %s %s %v %p", b, keyOf(with), el.keyOfVals(ins), el.job.DType, el.loaded)
	el.meter.Work(int64(len(key)))
	key += el.pathKey()
	if c, ok := el.cache[key]; ok {
		if c == nil { // its mistakes are known
			panic(spec.Stop{})
		}
		return c.class, left(c.entered, ins, c.rets)
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
	n := el.newUnit(b.Name.V, sc.declaring(inputNames(b.V), ins), u.blocks)
	n.what = "block " + b.Name.V
	el.in(b, func() {
		n.parameters(b.V.Parameters, b.V.Buffers)
		n.modules(b.V.Modules)
		n.standsFor(b.V)
	})
	f := n.newFn("forward", program.Module, sc, inputNames(b.V), ins, at)
	n.class.Forward = f.f
	var rets []value.Value
	el.in(b, func() {
		rets = f.body(b)
		n.close()
	})
	el.cache[key], done = &elaborated{n.class, f.entered, rets}, true
	return n.class, left(f.entered, ins, rets)
}

// pathKey is what the module of a block at el.path depends on beside its arguments: blocks
// that are alike may be pruned differently, and converted differently. Items of a list,
// which all have other numbers, are converted alike by patterns without any.
func (el *elaborator) pathKey() string {
	switch {
	case el.shrunk != nil || len(el.plan) > 0:
		return el.path
	case el.loaded == nil || len(el.loaded.Convert) == 0:
		return ""
	}
	for _, c := range el.loaded.Convert {
		if slices.ContainsFunc(slices.Concat(c.Modules, c.Except), func(p string) bool { return strings.ContainsAny(p, "0123456789?[") }) {
			return el.path
		}
	}
	return numbered.ReplaceAllString(el.path, ".#")
}

// tiedModules are the modules that share a parameter with one that the model itself declares, by
// path: those have one type, in which they are converted together.
func (u *unit) tiedModules(entries []*spec.Entry, sc *scope) map[string][]string {
	out := map[string][]string{}
	for _, e := range entries {
		for _, t := range e.Tie {
			source, ok := u.el.eval(t.Source, sc).(string)
			if i := strings.LastIndexByte(source, '.'); ok && i >= 0 && e.Module != nil {
				path, of := e.Module.Str, source[:i]
				out[path], out[of] = append(out[path], of), append(out[of], path)
			}
		}
	}
	return out
}

// left are the results of a call, as the caller knows them.
func left(entered []value.Meta, args, rets []value.Value) []value.Value {
	metas := make([]value.Meta, len(rets))
	for i, r := range rets {
		metas[i] = r.Meta
	}
	out := make([]value.Value, len(rets))
	for i, m := range value.Left(entered, args, metas) {
		out[i] = value.Value{Expr: rets[i].Expr, Meta: m}
	}
	return out
}

// isInput reports whether a name is that of a tensor of a batch.
func (el *elaborator) isInput(name string) bool {
	for _, in := range el.job.Inputs {
		if in.Name == name {
			return true
		}
	}
	return false
}

func (el *elaborator) enter(at spec.Span) {
	if el.depth++; el.depth > maxNesting {
		el.tooLarge(at, "blocks are nested deeper than %d levels; does one contain itself?", maxNesting)
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
			return &scope{parent: s.parent, vars: s.vars} // without the inputs of the model
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
func (el *elaborator) keyOfVals(ins []value.Value) string {
	var room [256]byte
	b := room[:0]
	if el.job.Autocast && !el.shapes.E.Autocast { // results have other types there
		b = append(b, "no autocast "...)
	}
	for i, v := range ins {
		begin := len(b)
		b = v.Meta.AppendKey(b)
		el.meter.Work(int64(i + len(b) - begin))
		for j := range i {
			if v.Expr != nil && v.Same(ins[j]) || v.Meta.List != nil && v.Meta.List == ins[j].Meta.List {
				b = fmt.Appendf(b, "=%d", j)
				break
			}
		}
		b = append(b, ' ')
	}
	return string(b)
}

func keys[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
