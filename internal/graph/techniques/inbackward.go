package techniques

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// InBackward reads train.optimizer_in_backward, and refuses what does not go
// with it: whatever needs all gradients at one time, or those of several
// backward passes.
func (j *Job) InBackward() {
	t := &j.Spec.Train
	if !t.InBackward.V || j.Job.Inference != "" || len(j.Job.Optimizers) == 0 { // a mistake left none
		return
	}
	at := t.InBackward.At
	const key = "optimizer_in_backward"
	switch row := j.Job.Optimizers[0].Row; {
	case len(j.Job.Optimizers) > 1:
		j.fail(at, "%s makes an optimizer for each parameter; it goes with train.optimizer, not with several optimizers", key)
	case row.Closure:
		j.fail(at, "%s cannot step in the backward pass: it needs a closure", row.Name)
	case j.Job.Scaler:
		j.fail(at, "%s and GradScaler (amp-fp16) exclude each other: gradients are not unscaled before they are used; amp-bf16 needs none", key)
	case t.ClipGradNorm.Set:
		j.fail(t.ClipGradNorm.At, "clip_grad_norm needs all gradients at one time; with %s each is gone when the next comes", key)
	case t.ClipGradValue.Set:
		j.fail(t.ClipGradValue.At, "clip_grad_value needs the gradients after the backward pass; with %s they are gone", key)
	case t.GradAccumulation.V > 1:
		j.fail(t.GradAccumulation.At, "grad_accumulation needs gradients that outlive a backward pass; with %s they are gone", key)
	case t.ZeroGrad.SetToNone.Set && !t.ZeroGrad.SetToNone.V:
		j.fail(t.ZeroGrad.SetToNone.At, "set_to_none: false keeps gradients; with %s they are dropped", key)
	case j.Job.Offload.Optimizer, j.Job.Offload.Parameters:
		j.fail(at, "%s with the optimizer or the parameters on the CPU is not modelled", key)
	}
	for _, s := range j.Job.Step.Statements() {
		head := map[program.StmtKind]string{
			program.OptStep: spec.HeadOptimizer, program.ClipNorm: spec.HeadClipNorm, program.ClipValue: spec.HeadClipValue, program.ZeroGrad: spec.HeadZeroGrad,
		}[s.Kind]
		if head != "" {
			j.fail(at, "%s leaves nothing to do for %s (line %d)", key, head, s.Line)
		}
	}
	j.Job.InBackward = true
}
