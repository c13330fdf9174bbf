package graph

import "github.com/memplan/memplan/internal/program"

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
