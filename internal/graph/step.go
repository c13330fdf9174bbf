package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// step elaborates the statements of a step, those of the spec or what train
// desugars to.
func (el *elaborator) step() {
	if entries := el.spec.Step; entries != nil {
		el.statementsOf(entries)
	} else {
		// The loss is written in the scope of the file that defines the model.
		loss := el.lossOf()
		entries = el.spec.Desugar(loss)
		if m := el.ms[0]; loss != nil && loss != el.spec.LossValue() {
			el.as(m, func() { el.statementsOf(entries) })
		} else {
			el.statementsOf(entries)
		}
	}
}

func (el *elaborator) statementsOf(entries []*spec.Entry) {
	sc := &scope{parent: el.spec.Env, vars: el.globals()}
	u := el.newUnit("", sc, map[string]*spec.Named[spec.Block]{})
	u.what = "step"
	f := u.newFn("step", program.StepFunc, sc, nil, nil, spec.Span{})
	if !hasBatch(entries) {
		f.batch(0)
	}
	f.statements(entries, f.scope)
	u.close()
	total := el.sizeOf(f.f, u.class)
	for _, st := range f.f.Body {
		if st.Kind == program.Forward {
			m := el.findModel(st.Model).class
			total += el.sizeOf(m.Forward, m)
		}
		if total > maxSteps {
			el.fail(entries[0].At, "the step stands for more than %d operations", maxSteps)
		}
	}
	if el.job.Scaler {
		updateScale(f.f)
	}
	nameCriteria(u.class)
	el.job.Step, el.job.Aux = f.f, u.class
	for _, m := range el.ms {
		if m.class == nil {
			el.fail(m.at, "model %q takes no part in the step", m.name)
		}
		el.job.Models = append(el.job.Models, &program.Model{Name: m.name, Root: m.class})
	}
}

// unscaled reports whether the gradients of an optimizer were unscaled since it
// last stepped.
func (f *fn) unscaled(optimizer int) bool {
	for i := len(f.f.Body) - 1; i >= 0; i-- {
		if s := &f.f.Body[i]; s.Optimizer == optimizer {
			switch s.Kind {
			case program.Unscale:
				return true
			case program.OptStep:
				return false
			}
		}
	}
	return false
}

// updateScale puts scaler.update() behind the last step of an optimizer.
func updateScale(f *program.Func) {
	for i := len(f.Body) - 1; i >= 0; i-- {
		if s := &f.Body[i]; s.Kind == program.OptStep {
			f.Body = slices.Insert(f.Body, i+1, program.Stmt{Kind: program.UpdateScale, Every: s.Every, Line: s.Line})
			return
		}
	}
}

// nameCriteria gives the modules of a step the names of the variables that hold
// them: criterion, unless the spec names them.
func nameCriteria(c *program.Class) {
	for i := range c.Children {
		ch := &c.Children[i]
		rest, numbered := strings.CutPrefix(ch.Path, "layers.")
		switch {
		case numbered && len(c.Children) == 1:
			ch.Path = "criterion"
		case numbered:
			ch.Path = "criterion" + rest
		default:
			ch.Path = strings.ReplaceAll(ch.Path, ".", "_")
		}
	}
}

// lossOf is the loss of the only model, which may be a preset's.
func (el *elaborator) lossOf() *spec.Value {
	if len(el.ms) != 1 {
		el.fail(el.ms[0].at, "several models need step:, the statements of a step")
	}
	m := el.ms[0]
	loss := m.spec.LossValue()
	if v := el.spec.LossValue(); v != nil {
		loss = v
	}
	if loss == nil && el.job.Inference == "" {
		el.fail(m.at, "a model needs loss:, such as {CrossEntropyLoss: {target: label}}")
	}
	return loss
}

func hasBatch(es []*spec.Entry) bool {
	for _, e := range es {
		if e.Head.V == spec.HeadBatch || hasBatch(e.Body) {
			return true
		}
	}
	return false
}

// batch binds the inputs to a new batch.
func (f *fn) batch(line int) {
	st := program.Stmt{Kind: program.Batch, Unpack: true, Line: line}
	for _, in := range f.u.el.job.Inputs {
		t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(in.Size...)), DType: in.DType}
		st.Targets = append(st.Targets, f.set(in.Name, tensorMeta(t)))
	}
	f.emit(st)
}

