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

// offload reads what lies in host memory, and refuses what does not go with it.
func (el *elaborator) offload() {
	o := el.spec.Offload
	if o == nil {
		return
	}
	p := &el.job.Offload
	*p = program.Offload{
		Parameters: o.Parameters.V, Optimizer: o.Optimizer.V, Gradients: o.Gradients.V, Activations: o.Activations.V, Pinned: o.PinMemory.V,
	}
	if el.job.Inference != "" {
		p.Optimizer, p.Gradients, p.Activations = false, false, false
		return
	}
	switch {
	case p.Gradients && !p.Optimizer && !p.Parameters:
		el.fail(o.Gradients.At, "gradients on the CPU need the optimizer there; write optimizer: true too")
	case p.Parameters && el.job.Scaler:
		el.fail(o.Parameters.At, "parameters on the CPU with GradScaler (amp-fp16) are not modelled; amp-bf16 needs none")
	case p.Optimizer && el.job.Scaler:
		el.fail(o.Optimizer.At, "an optimizer on the CPU with GradScaler (amp-fp16) is not modelled; amp-bf16 needs none")
	case p.Parameters && el.job.EMA != nil:
		el.fail(o.Parameters.At, "parameters on the CPU with train.ema are not modelled")
	}
	if p.Parameters {
		for _, m := range el.job.Models {
			m.Root.Walk(func(path string, c *program.Class) {
				if c.Flat > 0 {
					el.fail(o.Parameters.At, "parameters on the CPU do not go with recurrent layers (%s): PyTorch holds their weights in a list beside", path)
				}
			})
		}
	}
	if p.Optimizer || p.Parameters {
		for _, j := range el.job.Optimizers {
			for _, args := range j.AllArgs() {
				if err := j.Row.CheckCPU(args); err != nil {
					el.fail(o.At, "%v", err)
				}
			}
		}
	}
	if p.Parameters { // gradients and optimizer are where the parameters are
		p.Optimizer, p.Gradients = false, false
	}
}

func (el *elaborator) modelNames() []string {
	var names []string
	for _, m := range el.ms {
		names = append(names, m.name)
	}
	return names
}
