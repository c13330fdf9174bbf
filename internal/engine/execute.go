package engine

import (
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
)

// Backend executes what a job does: beside what it is to the player and to modules, it
// has batches, steps optimizers and scales gradients.
type Backend interface {
	python.Backend
	// Lerp moves t towards another tensor: t += weight * (to - t).
	Lerp(t, to *op.Tensor, weight float64) error

	// Load fills a tensor of the batch.
	Load(t *op.Tensor, in program.Input) error
	// Step updates parameters that have gradients by an optimizer whose row has
	// allocated what it needs. The groups are those of the optimizer.
	Step(o *program.Optimizer, groups []optim.Group) error
	// Read gives an optimizer the elements of a tensor, row-major, on which its way
	// depends, and Write sets them; Dry reports that there are none, since nothing is
	// computed.
	Read(t *op.Tensor) ([]float64, error)
	Write(t *op.Tensor, v []float64) error
	Dry() bool
	// Unscale multiplies gradients by a factor and reports whether all of them were
	// finite.
	Unscale(grads []*op.Tensor, factor float64) (finite bool, err error)
	// Clip scales gradients to a norm of at most bound in all, or each of their
	// elements to a size of at most bound, where that allocates nothing.
	Clip(grads []*op.Tensor, byValue bool, bound float64) error
	// Norms sets each of some scalars to the norm of the tensor at its place and, if
	// stacked is not nil, its elements to all of them.
	Norms(norms, of []*op.Tensor, stacked *op.Tensor) error
	// Scale scales gradients whose norm in all is known to one of at most bound. The
	// factor goes into the second of two scalars.
	Scale(grads []*op.Tensor, norm *op.Tensor, bound float64, spare, factor *op.Tensor) error
	// Loss is told of the value from which a backward pass starts.
	Loss(t *op.Tensor) error

	// BeginEval is told that an evaluation begins, or that its batches are made, and EndEval
	// that it is over, after step n; it gives the mean loss, NaN if there is none. EvalLoss is told each value of the loss, of which the last
	// of a batch counts, and EvalBatch that a batch is over, if one has begun.
	BeginEval()
	EvalLoss(t *op.Tensor) error
	EvalBatch()
	EndEval(n int) (loss float64, err error)

	// EndStep is told that step n, from 1, is over.
	EndStep(n int) error
}