// stepStatement elaborates the statements that only a step has; false if e is
// none of them.
func (f *fn) stepStatement(e *spec.Entry, sc *scope) bool {
	el := f.u.el
	st := program.Stmt{Line: e.At.Line}
	if e.Every != nil {
		st.Every = el.evalInt(e.Every, sc, "every")
		if st.Every < 1 {
			el.fail(e.Every.Span, "every must be at least 1, not %d", st.Every)
		}
	}
	kw := func(allowed ...string) map[string]*spec.Value { return f.keywords(e, allowed) }
	switch e.Head.V {
	case spec.HeadBatch:
		kw()
		f.batch(e.At.Line)
		return true
	case spec.HeadForward:
		f.forward(e, sc, st)
		return true
	case spec.HeadBackward:
		a := kw("of", "retain_graph")
		of := "loss"
		at := e.Head.At
		if v := a["of"]; v != nil {
			of, at = el.evalStr(v, sc, "of"), v.Span
		}
		v := f.reference(of, at)
		if v.m.t == nil {
			el.fail(at, "backward needs a tensor, not %s", v.m.describe())
		}
		if v.m.t.Numel() != 1 {
			el.fail(at, "backward needs a loss of one element, not of shape %v", v.m.t.Size)
		}
		st.Kind, st.Value = program.Backward, v.e
		if r := a["retain_graph"]; r != nil {
			st.Retain = el.evalBool(r, sc, "retain_graph")
		}
	case spec.HeadOptimizer:
		st.Kind, st.Optimizer = program.OptStep, f.optimizer(e, kw("optimizer")["optimizer"], sc)
	case spec.HeadZeroGrad:
		a := kw("set_to_none", "optimizer")
		st.Kind, st.Optimizer, st.SetToNone = program.ZeroGrad, f.optimizer(e, a["optimizer"], sc), true
		if v := a["set_to_none"]; v != nil {
			st.SetToNone = el.evalBool(v, sc, "set_to_none")
		}
	case spec.HeadEmpty:
		kw()
		st.Kind = program.EmptyCache
	case spec.HeadClipNorm, spec.HeadClipValue:
		bound := "max_norm"
		st.Kind = program.ClipNorm
		if e.Head.V == spec.HeadClipValue {
			bound, st.Kind = "clip_value", program.ClipValue
		}
		a := kw(bound, "optimizer")
		if a[bound] == nil {
			el.fail(e.At, "%s needs its bound, such as {%s: 1.0}", e.Head.V, e.Head.V)
		}
		st.Number = el.evalNumber(a[bound], sc, bound)
		st.Optimizer = f.optimizer(e, a["optimizer"], sc)
		if el.job.Scaler && !f.unscaled(st.Optimizer) {
			f.emit(program.Stmt{Kind: program.Unscale, Optimizer: st.Optimizer, Every: st.Every, Line: st.Line})
		}
	case spec.HeadKeep:
		el.note("step: kept tensors")
		return true
	default:
		return false
	}
	f.emit(st)
	return true
}

// keywords reads the argument of a statement: a mapping, or a scalar for the
// first keyword.
func (f *fn) keywords(e *spec.Entry, allowed []string) map[string]*spec.Value {
	el := f.u.el
	out := map[string]*spec.Value{}
	if e.Arg == nil {
		return out
	}
	if e.Arg.Kind != spec.Map {
		if len(allowed) == 0 {
			el.fail(e.Arg.Span, "%s takes no argument", e.Head.V)
		}
		out[allowed[0]] = e.Arg
		return out
	}
	for _, p := range e.Arg.Pairs {
		ok := false
		for _, a := range allowed {
			ok = ok || a == p.Key.Str
		}
		if !ok {
			el.errs.Unknown(p.Key.Span, "argument of "+e.Head.V, p.Key.Str, allowed)
			panic(stop{})
		}
		out[p.Key.Str] = p.Value
	}
	return out
}

