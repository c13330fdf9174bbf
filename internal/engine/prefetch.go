package engine

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
)

// prefetch copies the next batch on a stream of its own, whose blocks are a
// pool apart; then the tuple of the one before is given up.
func (j *job) prefetch() {
	before := j.ahead
	j.OnStream(autograd.CopyStream, func() { j.ahead = append([]*op.Tensor(nil), j.newBatch(j.prog.Inputs)...) })
	for i := len(before) - 1; i >= 0; i-- {
		j.Drop(before[i])
	}
}
