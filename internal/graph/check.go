package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// check reports all mistakes that need no shapes, in every block of the spec:
// unknown layers, operators, arguments, blocks and types, literal arguments of
// the wrong kind, and keys that do not apply where they stand. It takes specs
// with mistakes, so that all mistakes of a file come at once.
func (el *elaborator) check() {
	s := el.spec
	if s.Torch.Set && s.Torch.V != torchver.Auto {
		if _, err := torchver.Parse(s.Torch.V); err != nil {
			el.errs.Addf(s.Torch.At, "%v", err)
		}
	}
	top := &checker{el: el}
	top.define(s.Blocks)
	for _, b := range s.Blocks {
		top.block(b)
	}
	models := s.Models
	if s.Model != nil {
		models = append(models[:len(models):len(models)], &spec.Named[spec.Model]{V: s.Model})
	}
	for _, m := range models {
		el.checkModel(m.V)
	}
	if s.Teacher != nil {
		el.checkModel(&s.Teacher.Model)
		if len(s.Models) > 0 {
			el.errs.Addf(s.Teacher.At, "teacher is used with model; with models, give the teaching model eval: true")
		}
	}
	script := &checker{el: el}
	script.define(s.Blocks)
	if s.Model != nil {
		script.define(s.Model.Blocks)
	}
	script.entries(s.Before, inStep)
	el.checkOnce(s.Before)
	script.entries(s.Step, inStep)
	if s.Eval != nil {
		script.entries(s.Eval.Step, inStep)
	}
	for _, o := range s.Optimizers {
		if o.V.Optimizer == nil {
			el.errs.Addf(o.Name.At, "optimizer %s needs optimizer:, its kind, such as {optimizer: AdamW}", o.Name.V)
		}
		el.checkOptimizer(o.V.Optimizer)
	}
	el.checkOptimizer(s.Train.Optimizer)
}

// checkOnce refuses in statements before the loop what tells steps apart.
func (el *elaborator) checkOnce(es []*spec.Entry) {
	for _, e := range es {
		if e.Every != nil {
			el.errs.Addf(e.Every.Span, "every is for statements of a step; those of before: run once")
		}
		el.checkOnce(e.Body)
	}
}

// checkOptimizer checks an optimizer, without which the rest can be elaborated.
func (el *elaborator) checkOptimizer(o *spec.Callee) {
	if el.errs.Contained(func() { (&checker{el: el}).optimizer(o) }) {
		el.badOptim = true
	}
}

func (el *elaborator) checkModel(m *spec.Model) {
	c := &checker{el: el}
	c.define(el.spec.Blocks)
	c.declare(m.Modules)
	for _, b := range m.Blocks {
		if c.blocks[b.Name.V] != nil {
			el.errs.Addf(b.Name.At, "block %q is defined twice", b.Name.V)
		}
	}
	c.define(m.Blocks)
	for _, b := range m.Blocks {
		c.block(b)
	}
	for _, in := range m.Inputs {
		el.errs.Contained(func() { spec.Try(func() { el.errs.DType(in.V.DType) }) })
	}
	c.parameters(m.Parameters, m.Buffers)
	c.entries(m.Modules, inModules)
	c.entries(m.Layers, inLayers)
	c.entries(m.Loss, inLoss)
}

// place says where an entry stands.
type place uint8

const (
	inLayers place = iota
	inModules
	inFunction
	inStep
	inLoss
	inline // an argument
)

type checker struct {
	el      *elaborator
	blocks  map[string]*spec.Block
	modules map[string]bool // names in modules sections
}

func (c *checker) entries(es []*spec.Entry, at place) {
	for _, e := range es {
		c.entry(e, at)
	}
}

// entry checks an entry, which is bad if there are mistakes in it.
func (c *checker) entry(e *spec.Entry, at place) {
	body := at
	if e.Head.V == spec.HeadSeq {
		body = inLayers
	}
	c.entries(e.Body, body)
	if c.el.errs.Contained(func() { c.own(e, at) }) {
		c.el.bad[inFile{c.el.errs, e.At}] = true
	}
}

