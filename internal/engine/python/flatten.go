package python

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// flatten makes the parameters of a recurrent layer views of one buffer, once
// they are on the device (RNNBase.flatten_parameters in torch/nn/modules/rnn.py):
// cuDNN wants them so. Their own blocks die from the first to the last. Where in
// the buffer cuDNN puts each does not matter here.
func (p *Interp) flatten(m *Module) {
	if m.Class.Flat == 0 || p.Env().FakeTensors || !cudnn.TakesRNN(m.Params[0].Decl.DType) || hasDuplicates(m.Params) {
		return
	}
	outer := p.Push()
	p.Label("_cudnn_rnn_flatten_weight")
	buf := p.New(tensor.Contiguous(tensor.D(m.Class.Flat)), m.Params[0].Decl.DType)
	p.Mark(buf, trace.Parameters)
	at := int64(0)
	for _, c := range m.Params {
		l := c.T.Layout
		l.Offset = at
		p.MoveInto(c.T, buf, l)
		at += c.T.Numel()
	}
	p.Drop(buf)
	p.Pop(outer)
}

// hasDuplicates reports whether two parameters of a module are tied.
func hasDuplicates(cells []*Cell) bool {
	seen := map[*Cell]bool{}
	for _, c := range cells {
		if seen[c] {
			return true
		}
		seen[c] = true
	}
	return false
}
