package advise

import (
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

// Work is what one optimizer step does, in the units in which a GPU is fast or
// slow. A change alters the work, and so the time that it takes: see Seconds.
type Work struct {
	Flops, Half  float64 // forward, in matrix products on float32 and on 16 bits
	Passes       float64 // how often those are computed: forward once, backward twice
	Forward      float64 // bytes that kernels write in the forward passes,
	Backward     float64 // and in the backward passes
	Kernels      float64 // of both
	Optimizer    float64 // bytes that the optimizer reads and writes
	Steps        float64 // kernels of the optimizer
	Link         float64 // bytes over PCI Express, from and to page-locked memory
	Host         float64 // parameters that the CPU updates
	Microbatches float64

	// What the job has, for models of changes.
	Parameters, Trained float64 // elements
	ParameterBytes      float64
	GradientBytes       float64
	StateBytes          float64
	Saved               float64 // bytes that one microbatch keeps for its backward pass
	Batch               float64 // bytes of one microbatch
	Tensors             float64 // that hold parameters
}

// Seconds is the time that the work takes on a GPU with so many
// multiprocessors, by a roofline model (Williams, Waterman and Patterson 2009):
// products at the rate of arithmetic, everything else at that of memory, one
// after the other, and the same for every kernel on top.
func (w *Work) Seconds(r rate, sms int) float64 {
	n := float64(max(sms, 1))
	t := w.Passes * (w.Flops/(fullShare*r.full*n) + w.Half/(halfShare*r.half*n))
	t += (uses*(w.Forward+w.Backward) + w.Optimizer) / (memoryShare * r.memory * n)
	t += (w.Kernels + w.Steps) * kernelTime
	return t + w.Link/r.link + w.Host*hostAdam
}

// workOf reads the work of a job off its last step.
func workOf(o *estimate.Outcome) Work {
	j, t, p := o.Job, o.Played.Trace, &o.Played.Totals
	w := Work{
		Flops: p.Flops - p.HalfFlops, Half: p.HalfFlops, Passes: 3, Microbatches: float64(max(j.Spec.Train.GradAccumulation.V, 1)),
		Parameters: float64(p.Parameters), Trained: float64(p.Trainable), ParameterBytes: float64(p.ParameterBytes), GradientBytes: float64(p.GradientBytes),
		StateBytes: float64(p.OptimizerStateBytes), Saved: float64(p.SavedBytes), Batch: float64(p.BatchBytes), Tensors: float64(p.ParameterTensors),
	}
	switch {
	case j.Program.Inference != "":
		w.Passes = 1
	case p.Trainable < p.Parameters && p.Trainable > 0: // gradients of frozen weights are not computed
		w.Passes = 2 + w.Trained/w.Parameters
	}
	if p.Flops > 0 {
		w.Passes += p.Again / p.Flops
	}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != trace.Alloc || int(e.Step) != o.Played.Steps {
			continue
		}
		switch e.Phase {
		case trace.Forward:
			w.Forward += float64(e.Bytes)
			w.Kernels++
		case trace.Backward:
			w.Backward += float64(e.Bytes)
			w.Kernels++
		}
	}
	w.optimizer(j.Program)
	off := j.Program.Offload
	if off.Optimizer || off.Parameters {
		w.Link += w.GradientBytes + w.ParameterBytes
		w.Host, w.Optimizer, w.Steps = w.Trained, 0, 0
	}
	if off.Parameters {
		w.Link += 2 * w.Microbatches * w.ParameterBytes
	}
	if off.Activations {
		w.Link += 2 * w.Microbatches * w.Saved
	}
	return w
}

// The passes over memory of an optimizer's step. A fused kernel reads parameter,
// gradient and states once and writes all but the gradient; the lists of foreach
// and the for-loop go over them operator by operator, which is three times as
// much for Adam (torch/optim/adam.py: lerp, mul, addcmul, sqrt, div, add,
// addcdiv).
const (
	passesApart  = 3
	kernelsApart = 8 // launches for a tensor in the for-loop
)

// optimizer is the work of the job's own optimizer.
func (w *Work) optimizer(p *program.Job) {
	if len(p.Optimizers) == 0 || w.Trained == 0 {
		return
	}
	row := p.Optimizers[0].Row
	loops, fused := row.Implementation(p.Optimizers[0].Args)
	w.step(fused || row.Package != "", loops)
}

// step is the work of an update of all parameters.
func (w *Work) step(fused, loop bool) {
	w.Optimizer, w.Steps = 3*w.GradientBytes+2*w.StateBytes, 1
	if !fused {
		w.Optimizer *= passesApart
	}
	if loop && !fused {
		w.Steps = kernelsApart * w.Tensors
	}
}

// recompute is a second forward pass of a share of the model: shares of what it
// computes in products, of the bytes that it writes, and of its kernels.
func (w *Work) recompute(products, bytes, kernels float64) {
	w.Passes += products
	w.Backward += bytes * w.Forward
	w.Kernels += kernels * w.Kernels / 3
}