// own checks an entry without its body.
func (c *checker) own(e *spec.Entry, at place) {
	errs := c.el.errs
	if e.Bad && e.Head.V == "" {
		return
	}
	for _, o := range e.Inputs {
		if o.Bare() && !isCall(o.Nested.Head.V) && c.isInput(o.Nested.Head.V) {
			c.nested(o.Nested.Arg)
			continue
		}
		c.operand(o)
	}
	c.literals(e)
	head := e.Head.V
	l, o := layers.Lookup(head), aten.Lookup(head)
	switch {
	case l != nil:
		c.arg(e, l)
	case o != nil && at == inModules:
		errs.Unknown(e.Head.At, "layer", head, append(layers.Names(), spec.HeadSeq, spec.HeadBlock, spec.HeadModuleList, spec.HeadModuleDict))
		return
	case o != nil:
		c.opArg(e, o.Sig)
	case head == spec.HeadModuleList || head == spec.HeadModuleDict:
		if at != inModules {
			errs.Addf(e.Head.At, "%s stands in modules:, where it is named: {layers: {%s: ...}}", head, head)
			return
		}
	case head == spec.HeadBlock:
		c.callBlock(e)
	case head == spec.HeadCall && e.Arg != nil && e.Arg.Kind == spec.Map: // call: {attn: {need_weights: false}}, read when it is made
	case head == "" || slices.Contains(spec.Statements, head):
		c.nested(e.Arg)
	case slices.Contains(spec.StepStatements, head):
		if at != inStep && (!slices.Contains(stepValues, head) || at == inLayers || at == inModules) {
			errs.Addf(e.Head.At, "%s is a statement of a step and has no place in a model", head)
			return
		}
	case c.blocks[head] != nil:
		errs.Addf(e.Head.At, "%q is a block; call it with {block: %s}", head, head)
		return
	case c.modules[head]:
		errs.Addf(e.Head.At, "%q is a module; call it with {call: %s}", head, head)
		return
	case refused[head] != "":
		errs.Addf(e.Head.At, "%s: %s", head, refused[head])
		return
	case spec.IsExpression(head):
		c.unnamed(e, at)
		return
	default:
		known := append(append(append([]string(nil), spec.Statements...), layers.Names()...), aten.Names()...)
		if at == inStep {
			known = append(known, spec.StepStatements...)
		}
		if i := strings.LastIndex(head, "."); i >= 0 && slices.Contains(known, head[i+1:]) { // F.relu
			errs.Addf(e.Head.At, "unknown layer or operator %q; write %s, without what is before the dot", head, head[i+1:])
			return
		}
		if entry := entryOfCall(head); entry != "" && at == inStep {
			errs.Addf(e.Head.At, "%q is no entry; write %s", head, entry)
			return
		}
		if strings.ContainsAny(head, "=(") {
			errs.Addf(e.Head.At, "%q is not a statement; statements of Python are name = expression, a, b = expression, name += expression and xs.append(expression)", head)
			return
		}
		errs.Unknown(e.Head.At, "layer or operator", head, known)
		return
	}
	c.modifiers(e, at)
}

// literals checks the modifiers that are given as plain values.
func (c *checker) literals(e *spec.Entry) {
	integer := func(v *spec.Value, what string, least int64) {
		switch {
		case v == nil || v.HasExpr():
		case v.Kind != spec.Int:
			c.el.errs.Addf(v.Span, "%s must be an integer, not %s", what, v.Describe())
		case v.Int < least:
			c.el.errs.Addf(v.Span, "%s must be at least %d, not %d", what, least, v.Int)
		}
	}
	boolean := func(v *spec.Value, what string) {
		if v != nil && !v.HasExpr() && v.Kind != spec.Bool {
			c.el.errs.Addf(v.Span, "%s must be true or false, not %s", what, v.Describe())
		}
	}
	integer(e.Repeat, "repeat", 0)
	integer(e.Every, "every", 1)
	if p := e.Pick; p != nil && p.Kind == spec.List {
		for _, it := range p.Items {
			integer(it, "pick", 0)
		}
	} else {
		integer(p, "pick", 0)
	}
	boolean(e.InPlace, "inplace")
	boolean(e.NoGrad, "no_grad")
	boolean(e.EnableGrad, "enable_grad")
	boolean(e.Unused, "unused")
	boolean(e.If, "if")
	for _, l := range e.For {
		if !l.In.HasExpr() && l.In.Kind != spec.List && l.In.Kind != spec.Str {
			c.el.errs.Addf(l.In.Span, "for needs a list, not %s", l.In.Describe())
		}
	}
	if e.Repeat != nil && len(e.For) > 0 {
		c.el.errs.Addf(e.At, "repeat and for exclude each other")
	}
}

