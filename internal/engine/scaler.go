package engine

import (
	"maps"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// gradScaler is torch.amp.GradScaler: what scale, step and update allocate
// (torch/amp/grad_scaler.py). All of it is scalars. Which steps are left out
// depends on numbers: where nothing is computed, none is.
type gradScaler struct {
	scale, tracker *op.Tensor
	unscaled       map[int]bool // optimizers whose gradients were unscaled in this step
	found          []*op.Tensor // found_inf of each optimizer that stepped since the last update

	factor   float64      // the value of scale
	growth   int          // that of tracker: updates since one was left out, or the factor grew
	infinite map[int]bool // optimizers whose gradients hold infinities or NaN
	skipped  int          // steps that were left out
}

// The defaults of GradScaler's constructor.
const (
	initScale      = 65536
	growthFactor   = 2
	backoffFactor  = 0.5
	growthInterval = 2000
)

// next is what update makes of the factor
// (amp_update_scale_cuda_kernel in aten/src/ATen/native/cuda/AmpKernels.cu).
func (s *gradScaler) next(infinite bool) {
	switch {
	case infinite:
		s.factor *= backoffFactor
		s.growth = 0
	case s.growth+1 < growthInterval:
		s.growth++
	default:
		if f := s.factor * growthFactor; !math.IsInf(float64(float32(f)), 0) {
			s.factor = f
		}
		s.growth = 0
	}
}

// persistent is a scalar that lives as long as the job.
func (j *job) persistent(d tensor.DType) *op.Tensor {
	t := j.scalar(d)
	j.Mark(t, trace.OptimizerState)
	return t
}

// scaled returns loss * scale. The first call makes the scale and the growth
// tracker.
func (j *job) scaled(loss *op.Tensor) *op.Tensor {
	s := &j.scaler
	if s.scale == nil {
		s.scale = j.persistent(tensor.Float32)
		s.tracker = j.persistent(tensor.Int32)
		s.factor, s.infinite = initScale, map[int]bool{}
		j.Fill(s.scale, s.factor)
		j.Fill(s.tracker, 0)
	}
	return j.Do1(aten.Mul, &aten.BinaryArgs{}, loss, s.scale)
}

// unscale checks the gradients for infinities and divides them by the scale, in
// place, once in a step. Each scalar is copied once for the device of the
// gradients.
func (j *job) unscale(optimizer int) {
	if j.scaler.unscaled[optimizer] {
		return
	}
	if j.scaler.unscaled == nil {
		j.scaler.unscaled = map[int]bool{}
	}
	j.scaler.unscaled[optimizer] = true
	if j.hasGradient(optimizer, tensor.Float16) {
		j.Fail("attempting to unscale float16 gradients, PyTorch says; parameters that a GradScaler scales are float32")
	}
	double := j.scalar(tensor.Float64)
	reciprocal := j.scalar(tensor.Float64)
	j.Drop(double)
	inverse := j.scalar(tensor.Float32)
	j.Drop(reciprocal)
	j.check(optimizer, inverse)
}

// check is what unscale_ and _check_inf_per_device share; it takes over the
// reference to inverse.
func (j *job) check(optimizer int, inverse *op.Tensor) {
	if j.hasGradient(optimizer, tensor.BFloat16) {
		j.Fail("GradScaler does not work with bfloat16 gradients, PyTorch says; parameters that it scales are float32")
	}
	foundInf := j.scalar(tensor.Float32)
	var copied *op.Tensor
	if j.hasGradients(optimizer) { // else there is no device to copy the scalars to
		j.scaler.found = append(j.scaler.found, j.scalar(tensor.Float32))
		copied = j.scalar(tensor.Float32)
	}
	if j.Executes() && copied != nil {
		finite, err := j.backend.Unscale(j.gradients(optimizer), 1/j.scaler.factor)
		j.Must(err)
		j.scaler.infinite[optimizer] = !finite
	}
	if j.prog.Parallel.FSDP != nil { // all-reduced (found_inf_reduce_handler in torch/distributed/tensor/_dispatch.py)
		j.Drop(j.scalar(tensor.Float32))
	}
	j.Drop(copied, inverse, foundInf)
}

// scaledStep is scaler.step(optimizer), which leaves the step out if gradients
// hold infinities. Fused optimizers unscale by themselves and only need to know of
// those.
func (j *job) scaledStep(i int) {
	o := j.prog.Optimizers[i]
	if !optim.IsFused(o.Args) || j.prog.Parallel.ZeRO != nil { // which does not say that its optimizer is fused
		j.unscale(i)
		if !j.hasGradients(i) {
			j.Fail("no parameter of this optimizer has a gradient: no inf checks were recorded for this optimizer, PyTorch says; with amp-fp16, a backward pass must reach its parameters before it steps")
		}
		if j.scaler.infinite[i] {
			j.scaler.skipped++
			return
		}
		j.optimize(i)
		return
	}
	unscaled := j.scaler.unscaled[i]
	if !unscaled {
		j.check(i, j.scalar(tensor.Float32))
	}
	var foundInf, scale *op.Tensor // the sum over devices; the product with the optimizer's own grad_scale
	if j.hasGradients(i) {
		foundInf = j.scalar(tensor.Float32)
	}
	if !unscaled {
		scale = j.scalar(tensor.Float32)
	}
	j.optimize(i)
	if j.scaler.infinite[i] {
		j.scaler.skipped++
	}
	j.Drop(scale, foundInf)
}

func (j *job) hasGradients(i int) bool {
	return slices.ContainsFunc(j.opts[i], func(c *python.Cell) bool { return autograd.Of(c.T).Grad != nil })
}

// hasGradient reports whether one of an optimizer's gradients has that type.
func (j *job) hasGradient(i int, d tensor.DType) bool {
	return slices.ContainsFunc(j.opts[i], func(c *python.Cell) bool { g := autograd.Of(c.T).Grad; return g != nil && g.DType == d })
}

// updateScale is scaler.update().
func (j *job) updateScale() {
	if len(j.scaler.found) == 0 {
		j.Fail("no optimizer has a gradient: no inf checks were recorded prior to update, PyTorch says; with amp-fp16, a backward pass must reach the parameters of an optimizer before the step ends")
	}
	j.Drop(j.scaler.found...)
	j.scaler.found = j.scaler.found[:0]
	clear(j.scaler.unscaled)
	if s := &j.scaler; j.Executes() && s.scale != nil {
		s.next(slices.Contains(slices.Collect(maps.Values(s.infinite)), true))
		clear(s.infinite)
		j.Fill(s.scale, s.factor)
		j.Fill(s.tracker, float64(s.growth))
	}
}
