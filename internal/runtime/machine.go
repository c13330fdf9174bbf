package runtime

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

var _ op.Machine = (*Executor)(nil)

// Wanted implements op.Machine.
func (x *Executor) Wanted(b *op.Back, i int) *op.Tensor { return wanted(b, i) }

// Note implements op.Machine.
func (x *Executor) Note(t *op.Tensor, what any) {
	if x.notes == nil {
		x.notes = map[int32]any{}
	}
	x.notes[autograd.BlockOf(t)] = what
}

// Noted implements op.Machine.
func (x *Executor) Noted(t *op.Tensor) any { return x.notes[autograd.BlockOf(t)] }

// OnHost implements op.Machine: it runs f, unless the device only checks what another one
// is to run, or nothing is computed.
func (x *Executor) OnHost(f func(a op.Arrays)) error {
	x.aside = true
	if x.hostOps == nil {
		x.hostOps = map[string]bool{}
	}
	x.hostOps[x.running] = true
	if _, is := x.device.(dry); is || x.skip {
		return nil
	}
	a := &onArrays{x: x}
	f(a)
	return a.err
}

// operands are tensors as they are.
func (x *Executor) operands(ts ...*op.Tensor) []kernel.Tensor {
	out := make([]kernel.Tensor, len(ts))
	for i, t := range ts {
		out[i] = x.operand(t)
	}
	return out
}