// modifiers refuses keys that mean nothing for the entry.
func (c *checker) modifiers(e *spec.Entry, at place) {
	head := e.Head.V
	isLayer, isOp := layers.Lookup(head) != nil || head == spec.HeadSeq, aten.Lookup(head) != nil
	isBlock, isCall := head == spec.HeadBlock, head == spec.HeadCall
	isValue := isLayer || isOp || isBlock || isCall || slices.Contains(stepValues, head)
	inScript := at == inStep || at == inLoss
	inFrame := at != inModules && at != inline && head != spec.HeadReturn
	refuse := func(key string, s spec.Span, ok bool, where string) {
		if !ok {
			c.el.errs.Addf(s, "%s has no meaning here; %s", key, where)
		}
	}
	if e.Module != nil {
		refuse("module", e.Module.Span, isLayer || isBlock || head == spec.HeadModuleList || head == spec.HeadModuleDict, "only layers, blocks and Sequential are modules")
	}
	for _, t := range e.Tie {
		refuse("tie", t.Param.At, isLayer || isBlock, "only layers and blocks have parameters")
		break
	}
	if e.With != nil {
		refuse("with", e.With.Span, isBlock, "only blocks have params")
	}
	if e.InPlace != nil {
		refuse("inplace", e.InPlace.Span, isLayer || isOp, "only layers and operators have an in-place form")
	}
	if e.Pick != nil {
		refuse("pick", e.Pick.Span, isValue || head == "", "only a call has a result to pick from")
	}
	if e.Every != nil {
		refuse("every", e.Every.Span, inScript && inFrame, "it modifies statements of a step")
	}
	if e.Autocast != nil {
		refuse("autocast", e.Autocast.Span, inScript, "it modifies statements of a step")
	}
	if e.Checkpoint != nil {
		refuse("checkpoint", e.Checkpoint.At, isLayer || isBlock || isCall, "only modules and functions are checkpointed")
	}
	if e.DType != nil {
		refuse("dtype", e.DType.Span, isLayer || isBlock, "only layers and blocks are converted; {to: {dtype: float32}} converts a value")
	}
	if e.Unused != nil {
		refuse("unused", e.Unused.Span, (isLayer || isBlock || isCall) && at == inLayers || isCall && at == inFunction, "it makes a module where it would be called, in layers")
		if len(e.Name) > 0 {
			refuse("name", e.Name[0].At, false, "a module that is not called has no result")
		}
	}
	if e.NoGrad != nil {
		refuse("no_grad", e.NoGrad.Span, inFrame, "it modifies statements")
	}
	if v := e.IfRequiresGrad; v != nil {
		refuse("if_requires_grad", v.Span, inFrame && !inScript, "it modifies statements of models and blocks")
	}
	if v := e.UnlessRequiresGrad; v != nil {
		refuse("unless_requires_grad", v.Span, inFrame && !inScript, "it modifies statements of models and blocks")
	}
	if e.EnableGrad != nil {
		refuse("enable_grad", e.EnableGrad.Span, inFrame, "it modifies statements")
	}
	if len(e.Name) > 0 {
		refuse("name", e.Name[0].At, (isValue || head == "" || head == spec.HeadBatch || head == spec.HeadClipNorm) && at != inModules, "it binds the result of a call")
	}
	if len(e.Inputs) > 0 {
		refuse("inputs", e.Inputs[0].At, (isValue || head == "" || head == spec.HeadRegister) && at != inModules, "only a call takes inputs")
	}
}

// callBlock checks the name of a block and the params that it is given.
func (c *checker) callBlock(e *spec.Entry) {
	switch {
	case e.Arg == nil:
		c.el.errs.Addf(e.Head.At, "block needs the name of a block")
	case e.Arg.IsExpr():
	case e.Arg.Kind != spec.Str:
		c.el.errs.Addf(e.Arg.Span, "block needs the name of a block, not %s", e.Arg.Describe())
	case c.blocks[e.Arg.Str] == nil:
		c.el.errs.Unknown(e.Arg.Span, "block", e.Arg.Str, sorted(keys(c.blocks)))
	default:
		c.el.checkWith(e, e.Arg.Str, c.blocks[e.Arg.Str])
	}
}

