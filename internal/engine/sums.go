package engine

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
)

// sumSaved is called before each backward pass; the largest sum stays.
func (j *job) sumSaved() {
	if sum, byLayer := j.Saved(); sum > j.totals.SavedBytes {
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
		if g := autograd.Of(c.T).Grad; g != nil && !seen[autograd.BlockOf(&g.Tensor)] {
			seen[autograd.BlockOf(&g.Tensor)] = true
			sum += autograd.StorageBytes(&g.Tensor)
		}
	}
	j.totals.GradientBytes = max(j.totals.GradientBytes, sum)
}

// sum fills in the totals that do not change from step to step.
func (j *job) sum() {
	t := &j.totals
	t.Products = j.Multiplied()
	for i := range t.Products {
		t.Flops += t.Products[i].Flops
		t.HalfFlops += t.Products[i].HalfFlops
		t.Again += t.Products[i].Again
	}
	t.LayerParams = make([]tensor.Bytes, len(j.Trace().Layers))
	seen := map[int32]bool{} // parameters of a recurrent layer share a block
	for _, c := range j.params {
		elements := c.T.Numel()
		if c.Divided {
			elements = c.Size().Numel()
		}
		if c.Decl.Elements > 0 {
			elements = c.Decl.Elements
		}
		t.Parameters += elements
		if !c.Frozen {
			t.Trainable += elements
		}
		t.ParameterTensors++
		if b := autograd.BlockOf(c.T); !seen[b] {
			seen[b] = true
			t.ParameterBytes += autograd.StorageBytes(c.T)
			t.LayerParams[c.Layer] += autograd.StorageBytes(c.T)
		}
	}
	states := func(ps []*optim.Param) {
		for _, p := range ps {
			for _, s := range p.State {
				t.OptimizerStateBytes += autograd.StorageBytes(s)
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
		m.EachBuffer(func(c *python.Cell) { t.BufferBytes += autograd.StorageBytes(c.T) })
	}
	for _, in := range j.prog.Inputs {
		n, _ := tensor.MulBytes(append(append([]int64(nil), in.Size...), in.DType.Size())...)
		t.BatchBytes += n
	}
}
