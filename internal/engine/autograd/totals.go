package autograd

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// account sums what the graph keeps for the backward pass: live blocks that
// some node has saved and that are neither parameters nor inputs, each once, by
// the layer that made them.
type account struct {
	sum     tensor.Bytes
	byLayer []tensor.Bytes
}

func (a *account) add(layer int32, n tensor.Bytes) {
	for len(a.byLayer) <= int(layer) {
		a.byLayer = append(a.byLayer, 0)
	}
	a.sum += n
	a.byLayer[layer] += n
}

// CountSaved notes that something keeps t for the backward pass.
func (p *Player) CountSaved(t *op.Tensor) {
	st := Of(t).st
	if st.host {
		return
	}
	c := p.tr.Categories[st.id]
	if st.saved || c == trace.Parameters || c == trace.Inputs {
		return
	}
	st.saved = true
	p.saved.add(st.layer, st.bytes)
}

// Product is what the calls of an operator in a layer computed in matrix
// products, and the bytes of their results.
type Product struct {
	Layer            int32 // index in Trace.Layers
	Row              *op.Op
	Flops, HalfFlops float64
	Again            float64 // Flops of checkpoints that ran again in the backward pass, beside
	Bytes            tensor.Bytes
}

// products are those of a step.
type products struct {
	list  []Product
	index map[productKey]int
}

type productKey struct {
	layer int32
	row   *op.Op
}

// at is the entry of an operator in a layer.
func (s *products) at(layer int32, row *op.Op) *Product {
	k := productKey{layer, row}
	i, known := s.index[k]
	if !known {
		if s.index == nil {
			s.index = map[productKey]int{}
		}
		i = len(s.list)
		s.list, s.index[k] = append(s.list, Product{Layer: layer, Row: row}), i
	}
	return &s.list[i]
}

// reset forgets what a step computed before the next one begins.
func (s *products) reset() {
	s.list = s.list[:0]
	clear(s.index)
}

// countFlops counts what an operator computed in the forward pass of a step, or in a checkpoint
// that runs again.
func (p *Player) countFlops(c *op.Call) {
	again := p.Phase == trace.Backward && p.thread == 1 && p.env.GradMode && p.task != nil && !p.task.create
	if p.Evaluating || !again && (p.Phase != trace.Forward || p.thread != 0) {
		return
	}
	n := c.Flops()
	if n == 0 {
		return
	}
	x := p.products.at(p.Layer, c.Op)
	if again {
		x.Again += n
		return
	}
	x.Flops += n
	if c.In[1].DType.IsHalf() {
		x.HalfFlops += n
	}
	x.Bytes += tensor.Bytes(c.Out[0].Numel() * c.Out[0].DType.Size())
}