func (c *checker) operand(o *spec.Operand) {
	if o == nil {
		return
	}
	if o.Nested != nil {
		c.entry(o.Nested, inline)
	}
	for _, it := range o.List {
		c.operand(it)
	}
	for _, p := range o.Named {
		c.operand(p.V)
	}
}

// isInput reports whether a block, layer or model has an input of this name.
func (c *checker) isInput(name string) bool {
	for _, b := range c.blocks {
		if slices.Contains(inputNames(b), name) {
			return true
		}
	}
	for _, n := range layers.Names() {
		if layers.Lookup(n).Takes(name) {
			return true
		}
	}
	for _, n := range aten.Names() {
		if p := aten.Lookup(n).Sig.Find(name); p != nil && p.IsTensor() {
			return true
		}
	}
	models := c.el.spec.Models
	if m := c.el.spec.Model; m != nil {
		models = append(models[:len(models):len(models)], &spec.Named[spec.Model]{V: m})
	}
	for _, m := range models {
		for _, in := range m.V.Inputs {
			if in.Name.V == name {
				return true
			}
		}
	}
	return false
}

// nested checks the inline entries of an argument, which are its mappings.
func (c *checker) nested(v *spec.Value) {
	switch {
	case v == nil:
	case v.Kind == spec.Map:
		c.operand(c.el.spec.Operand(v))
	case v.Kind == spec.List:
		for _, it := range v.Items {
			c.nested(it)
		}
	}
}

// arg checks the argument of a layer: its keys and literal values.
func (c *checker) arg(e *spec.Entry, l *module.Layer) {
	c.args(e.Arg, &argReader{el: c.el, what: e.Head.V, at: e.Head.At, sigs: l.Sigs(), also: l.InputNames()}, l.Takes)
}

// opArg checks the argument of an operator.
func (c *checker) opArg(e *spec.Entry, sig *op.Sig) {
	if e.Arg == nil || e.Arg.Kind != spec.Map || isInline(e.Arg, sig) {
		c.nested(e.Arg)
		return
	}
	c.args(e.Arg, &argReader{el: c.el, what: e.Head.V, at: e.Head.At, sigs: []*op.Sig{sig}}, func(name string) bool {
		p := sig.Find(name)
		return p != nil && p.IsTensor()
	})
}

func (c *checker) optimizer(o *spec.Callee) {
	if o == nil || !o.Name.Set {
		return
	}
	row := optim.Lookup(o.Name.V)
	if row == nil {
		c.el.errs.Unknown(o.Name.At, "optimizer", o.Name.V, optim.Names())
		return
	}
	if v := o.Arg.Get(spec.KeyGroups); v != nil {
		c.el.errs.Addf(v.Span, "groups stand beside the arguments of %s: {%s: {lr: 1e-3}, groups: [...]}", o.Name.V, o.Name.V)
		return
	}
	none := func(string) bool { return false }
	c.args(o.Arg, &argReader{el: c.el, what: o.Name.V, at: o.Name.At, sigs: []*op.Sig{row.Signature()}}, none)
}

// args checks an argument against the signatures of a: every key, and the
// values that are no expressions. Inline entries are checked in their turn.
func (c *checker) args(v *spec.Value, a *argReader, tensor func(string) bool) {
	if v == nil {
		return
	}
	check := func(p *op.Param, v *spec.Value) {
		if v.HasExpr() {
			return
		}
		x, err := v.Eval(c.el.spec.Env)
		if err == nil {
			_, err = p.Check(x)
		}
		if err != nil {
			c.el.errs.Addf(v.Span, "%s: %v%s", a.what, err, a.misplaced(p))
		}
	}
	if v.Kind != spec.Map {
		spec.Try(func() {
			for _, p := range a.match(v) {
				check(p.param, p.value)
			}
		})
		return
	}
	for _, p := range v.Pairs {
		param := a.find(p.Key.Str)
		switch {
		case tensor(p.Key.Str):
			c.nested(p.Value)
		case param == nil:
			c.el.errs.Unknown(p.Key.Span, "argument of "+a.what, p.Key.Str, a.names())
		default:
			check(param, p.Value)
		}
	}
}
