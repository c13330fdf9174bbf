package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// forward evaluates the call of a model, which is an expression like any other
// call.
func (f *fn) forward(e *spec.Entry, sc *scope) value.Value {
	el := f.u.el
	if !f.u.script {
		el.fail(e.Head.At, "%s calls a model of the job, from a step, a loss or a function that these call, not from %s", e.Head.V, f.u.what)
	}
	a := f.keywords(&spec.Entry{At: e.At, Head: e.Head, Arg: e.Arg, Name: e.Name}, []string{"model", "inputs", "no_grad", "adapters", "autocast"})
	names := el.modelNames()
	m := el.ms[0]
	called := m.name
	if v := a["model"]; v != nil {
		called = el.evalStr(v, sc, "model")
		if m = el.called(called); m == nil {
			el.errs.Unknown(v.Span, "model", called, names)
			panic(spec.Stop{})
		}
	} else if len(el.ms) > 1 {
		el.fail(e.At, "forward needs model:, one of several")
	}
	call := *e
	if v := a["inputs"]; v != nil {
		call.HasIn, call.Inputs = true, el.spec.Inputs(v)
	}
	var ins []value.Value
	if len(call.Inputs) > 0 {
		ins = f.inputs(&call, sc, "model "+m.name, m.inputs, nil)
	} else {
		for _, n := range m.inputs {
			if s, ok := f.slots[n]; m.fromStep(n) && (!ok || !f.bound[s] && !f.metas[s].Lost) {
				at := e.At
				if el.spec.Step == nil { // the keys of train say so
					at = m.at
				}
				el.fail(at, "input %q of %s comes from the step, where nothing has that name: bind it in before:, or in step: before it is taken, or pass another with inputs:", n, m.name)
			}
			ins = append(ins, f.reference(n, e.At))
		}
	}
	if n := len(m.inputs); n != len(ins) {
		el.fail(e.At, "%s takes %s (%s), but %s given; forward takes the inputs that layers names, and the first in any case", m.name, spec.Plural(n, "input"), strings.Join(m.inputs, ", "), spec.Are(len(ins)))
	}
	lower := false
	if v := a["autocast"]; v != nil {
		lower = el.evalBool(v, sc, "autocast") && el.job.Autocast
	}
	if lower && !el.shapes.E.Autocast {
		el.shapes.E.Autocast = true
		defer func() { el.shapes.E.Autocast = false }()
	}
	el.evalMode = f.callMode(called, e.At) && el.inEval == nil
	defer func() { el.evalMode = false }()
	rets := el.model(m, ins, e.At)
	x := &program.Expr{Kind: program.CallModel, Model: called, Lower: lower, Last: el.inLast}
	if v := a["adapters"]; v != nil {
		x.Base = !el.evalBool(v, sc, "adapters")
	}
	for _, v := range ins {
		x.Args = append(x.Args, v.Expr)
	}
	return value.Value{Expr: x, Meta: value.Returned(rets)}
}

// modeOf is the mode of a model, by the name by which statements call it.
func (el *elaborator) modeOf(name string) mode {
	if m, ok := el.modes[name]; ok {
		return m
	}
	m := el.findModel(name)
	return mode{eval: m != nil && m.eval, every: 1}
}

// callMode is the mode in which a call of a model finds it.
func (f *fn) callMode(name string, at spec.Span) bool {
	m := f.u.el.modeOf(name)
	if f.f.Kind == program.StepFunc && f.steps.every%m.every != 0 {
		f.u.el.fail(at, "model %q changes its mode only in the steps of every: %d; a call of it before the mode is changed back needs every: %d, too", name, m.every, m.every)
	}
	return m.eval
}

// model elaborates a model for some inputs; with others, it must come out the
// same.
func (el *elaborator) model(m *model, ins []value.Value, at spec.Span) []value.Value {
	key := fmt.Sprint(el.keyOfVals(ins), el.evalMode)
	if rets, ok := m.calls[key]; ok {
		return rets
	}
	if m.lost[key] {
		panic(spec.Stop{})
	}
	var class *program.Class
	var rets []value.Value
	el.shrunk, el.path = m.shrunk, ""
	dtype := el.job.DType
	if el.loaded = m.loaded; m.loaded != nil {
		el.job.DType = m.loaded.Trained("")
	}
	el.gathered, el.torun = el.gathers(m), nil
	ins = el.castRootInputs(ins)
	done := false
	defer func() {
		el.shrunk, el.gathered, el.loaded, el.tied, el.job.DType = nil, nil, nil, nil, dtype
		if !done {
			m.lost[key] = true
		}
	}()
	el.as(m, func() {
		sc := &scope{parent: m.spec.Env, vars: el.globals()}
		u := el.newUnit(m.name, sc.declaring(m.inputs, ins), el.visible(m.def))
		u.what = m.name
		u.parameters(m.def.Parameters, m.def.Buffers)
		if m.loaded != nil && len(m.loaded.Convert) > 0 {
			el.tied = u.tiedModules(slices.Concat([]*spec.Entry(m.def.Modules), m.def.Layers), sc)
		}
		u.modules(m.def.Modules)
		f := u.newFn("forward", program.Module, sc, m.inputs, ins, at)
		u.class.Forward = f.f
		f.statements(m.def.Layers, f.scope)
		rets = f.finish(m.def.At)
		u.close()
		class = u.class
	})
	rets = el.castResults(rets)
	switch {
	case m.class == nil:
		m.class, m.calls = class, map[string][]value.Value{}
	case !same(m.class, class) && el.evalMode != m.eval:
		el.fail(at, "model %q is another program in eval mode, as its layers ask for training: evaluate it in eval:", m.name)
	case !same(m.class, class):
		el.fail(at, "model %q is called with inputs of other shapes, for which it would have to be another model", m.name)
	}
	m.calls[key], done = rets, true
	return rets
}

// called is the model behind the name of a call, which may be that of the
// averaged weights.
func (el *elaborator) called(name string) *model {
	if name == spec.EMAName && el.job.EMA != nil {
		name = el.job.EMA.Model
	}
	return el.findModel(name)
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
			panic(spec.Stop{})
		}
		out[p.Key.Str] = p.Value
	}
	return out
}
