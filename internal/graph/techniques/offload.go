package techniques

import (
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// Offload reads what lies in host memory, and refuses what does not go with it.
func (j *Job) Offload() {
	o := j.Spec.Offload
	if o == nil {
		return
	}
	p := &j.Job.Offload
	*p = program.Offload{
		Parameters: o.Parameters.V, Optimizer: o.Optimizer.V, Gradients: o.Gradients.V, Pinned: o.PinMemory.V,
	}
	if j.Job.Inference != "" {
		p.Optimizer, p.Gradients = false, false
		return
	}
	j.activations(o.Activations)
	switch {
	case p.Gradients && !p.Optimizer && !p.Parameters:
		j.fail(o.Gradients.At, "gradients on the CPU need the optimizer there; write optimizer: true too")
	case p.Parameters && j.Job.Scaler:
		j.fail(o.Parameters.At, "parameters on the CPU with GradScaler (amp-fp16) are not modelled; amp-bf16 needs none")
	case p.Optimizer && j.Job.Scaler:
		j.fail(o.Optimizer.At, "an optimizer on the CPU with GradScaler (amp-fp16) is not modelled; amp-bf16 needs none")
	case p.Parameters && j.Job.EMA != nil:
		j.fail(o.Parameters.At, "parameters on the CPU with train.ema are not modelled")
	}
	if p.Parameters {
		for _, m := range j.Job.Models {
			m.Root.Walk(func(path string, c *program.Class) {
				if c.Flat > 0 {
					j.fail(o.Parameters.At, "parameters on the CPU do not go with recurrent layers (%s): PyTorch holds their weights in a second list, too", path)
				}
			})
		}
	}
	if p.Away != nil && p.Parameters {
		j.fail(o.Parameters.At, "parameters on the CPU with OffloadActivations are not modelled; activations: true goes with them")
	}
	if p.Optimizer || p.Parameters {
		for _, opt := range j.Job.Optimizers {
			for _, args := range opt.AllArgs() {
				if err := opt.Row.CheckCPU(args); err != nil {
					j.fail(o.At, "%v", err)
				}
			}
		}
	}
	if p.Parameters { // gradients and optimizer are where the parameters are
		p.Optimizer, p.Gradients = false, false
	}
}

// activations reads how saved tensors go to the CPU.
func (j *Job) activations(a *spec.Activations) {
	if a == nil {
		return
	}
	p := &j.Job.Offload
	p.Activations = a.Own || a.Saved.V
	if !a.Own {
		return
	}
	var known []string
	for _, m := range j.Job.Models {
		m.Root.Walk(func(path string, _ *program.Class) {
			if path != "" {
				known = append(known, path)
			}
		})
	}
	except := Patterns(j.Spec.Errs, a.Except, "module", known)
	if a.Head {
		for _, head := range outputHeads {
			if slices.Contains(known, head) {
				except = append(except, head)
				break
			}
		}
	}
	p.Away = &program.OffloadActivations{
		Pinned: a.Pin.V, Streams: a.Stream.V, Min: a.Min.V, Stash: a.Stash.V, Except: except,
	}
}

// outputHeads are the names of output heads, in the order in which TRL looks for them.
var outputHeads = []string{"output", "lm_head", "decoder.output", "decoder.lm_head", "final_layer_norm", "ln_f", "head"}
