package engine

import (
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
)

// sumSaved is called before each backward pass; the largest sum stays.
func (j *job) sumSaved() {
	if sum, byLayer := j.graph(); sum > j.totals.SavedBytes {
		by := make([]tensor.Bytes, len(j.Trace().Layers))
		copy(by, byLayer)
		j.totals.SavedBytes, j.totals.LayerSaved = sum, by
	}
}

// countGradients sums the gradients after a backward pass.
func (j *job) countGradients() {
	var sum tensor.Bytes
	seen := map[int32]bool{} // gradients of a recurrent layer share a block
	for _, c := range j.params {
		if g := obj(c.t).grad; g != nil && !seen[BlockOf(&g.Tensor)] {
			seen[BlockOf(&g.Tensor)] = true
			sum += storageBytes(&g.Tensor)
		}
	}
	j.totals.GradientBytes = max(j.totals.GradientBytes, sum)
}

// sum fills in the totals that do not change from step to step.
func (j *job) sum() {
	t := &j.totals
	t.Products = j.multiplied()
	for i := range t.Products {
		t.Flops += t.Products[i].Flops
		t.HalfFlops += t.Products[i].HalfFlops
	}
	t.LayerParams = make([]tensor.Bytes, len(j.Trace().Layers))
	seen := map[int32]bool{} // parameters of a recurrent layer share a block
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
		if b := BlockOf(c.t); !seen[b] {
			seen[b] = true
			t.ParameterBytes += storageBytes(c.t)
			t.LayerParams[c.layer] += storageBytes(c.t)
		}
	}
	states := func(ps []*optim.Param) {
		for _, p := range ps {
			for _, s := range p.State {
				t.OptimizerStateBytes += storageBytes(s)
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
		m.eachBuffer(func(c *cell) { t.BufferBytes += storageBytes(c.t) })
	}
	for _, in := range j.prog.Inputs {
		n, _ := tensor.MulBytes(append(append([]int64(nil), in.Size...), in.DType.Size())...)
		t.BatchBytes += n
	}
}
