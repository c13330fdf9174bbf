package engine

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// flatZero is _zero_scalar of FullyShardedDataParallel, which the first call of clip_grad_norm_
// makes.
func (j *job) flatZero() *op.Tensor {
	if j.zero == nil {
		j.zero = j.scalar(tensor.Float32)
	}
	return j.zero
}

// clipFlat is FullyShardedDataParallel.clip_grad_norm_ (_get_grad_norm in
// torch/distributed/fsdp/fully_sharded_data_parallel.py): the norm of each gradient in float32,
// their norm, which is added over the ranks, and scalars; the gradients are multiplied one by one.
func (j *job) clipFlat(s *program.Stmt, grads []*op.Tensor) {
	const d = tensor.Float32
	local := j.flatZero()
	switch {
	case len(grads) == 0:
		local = j.Keep(local)
	case j.parametersOnCPU():
		local = j.scalar(d) // copied from the CPU
	default:
		local = j.flatNorm(grads)
	}
	square := j.scalar(d)
	total := j.scalar(d)
	j.Drop(square)
	if j.parametersOnCPU() { // all else is, too
		returned := j.Transfer(total, true, false, total.Layout)
		j.Drop(total, local)
		j.returnNorm(s, returned)
		return
	}
	sum := j.scalar(d)
	reciprocal := j.scalar(d)
	coefficient := j.scalar(d)
	j.Drop(reciprocal, sum)
	clamped := j.scalar(d)
	to := d
	for i, g := range grads {
		if g.DType != d {
			j.Drop(j.scalar(g.DType))
		}
		if i == 0 {
			to = g.DType
		}
	}
	returned := j.Keep(total)
	if to != d {
		j.Drop(returned)
		returned = j.scalar(to)
	}
	j.Drop(local, total)
	j.Drop(coefficient, clamped)
	j.returnNorm(s, returned)
}

// returnNorm gives the norm to the name that takes it.
func (j *job) returnNorm(s *program.Stmt, norm *op.Tensor) {
	if len(s.Targets) > 0 {
		j.Store(j.frame, s.Targets[0], python.Value{T: norm})
		return
	}
	j.Drop(norm)
}

// flatNorm is _get_grad_norm.
func (j *job) flatNorm(grads []*op.Tensor) *op.Tensor {
	two, d := 2.0, tensor.Float32
	args := &aten.NormArgs{P: &two, ReduceArgs: aten.ReduceArgs{DType: &d}}
	var norms []*op.Tensor
	for _, g := range grads {
		if g.DType != grads[0].DType {
			j.Fail("clip_grad_norm_ of FSDP requires a uniform dtype across all gradients, PyTorch says: not %s and %s", grads[0].DType, g.DType)
		}
		j.Quiet(func() { norms = append(norms, j.Do1(aten.VectorNorm, args, g)) })
	}
	stacked := j.New(tensor.Contiguous(tensor.D(int64(len(norms)))), d)
	for i := len(norms) - 1; i >= 0; i-- {
		j.Drop(norms[i])
	}
	var norm *op.Tensor
	j.Quiet(func() { norm = j.Do1(aten.VectorNorm, args, stacked) })
	j.Drop(stacked)
	return norm
}
