package engine

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// flatten makes the parameters of a recurrent layer views of one buffer, once
// they are on the device (RNNBase.flatten_parameters in torch/nn/modules/rnn.py):
// cuDNN wants them so. Their own blocks die from the first to the last. Where in
// the buffer cuDNN puts each does not matter here.
func (p *interp) flatten(m *module) {
	if m.class.Flat == 0 || p.Env().FakeTensors || !cudnn.TakesRNN(m.params[0].decl.DType) || hasDuplicates(m.params) {
		return
	}
	outer := p.push()
	p.label("_cudnn_rnn_flatten_weight")
	buf := p.New(tensor.Contiguous(tensor.D(m.class.Flat)), m.params[0].decl.DType)
	p.mark(buf, trace.Parameters)
	at := int64(0)
	for _, c := range m.params {
		l := c.t.Layout
		l.Offset = at
		p.moveInto(c.t, buf, l)
		at += c.t.Numel()
	}
	p.Drop(buf)
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
