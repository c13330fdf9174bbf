package graph

import (
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// techniques changes the models, which are elaborated, as the job's spec asks.
func (el *elaborator) techniques() {
	el.optimParams()
	el.quantize()
	el.prune()
	el.freeze()
	el.lora()
	el.trains()
	el.offload()
	el.optimGiven()
	el.inBackward()
	el.evaluation()
	el.parallel()
	el.checkpoint()
	el.apart()
}

// quantize replaces linear layers by quantized ones in the models that the spec
// asks it for. What a model says of itself stands in the place of what the job
// says of all.
func (el *elaborator) quantize() {
	for i, m := range el.ms {
		q := m.use.Quantize
		if q == nil {
			q = el.spec.Quantize
		}
		if q != nil && q.Bits.V != 0 {
			spec.Try(func() { el.changer().Quantized(m.name, el.job.Models[i], q) })
		}
	}
}

// prune masks the weights of the models that the spec asks it for, and reports
// names of layers that there are not.
func (el *elaborator) prune() {
	for i, m := range el.ms {
		p := m.use.Prune
		if p == nil {
			p = el.spec.Prune
		}
		switch {
		case p == nil || p.Amount.V == 0:
		case m.shrunk != nil:
			techniques.ModuleNames(el.errs, p.Modules, "layer", m.shrunk.Layers)
			techniques.ModuleNames(el.errs, p.Except, "layer", m.shrunk.Layers)
		default:
			spec.Try(func() { el.changer().Masked(m.name, el.job.Models[i], p) })
		}
	}
}

// lora adds adapters to the models that the spec asks it for. What a model says
// of itself stands in the place of what the job says of all.
func (el *elaborator) lora() {
	for i, m := range el.ms {
		l := m.use.LoRA
		if l == nil {
			l = el.spec.LoRA
		}
		if l != nil && !el.job.Models[i].Eval {
			spec.Try(func() { el.changer().Adapters(m.name, el.job.Models[i], l) })
		}
	}
}

// changer is what changes the models.
func (el *elaborator) changer() *techniques.Changer {
	return &techniques.Changer{Errs: el.errs, Env: el.env(), Batch: el.batch}
}

// apart refuses what is not modelled together: a moving average and offloaded
// parameters are elaborated over modules as they were before others took their
// places.
func (el *elaborator) apart() {
	changed := false
	for i, m := range el.job.Models {
		if m.Quantized != nil {
			m.Root.Walk(func(path string, c *program.Class) {
				if others := c.OtherTypes(el.job.DType); len(others) > 0 {
					el.fail(el.ms[i].at, "a dtype of its own (%s) in a model with quantize is not modelled", program.Join(path, others[0].Name))
				}
			})
		}
		changed = changed || m.Adapters != nil || m.Quantized != nil || m.Pruned != nil
		if e := el.job.Eval; e != nil && e.Apart[m.Name] && m.Adapters != nil && len(m.Adapters.Saved) > 0 {
			el.fail(el.ms[0].at, "modules_to_save beside an eval: of other sizes is not modelled")
		}
	}
	switch {
	case !changed:
	case el.job.EMA != nil:
		el.fail(el.ms[0].at, "a moving average (ema) of a model with lora, quantize or prune is not modelled")
	case el.job.Offload.Parameters:
		el.fail(el.ms[0].at, "offloaded parameters of a model with lora, quantize or prune are not modelled")
	}
}
