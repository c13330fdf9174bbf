package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// clip is torch.nn.utils.clip_grad_norm_ or clip_grad_value_ in their foreach
// forms. The latter works in place; the former needs the norm of each gradient,
// their norm, and scalars (torch/nn/utils/clip_grad.py).
func (j *job) clip(s *program.Stmt) {
	grads := j.gradients(s.Optimizer)
	if f := j.prog.Parallel.FSDP; s.Kind == program.ClipNorm && f != nil && f.Flat != nil {
		j.flatZero()
		if f.Divides() {
			j.clipFlat(s, distributed.FlatGradients(j.order[0]))
			return
		}
	}
	if s.Kind == program.ClipValue || j.parametersOnCPU() || j.Offload.Gradients || len(grads) == 0 { // in place, or on the CPU
		if j.Executes() {
			j.Must(j.backend.Clip(grads, s.Kind == program.ClipValue, s.Number))
		}
		return
	}
	var norms, with, sums []*op.Tensor
	if j.addsBeforeNorms() {
		sums = j.summed(s.Optimizer)
	}
	for _, g := range optim.ByType(grads, func(g *op.Tensor) tensor.DType { return g.DType }) {
		norms = append(norms, j.foreachNorm(g)...)
		with = append(with, g...)
	}
	j.dropLastFirst(sums)
	d := norms[0].DType
	for _, n := range norms {
		d = tensor.Promote(d, n.DType)
	}
	stacked, partial := j.stackNorms(s.Optimizer, norms, d)
	if j.Executes() {
		j.Must(j.backend.Norms(norms, with, stacked))
	}
	two := 2.0
	var total, whole *op.Tensor
	if j.addsBeforeNorms() {
		whole, partial = j.reduceNorms(partial, stacked.Layout, d), nil
	}
	j.Quiet(func() { total = j.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, stacked) })
	if whole != nil {
		j.Drop(whole)
	}
	if j.Executes() {
		j.Must(j.backend.Norms([]*op.Tensor{total}, []*op.Tensor{stacked}, nil))
	}
	j.Drop(stacked)
	j.dropLastFirst(norms)
	// max_norm / (total_norm + 1e-6), clamped to 1
	sum := j.scalar(total.DType)
	reduced := j.reduceNorms(partial, total.Layout, total.DType)
	reciprocal := j.scalar(total.DType)
	j.Drop(reduced)
	coefficient := j.scalar(total.DType)
	j.Drop(reciprocal, sum)
	clamped := j.scalar(total.DType)
	if j.Executes() {
		j.Must(j.backend.Scale(grads, total, s.Number, coefficient, clamped))
	}
	if !j.addsBeforeNorms() { // _foreach_mul_ by a tensor multiplies sums
		j.dropLastFirst(j.summed(s.Optimizer))
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

// normPlacement is the placement of the norm of a gradient that is a DTensor.
type normPlacement uint8

const (
	normWhole   normPlacement = iota // Replicate, or no DTensor
	normOfPart                       // _NormPartial: the squares are to be added over the ranks
	normSummand                      // Partial, as of a gradient that is itself a summand
)

// reduceNorms is what makes norms those of all ranks, one dimension of the mesh after the other,
// which happens when a reciprocal is taken of the norm of all, or before that norm
// (torch/distributed/tensor/_ops/_math_ops.py). It returns nil if each rank has whole norms.
func (j *job) reduceNorms(at []normPlacement, l tensor.Layout, d tensor.DType) *op.Tensor {
	var out *op.Tensor
	for _, x := range at {
		if next := j.reduceNorm(x, l, d); next != nil {
			j.Drop(out)
			out = next
		}
	}
	return out
}

// reduceNorm is that of one dimension.
func (j *job) reduceNorm(at normPlacement, l tensor.Layout, d tensor.DType) *op.Tensor {
	switch at {
	case normOfPart:
		square, sum := j.New(l, d), j.New(l, d)
		root := j.New(l, d)
		j.Drop(square, sum)
		return root
	case normSummand:
		return j.New(l, d)
	}
	return nil
}

// stackNorms is torch.stack of norms, and how the stack lies. DTensors first get one
// placement (_derive_follow_placements_from_tuple_strategy in
// torch/distributed/tensor/_ops/_tensor_ops.py).
func (j *job) stackNorms(optimizer int, norms []*op.Tensor, d tensor.DType) (*op.Tensor, []normPlacement) {
	size := tensor.Contiguous(tensor.D(int64(len(norms))))
	var lies []normPlacement // of each dimension of the mesh over which norms may be divided
	if f := j.prog.Parallel.FSDP; f != nil && f.Flat == nil {
		lies = append(lies, normOfPart)
	}
	if j.prog.Parallel.TP == nil {
		return j.New(size, d), lies
	}
	var from []normPlacement
	cells := slices.DeleteFunc(slices.Clone(j.opts[optimizer]), func(c *python.Cell) bool { return autograd.Of(c.T).Grad == nil })
	for _, of := range optim.ByType(cells, func(c *python.Cell) tensor.DType { return c.T.DType }) {
		for _, c := range of {
			from = append(from, j.normOf(c))
		}
	}
	to := from[0]
	for _, x := range from[1:] {
		switch {
		case to == normWhole:
			to = x
		case x != to && x != normWhole:
			to = normWhole
		}
	}
	var changed []*op.Tensor
	for i, x := range from {
		switch {
		case to == normWhole && x != normWhole:
			changed = append(changed, j.reduceNorm(x, norms[i].Layout, norms[i].DType))
		case to != normWhole && x == normWhole:
			changed = append(changed, j.scalar(norms[i].DType)) // divided by the ranks, or its root
		}
	}
	stacked := j.New(size, d)
	for i := len(changed) - 1; i >= 0; i-- {
		j.Drop(changed[i])
	}
	return stacked, append(lies, to)
}

// normOf is how the norm of a parameter's gradient lies.
func (j *job) normOf(c *python.Cell) normPlacement {
	switch c.Gradient {
	case python.GradShard:
		return normOfPart
	case python.GradPartial:
		if !j.addsBeforeNorms() {
			return normSummand
		}
	}
	return normWhole
}

// addsBeforeNorms reports whether gradients of which each rank has a summand are added before
// their norms are taken, and the norms before that of all norms.
func (j *job) addsBeforeNorms() bool { return j.Env().Torch.Has(torchver.AddsBeforeNorms) }

// summed are the sums over the ranks of the gradients of which each has a summand.
func (j *job) summed(optimizer int) []*op.Tensor {
	var sums []*op.Tensor
	for _, c := range j.opts[optimizer] {
		if g := autograd.Of(c.T).Grad; g != nil && c.Gradient == python.GradPartial {
			sums = append(sums, j.New(tensor.Contiguous(g.Size), g.DType))
		}
	}
	return sums
}

func (j *job) dropLastFirst(ts []*op.Tensor) {
	for i := len(ts) - 1; i >= 0; i-- {
		j.Drop(ts[i])
	}
}

// scalar allocates a tensor without dimensions.
func (j *job) scalar(d tensor.DType) *op.Tensor { return j.New(tensor.Contiguous(tensor.D()), d) }
