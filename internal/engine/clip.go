package engine

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// clip is torch.nn.utils.clip_grad_norm_ or clip_grad_value_ in their foreach
// forms. The latter works in place; the former needs the norm of each gradient,
// their norm, and scalars (torch/nn/utils/clip_grad.py).
func (j *job) clip(s *program.Stmt) {
	grads := j.gradients(s.Optimizer)
	if s.Kind == program.ClipValue || j.parametersOnCPU() || j.Offload.Gradients || len(grads) == 0 { // in place, or on the CPU
		if j.Executes() {
			j.Must(j.backend.Clip(grads, s.Kind == program.ClipValue, s.Number))
		}
		return
	}
	var norms, with []*op.Tensor
	for _, g := range optim.ByType(grads, func(g *op.Tensor) tensor.DType { return g.DType }) {
		norms = append(norms, j.foreachNorm(g)...)
		with = append(with, g...)
	}
	d := norms[0].DType
	for _, n := range norms {
		d = tensor.Promote(d, n.DType)
	}
	stacked := j.New(tensor.Contiguous(tensor.D(int64(len(norms)))), d)
	if j.Executes() {
		j.Must(j.backend.Norms(norms, with, stacked))
	}
	two := 2.0
	var total *op.Tensor
	j.Quiet(func() { total = j.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, stacked) })
	if j.Executes() {
		j.Must(j.backend.Norms([]*op.Tensor{total}, []*op.Tensor{stacked}, nil))
	}
	j.Drop(stacked)
	for i := len(norms) - 1; i >= 0; i-- {
		j.Drop(norms[i])
	}
	// max_norm / (total_norm + 1e-6), clamped to 1
	sum := j.scalar(total.DType)
	reduced := j.reduceNorm(total.DType)
	reciprocal := j.scalar(total.DType)
	j.Drop(reduced)
	coefficient := j.scalar(total.DType)
	j.Drop(reciprocal, sum)
	clamped := j.scalar(total.DType)
	if j.Executes() {
		j.Must(j.backend.Scale(grads, total, s.Number, coefficient, clamped))
	}
	j.Drop(coefficient, clamped)
	if len(s.Targets) > 0 {
		j.Store(j.frame, s.Targets[0], python.Value{T: total})
		return
	}
	j.Drop(total)
}

// foreachNorm returns the norms of gradients.
func (j *job) foreachNorm(grads []*op.Tensor) []*op.Tensor {
	var norms []*op.Tensor
	j.Quiet(func() { norms = j.Do(aten.ForeachNorm, nil, grads...) })
	return norms
}

// reduceNorm is what makes a norm of sharded gradients that of all ranks: a
// DTensor is a part of the norm until a reciprocal is taken of it (_NormPartial in
// torch/distributed/tensor/_ops/_math_ops.py), then the squares are summed over
// the ranks. It returns nil if gradients are not sharded.
func (j *job) reduceNorm(d tensor.DType) *op.Tensor {
	if j.prog.Parallel.FSDP == nil {
		return nil
	}
	square, sum := j.scalar(d), j.scalar(d)
	root := j.scalar(d)
	j.Drop(square, sum)
	return root
}

// scalar allocates a tensor without dimensions.
func (j *job) scalar(d tensor.DType) *op.Tensor { return j.New(tensor.Contiguous(tensor.D()), d) }
