package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// setMode elaborates {eval: model} and {train: model}.
func (f *fn) setMode(e *spec.Entry, sc *scope, st program.Stmt) {
	el := f.u.el
	switch {
	case el.inEval != nil:
		el.fail(e.Head.At, "%s is a statement of a step; train_mode of eval: says in which mode the models are evaluated", e.Head.V)
	case el.job.Inference != "":
		el.fail(e.Head.At, "in mode inference and no_grad, models are in eval mode")
	}
	st.Kind, st.Eval = program.SetMode, e.Head.V == spec.HeadEval
	switch v := f.keywords(e, []string{"model"})["model"]; {
	case v != nil:
		st.Model = el.evalStr(v, sc, "model")
		if el.called(st.Model) == nil {
			el.errs.Unknown(v.Span, "model", st.Model, el.modelNames())
			panic(spec.Stop{})
		}
	case len(el.ms) > 1:
		el.fail(e.At, "%s needs the name of a model", e.Head.V)
	default:
		st.Model = el.ms[0].name
	}
	was := el.modeOf(st.Model)
	if was.every != 1 && was.every != f.steps.every {
		el.fail(e.At, "model %q changes its mode in the steps of every: %d only; what puts it back needs the same every", st.Model, was.every)
	}
	now := mode{st.Eval, f.steps.every, e.At}
	if m := el.called(st.Model); m.eval == st.Eval && st.Model == m.name || st.Model != m.name && !st.Eval {
		now.every = 1 // as it was at first
	}
	if el.modes == nil {
		el.modes = map[string]mode{}
	}
	el.modes[st.Model] = now
	f.emit(st)
}

// modesBack checks that the models are in the modes in which the next step finds
// them.
func (f *fn) modesBack() {
	el := f.u.el
	for _, name := range keys(el.modes) {
		m := el.called(name)
		if first := name == m.name && m.eval; el.modes[name].eval != first {
			to, now := spec.HeadTrain, "eval"
			if first {
				to, now = spec.HeadEval, "train"
			}
			el.fail(el.modes[name].at, "model %q is in %s mode at the end of the step, but not at its beginning; write {%s: %s} before the end, or eval: in the model for one mode in all steps", name, now, to, name)
		}
	}
}
