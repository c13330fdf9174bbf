package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// ema declares the averaged copy of a model.
func (el *elaborator) ema() {
	e := el.spec.Train.EMA
	if e == nil || el.job.Inference != "" {
		return
	}
	m := el.ms[0]
	switch {
	case e.Model.Set:
		if m = el.findModel(e.Model.V); m == nil {
			el.errs.Unknown(e.Model.At, "model", e.Model.V, el.modelNames())
			panic(spec.Stop{})
		}
	case len(el.spec.Models) > 1:
		el.fail(e.At, "ema needs model:, one of several")
	}
	if el.findModel(spec.EMAName) != nil {
		el.fail(e.At, "%q is what the averaged model is called; give the model of that name another", spec.EMAName)
	}
	el.job.EMA = &program.EMA{Name: spec.EMAName, Model: m.name, Decay: e.Decay.V, CPU: e.Device.V == "cpu"}
}
