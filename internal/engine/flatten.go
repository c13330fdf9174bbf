package engine

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// flatten makes the parameters of a recurrent layer views of one buffer, once
// they are on the device (RNNBase.flatten_parameters in torch/nn/modules/rnn.py):
// cuDNN wants them so. Their own blocks die from the first to the last. Where in
// the buffer cuDNN puts each does not matter here.
func (p *Player) flatten(m *module) {
	if m.class.Flat == 0 || p.env.FakeTensors || !cudnn.TakesRNN(m.params[0].decl.DType) || hasDuplicates(m.params) {
		return
	}
	outer := p.push()
	p.op = p.names.op("_cudnn_rnn_flatten_weight")
	buf := obj(p.New(tensor.Contiguous(tensor.D(m.class.Flat)), m.params[0].decl.DType))
	p.mark(buf, trace.Parameters)
	at := int64(0)
	for _, c := range m.params {
		o := obj(c.t)
		old := o.st
		o.st, o.Offset = buf.st, at
		buf.st.refs++
		at += o.Numel()
		p.dropStorage(old)
	}
	p.release(buf)
	p.pop(outer)
}

// hasDuplicates reports whether two parameters of a module are tied.
func hasDuplicates(cells []*cell) bool {
	seen := map[*cell]bool{}
	for _, c := range cells {
		if seen[c] {
			return true
		}
		seen[c] = true
	}
	return false
}

// Packed implements op.Exec.
func (p *Player) Packed(n int64, ts ...*op.Tensor) bool {
	st, at := obj(ts[0]).st, int64(0)
	for _, t := range ts {
		if obj(t).st != st || t.Offset != at {
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
	p.rnnState, p.rnnReset = p.do1(op.InitDropoutState, nil), false
	p.mark(obj(p.rnnState), trace.Workspace)
	p.Drop(old)
}