// optimizer resolves the name of an optimizer; without one there must be only
// one.
func (f *fn) optimizer(e *spec.Entry, v *spec.Value, sc *scope) int {
	el := f.u.el
	if len(el.job.Optimizers) == 0 {
		el.fail(e.At, "there is no optimizer in inference")
	}
	var names []string
	for _, o := range el.job.Optimizers {
		names = append(names, o.Name)
	}
	if v == nil {
		if len(names) > 1 {
			el.fail(e.At, "%s needs the name of an optimizer", e.Head.V)
		}
		return 0
	}
	s := el.evalStr(v, sc, "optimizer")
	for i, n := range names {
		if n == s {
			return i
		}
	}
	el.errs.Unknown(v.Span, "optimizer", s, names)
	panic(stop{})
}

// forward calls a model.
func (f *fn) forward(e *spec.Entry, sc *scope, st program.Stmt) {
	el := f.u.el
	a := f.keywords(&spec.Entry{At: e.At, Head: e.Head, Arg: e.Arg, Name: e.Name}, []string{"model", "inputs", "no_grad"})
	var names []string
	for _, m := range el.ms {
		names = append(names, m.name)
	}
	m := el.ms[0]
	if v := a["model"]; v != nil {
		s := el.evalStr(v, sc, "model")
		if m = el.findModel(s); m == nil {
			el.errs.Unknown(v.Span, "model", s, names)
			panic(stop{})
		}
	} else if len(el.ms) > 1 {
		el.fail(e.At, "forward needs model:, one of several")
	}
	operands := e.Inputs
	if v := a["inputs"]; v != nil {
		o := el.spec.Operand(v)
		if o == nil {
			panic(stop{})
		}
		operands = []*spec.Operand{o}
		if o.List != nil {
			operands = o.List
		}
	}
	var ins []val
	for _, o := range operands {
		ins = append(ins, f.operand(o, sc))
	}
	if len(operands) == 0 {
		for _, n := range m.inputs {
			ins = append(ins, f.reference(n, e.At))
		}
	}
	if v := a["no_grad"]; v != nil {
		st.NoGrad = el.evalBool(v, sc, "no_grad")
	}
	if e.NoGrad != nil {
		st.NoGrad = el.evalBool(e.NoGrad, sc, "no_grad")
	}
	rets := el.model(m, ins, e.At)
	st.Kind, st.Model = program.Forward, m.name
	for _, v := range ins {
		st.Values = append(st.Values, v.e)
	}
	meta := metaOf(rets)
	names = nil
	for _, n := range e.Name {
		names = append(names, n.V)
	}
	if len(names) == 0 {
		names = []string{"out"}
	}
	if e.Tuple {
		if len(meta.tuple) != len(names) {
			el.fail(e.At, "%d names for %s", len(names), meta.describe())
		}
		st.Unpack = true
		for i, n := range names {
			st.Targets = append(st.Targets, f.set(n, meta.tuple[i]))
		}
	} else {
		st.Targets = []int{f.set(names[0], meta)}
	}
	f.emit(st)
	f.cur, f.why = val{}, "the forward gave "+meta.describe()
	if meta.t != nil && !e.Tuple {
		f.cur = f.local(names[0])
	}
}

// model elaborates a model for some inputs; with others, it must come out the
// same.
func (el *elaborator) model(m *model, ins []val, at spec.Span) []val {
	key := keyOfVals(ins)
	if rets, ok := m.calls[key]; ok {
		return rets
	}
	var class *program.Class
	var rets []val
	el.as(m, func() {
		sc := &scope{parent: m.spec.Env, vars: el.globals()}
		blocks := map[string]*spec.Named[spec.Block]{}
		for _, b := range m.def.Blocks {
			blocks[b.Name.V] = b
		}
		u := el.newUnit(m.name, sc, blocks)
		u.what = m.name
		u.parameters(m.def.Parameters, m.def.Buffers)
		u.modules(m.def.Modules)
		f := u.newFn("forward", program.Module, sc, m.inputs, ins, at)
		u.class.Forward = f.f
		f.statements(m.def.Layers, f.scope)
		rets = f.finish(m.def.At)
		u.close()
		class = u.class
	})
	switch {
	case m.class == nil:
		m.class, m.calls = class, map[string][]val{}
	case !same(m.class, class):
		el.fail(at, "model %q is called with inputs of other shapes, for which it would have to be another model", m.name)
	}
	m.calls[key] = rets
	return rets
}
