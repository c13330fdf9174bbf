package techniques

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// zero reads the stage of ZeRO, of which PyTorch itself has the first.
func (j *Job) zero(s *spec.Parallel) {
	if !s.ZeRO.Set {
		return
	}
	switch {
	case s.ZeRO.V != 1:
		j.fail(s.ZeRO.At, "stage %d of ZeRO is DeepSpeed's, which is not modelled; 1 is ZeroRedundancyOptimizer, and parallel.fsdp divides gradients and parameters, too", s.ZeRO.V)
	case j.Job.Offload.Optimizer:
		j.fail(j.Spec.Offload.Optimizer.At, "an optimizer in host memory is not modelled with parallel.zero")
	}
	for _, o := range j.Job.Optimizers {
		if o.Row.Closure {
			j.fail(s.ZeRO.At, "%s, which calls a closure, is not modelled with parallel.zero", o.Row.Name)
		}
	}
	j.Job.Parallel.ZeRO = &program.ZeRO{BucketView: s.Bucket.V}
}
