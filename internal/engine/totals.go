package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
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

// countSaved notes that a node has saved a tensor over st.
func (p *Player) countSaved(st *storage) {
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

// countFlops counts what an operator computed in the forward pass of a step.
func (p *Player) countFlops(c *op.Call) {
	if p.phase != trace.Forward || p.thread != 0 || p.evaluating {
		return
	}
	n := c.Flops()
	if n == 0 {
		return
	}
	x := p.products.at(p.layer, c.Op)
	x.Flops += n
	if c.In[1].DType.IsHalf() {
		x.HalfFlops += n
	}
	x.Bytes += tensor.Bytes(c.Out[0].Numel() * c.Out[0].DType.Size())
}

// sumSaved is called before each backward pass; the largest sum stays.
func (j *job) sumSaved() {
	if j.saved.sum > j.totals.SavedBytes {
		by := make([]tensor.Bytes, len(j.tr.Layers))
		copy(by, j.saved.byLayer)
		j.totals.SavedBytes, j.totals.LayerSaved = j.saved.sum, by
	}
}

// countGradients sums the gradients after a backward pass.
func (j *job) countGradients() {
	var sum tensor.Bytes
	seen := map[*storage]bool{} // gradients of a recurrent layer share a block
	for _, c := range j.params {
		if g := obj(c.t).grad; g != nil && !seen[g.st] {
			seen[g.st] = true
			sum += g.st.bytes
		}
	}
	j.totals.GradientBytes = max(j.totals.GradientBytes, sum)
}

// sum fills in the totals that do not change from step to step.
func (j *job) sum() {
	t := &j.totals
	t.Products = j.products.list
	for i := range t.Products {
		t.Flops += t.Products[i].Flops
		t.HalfFlops += t.Products[i].HalfFlops
	}
	t.LayerParams = make([]tensor.Bytes, len(j.tr.Layers))
	seen := map[*storage]bool{} // parameters of a recurrent layer share a block
	for _, c := range j.params {
		elements := c.t.Numel()
		if c.divided {
			elements = tensor.D(c.decl.Size...).Numel()
		}
		if c.decl.Elements > 0 {
			elements = c.decl.Elements
		}
		t.Parameters += elements
		if !c.frozen {
			t.Trainable += elements
		}
		t.ParameterTensors++
		if st := obj(c.t).st; !seen[st] {
			seen[st] = true
			t.ParameterBytes += st.bytes
			t.LayerParams[c.layer] += st.bytes
		}
	}
	states := func(ps []*optim.Param) {
		for _, p := range ps {
			for _, s := range p.State {
				t.OptimizerStateBytes += obj(s).st.bytes
			}
		}
	}
	for _, o := range j.steppers {
		states(o.params)
	}
	for _, copies := range j.onCPU {
		states(copies)
	}
	for _, m := range j.order {
		m.eachBuffer(func(c *cell) { t.BufferBytes += obj(c.t).st.bytes })
	}
	for _, in := range j.prog.Inputs {
		n, _ := tensor.MulBytes(append(append([]int64(nil), in.Size...), in.DType.Size())...)
		t.BatchBytes += n
	}
}

func (m *module) eachBuffer(f func(*cell)) {
	for _, c := range m.buffers {
		f(c)
	}
	for _, ch := range m.children {
		ch.eachBuffer(f)
	}
}
