package techniques

import (
	"slices"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// Freeze marks the parameters that are not trained. What a model says of itself
// stands in the place of what the job says of all.
func (j *Job) Freeze() {
	var all []*program.Model
	for i, m := range j.Models {
		if m.Use.Freeze != nil {
			j.freezeModels(m.Use.Freeze, j.Job.Models[i:i+1])
		} else {
			all = append(all, j.Job.Models[i])
		}
	}
	if j.Spec.Freeze != nil {
		j.freezeModels(j.Spec.Freeze, all)
	}
}

func (j *Job) freezeModels(f *spec.Freeze, models []*program.Model) {
	if len(f.Modules)+len(f.Except) == 0 {
		return
	}
	var known []string
	for _, m := range models {
		known = append(append(known, m.Root.ModulePaths()...), m.Root.ParamPaths()...)
	}
	const what = "module or parameter"
	except := f.Except
	if f.Missing.V {
		except = slices.DeleteFunc(slices.Clone(except), func(s spec.String) bool {
			missing := program.CheckPattern(s.V) == nil && !slices.ContainsFunc(known, program.Patterns{s.V}.Fits)
			if missing {
				*j.Warnings = append(*j.Warnings, note.FitsNothing.New("pattern %q fits no %s, so that it has none trained", s.V, what).Of("freeze.except"))
			}
			return missing
		})
	}
	frozen, trained := Patterns(j.Spec.Errs, f.Modules, what, known), Patterns(j.Spec.Errs, except, what, known)
	if len(f.Modules) == 0 { // all but these
		frozen = program.Patterns{"*"}
	}
	for _, m := range models {
		m.Frozen, m.Trained = frozen, trained
	}
}

// Trains checks that every optimizer is left with a parameter: PyTorch refuses
// an empty list.
func (j *Job) Trains() {
	for _, m := range j.Job.Models {
		if m.Quantized == nil || !j.Job.Autocast {
			continue
		}
		for _, l := range m.Quantized.Layers {
			path := l.Path + ".bias"
			if l.Class.FindParam("bias") != nil && (m.Adapters == nil && !m.Freezes(path) || m.Adapters != nil && m.Adapters.Bias != "none") {
				*j.NotModelled = append(*j.NotModelled, note.Asked.New("quantize: optimizer state of trained biases of quantized layers, which change their type in the first forward pass").Of("quantize"))
				break
			}
		}
	}
	for _, o := range j.Job.Optimizers {
		if j.Job.Trains(o) {
			continue
		}
		m := j.model(o.Models[0])
		at, why := m.At, "the model has none"
		for _, t := range []struct {
			given bool
			at    func() spec.Span
			what  string
		}{
			{m.Use.Quantize != nil, func() spec.Span { return m.Use.Quantize.At }, "quantize leaves none; lora adds some"},
			{j.Spec.Quantize != nil, func() spec.Span { return j.Spec.Quantize.At }, "quantize leaves none; lora adds some"},
			{m.Use.Freeze != nil, func() spec.Span { return m.Use.Freeze.At }, "freeze leaves none"},
			{j.Spec.Freeze != nil, func() spec.Span { return j.Spec.Freeze.At }, "freeze leaves none"},
		} {
			if t.given {
				at, why = t.at(), t.what
			}
		}
		j.fail(at, "%s needs a parameter to train: %s", o.Name, why)
	}
}
