package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// evaluation elaborates the evaluation between steps: the same models in eval mode,
// for batches of another size. A model whose statements then come out otherwise
// (sizes that the spec computes from B, conditions on training) is a class of
// its own over the same parameters.
func (el *elaborator) evaluation() {
	e := el.spec.Eval
	if e == nil || el.job.Inference != "" {
		return
	}
	if e.EMA.V && el.job.EMA == nil {
		el.fail(e.EMA.At, "there are no averaged weights; train: {ema: {decay: 0.999}} makes them")
	}
	ev := &program.Eval{Every: e.Every.V, AtStart: e.AtStart.V, Batches: e.Batches.V, Train: e.TrainMode.V, Sized: newSized()}
	if e.Context.V != "grad" {
		ev.Context = e.Context.V
	}
	restore := el.evaluating(e, ev)
	defer restore()
	ev.Inputs = el.sized(el.batch)
	el.inEval = ev
	el.kept = &ev.Kept
	loss := el.optionalLoss()
	var entries []*spec.Entry
	ours := true
	if m := el.ms[0]; loss != nil && loss != el.spec.LossValue() && e.Step == nil {
		entries, ours = el.spec.EvalStep(loss), false
		el.as(m, func() { ev.Fn, ev.Aux = el.function("evaluate", entries) })
	}
	if ours {
		entries = el.spec.EvalStep(loss)
		ev.Fn, ev.Aux = el.function("evaluate", entries)
	}
	el.sharedWith(e.At, ev.OfSize(el.inLast))
	if ev.Last != nil {
		el.swapSizes()
		el.sharedWith(e.At, ev.OfSize(el.inLast))
	}
	el.job.Eval = ev
}

func newSized() program.Sized {
	return program.Sized{Models: map[string]*program.Class{}, Apart: map[string]bool{}, Fused: map[string][]program.Fused{}}
}

// sized are the inputs for so many samples.
func (el *elaborator) sized(samples int64) []program.Input {
	var out []program.Input
	for _, in := range el.job.Inputs {
		in.Size = slices.Clone(in.Size)
		in.Size[0] = samples
		out = append(out, in)
	}
	return out
}

// sharedWith are the models that an evaluation calls with batches of a size.
func (el *elaborator) sharedWith(at spec.Span, s *program.Sized) {
	for _, m := range el.ms {
		trained := m.trained
		switch {
		case m.class == nil: // is not called
		case !shareable(trained, m.class):
			el.fail(at, "model %q would have other parameters in the evaluation, with batches of %d, than in training; parameters must not depend on the batch size or the mode", m.name, el.batch)
		default:
			s.Models[m.name], s.Apart[m.name] = m.class, !same(trained, m.class)
		}
	}
}

// batchSize makes the statements of an evaluation that follow see batches of so many
// samples; nil: those of the evaluation.
func (el *elaborator) batchSize(v *spec.Value, samples int64) {
	switch {
	case v == nil && el.inLast:
		el.swapSizes()
	case v == nil:
	case el.inEval == nil:
		el.errs.Addf(v.Span, "samples says how large the last batch of an evaluation is; the batches of a step have train.batch_size")
	case !el.inLast && samples == el.batch || el.inLast && samples == el.otherSize.batch:
		el.batchSize(nil, 0)
	case el.inEval.Last == nil:
		last := newSized()
		last.Inputs = el.sized(samples)
		el.inEval.Last = &last
		el.otherSize = &ofSize{batch: samples, cache: map[string]*elaborated{}, classes: make([]*program.Class, len(el.ms)), calls: make([]map[string][]value.Value, len(el.ms))}
		el.swapSizes()
	case !el.inLast && samples == el.otherSize.batch:
		el.swapSizes()
	case !el.inLast || samples != el.batch:
		el.errs.Addf(v.Span, "an evaluation has batches of one other size than its batch_size; here it is %d, and %d before", samples, el.inEval.Last.Inputs[0].Size[0])
	}
}

// swapSizes goes from the batches of one size to those of the other.
func (el *elaborator) swapSizes() {
	o := el.otherSize
	el.batch, o.batch = o.batch, el.batch
	el.cache, o.cache = o.cache, el.cache
	for i, m := range el.ms {
		m.class, o.classes[i] = o.classes[i], m.class
		m.calls, o.calls[i] = o.calls[i], m.calls
	}
	el.inLast = !el.inLast
}

// evaluating makes the elaborator see the models as an evaluation does; it
// returns what puts everything back.
func (el *elaborator) evaluating(e *spec.Eval, ev *program.Eval) func() {
	batch, env, cache := el.batch, el.shapes.E, el.cache
	if e.BatchSize.Set {
		el.batch = e.BatchSize.V
	}
	el.shapes.E.Training, el.shapes.E.GradMode = ev.Train, ev.Context == ""
	el.cache = map[string]*elaborated{}
	for _, m := range el.ms {
		m.trained, m.class, m.calls = m.class, nil, nil
	}
	return func() {
		el.batch, el.shapes.E, el.cache, el.inEval = batch, env, cache, nil
		el.otherSize, el.inLast = nil, false
		for _, m := range el.ms {
			m.class, m.trained = m.trained, nil
		}
	}
}

// shareable reports whether two classes hold the same parameters and buffers in
// modules of the same places. Modules that hold none, such as stochastic depth, may
// be in one of them only.
func shareable(a, b *program.Class) bool {
	if !slices.EqualFunc(a.Params, b.Params, sameParam) || !slices.EqualFunc(a.Buffers, b.Buffers, sameParam) {
		return false
	}
	return slices.EqualFunc(holders(a), holders(b), func(x, y program.Child) bool {
		return x.Path == y.Path && slices.Equal(x.Ties, y.Ties) && shareable(x.Class, y.Class)
	})
}

// holders are the children of a class that hold parameters or buffers, or have
// children that do.
func holders(c *program.Class) []program.Child {
	return slices.DeleteFunc(slices.Clone(c.Children), func(ch program.Child) bool {
		return len(ch.Class.Params) == 0 && len(ch.Class.Buffers) == 0 && len(ch.Ties) == 0 && len(holders(ch.Class)) == 0
	})
}

func sameParam(a, b program.Param) bool {
	return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Size, b.Size)
}
