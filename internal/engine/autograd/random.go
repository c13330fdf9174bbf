package autograd

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Random is the state of the device's random numbers.
func (p *Player) Random() uint64 {
	if p.backend == nil {
		return 0
	}
	return p.backend.Random()
}

// Packed implements op.Exec.
func (p *Player) Packed(n int64, ts ...*op.Tensor) bool {
	st, at := Of(ts[0]).st, int64(0)
	for _, t := range ts {
		if Of(t).st != st || t.Offset != at {
			return false
		}
		at += t.Numel()
	}
	return st.bytes == tensor.Bytes(n*ts[0].DType.Size())
}

// DropoutState implements op.Exec. The first call makes the state, which stays
// for the life of the process, until somebody sets the state of the device's
// random numbers; the seed for it is drawn on the device, too.
func (p *Player) DropoutState() {
	if p.rnnState != nil && !p.rnnReset || p.env.FakeTensors {
		return
	}
	p.Drop(p.New(tensor.Layout{}, tensor.Int64))
	old := p.rnnState
	p.rnnState, p.rnnReset = p.Do1(op.InitDropoutState, nil), false
	p.Mark(p.rnnState, trace.Workspace)
	p.Drop(old)
}
