package graph

import (
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// freeze marks the parameters that are not trained. What a model says of itself
// stands in the place of what the job says of all.
func (el *elaborator) freeze() {
	var all []*program.Model
	for i, m := range el.ms {
		if m.use.Freeze != nil {
			el.freezeModels(m.use.Freeze, el.job.Models[i:i+1])
		} else {
			all = append(all, el.job.Models[i])
		}
	}
	if el.spec.Freeze != nil {
		el.freezeModels(el.spec.Freeze, all)
	}
}

func (el *elaborator) freezeModels(f *spec.Freeze, models []*program.Model) {
	if len(f.Modules)+len(f.Except) == 0 {
		return
	}
	var known []string
	for _, m := range models {
		known = append(append(known, m.Root.ModulePaths()...), m.Root.ParamPaths()...)
	}
	const what = "module or parameter"
	frozen, trained := techniques.Patterns(el.errs, f.Modules, what, known), techniques.Patterns(el.errs, f.Except, what, known)
	if len(f.Modules) == 0 { // all but these
		frozen = program.Patterns{"*"}
	}
	for _, m := range models {
		m.Frozen, m.Trained = frozen, trained
	}
}

// trains checks that every optimizer is left with a parameter: PyTorch refuses
// an empty list.
func (el *elaborator) trains() {
	for _, m := range el.job.Models {
		if m.Quantized == nil || !el.job.Autocast {
			continue
		}
		for _, l := range m.Quantized.Layers {
			path := l.Path + ".bias"
			if l.Class.FindParam("bias") != nil && (m.Adapters == nil && !m.Freezes(path) || m.Adapters != nil && m.Adapters.Bias != "none") {
				el.notModelled = append(el.notModelled, note.Asked.New("quantize: optimizer state of trained biases of quantized layers, which change their type in the first forward pass").Of("quantize"))
				break
			}
		}
	}
	for _, o := range el.job.Optimizers {
		if el.job.Trains(o) {
			continue
		}
		m := el.findModel(o.Models[0])
		at, why := m.at, "the model has none"
		for _, t := range []struct {
			given bool
			at    func() spec.Span
			what  string
		}{
			{m.use.Quantize != nil, func() spec.Span { return m.use.Quantize.At }, "quantize leaves none; lora adds some"},
			{el.spec.Quantize != nil, func() spec.Span { return el.spec.Quantize.At }, "quantize leaves none; lora adds some"},
			{m.use.Freeze != nil, func() spec.Span { return m.use.Freeze.At }, "freeze leaves none"},
			{el.spec.Freeze != nil, func() spec.Span { return el.spec.Freeze.At }, "freeze leaves none"},
		} {
			if t.given {
				at, why = t.at(), t.what
			}
		}
		el.fail(at, "%s needs a parameter to train: %s", o.Name, why)
	}
}
