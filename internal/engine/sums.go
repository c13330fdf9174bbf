package engine

import (
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
)

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
