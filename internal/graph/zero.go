package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// zero reads the stage of ZeRO, of which PyTorch itself has the first.
func (el *elaborator) zero(s *spec.Parallel) {
	if !s.ZeRO.Set {
		return
	}
	switch {
	case s.ZeRO.V != 1:
		el.fail(s.ZeRO.At, "stage %d of ZeRO is DeepSpeed's, which is not modelled; 1 is ZeroRedundancyOptimizer, and parallel.fsdp divides gradients and parameters, too", s.ZeRO.V)
	case el.job.Offload.Optimizer:
		el.fail(el.spec.Offload.Optimizer.At, "an optimizer in host memory is not modelled with parallel.zero")
	}
	for _, o := range el.job.Optimizers {
		if o.Row.Closure {
			el.fail(s.ZeRO.At, "%s, which calls a closure, is not modelled with parallel.zero", o.Row.Name)
		}
	}
	el.job.Parallel.ZeRO = &program.ZeRO{BucketView: s.Bucket.V}
}
