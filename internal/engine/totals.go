package engine

import (
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// countSaved sums what the graph keeps for the backward pass: blocks that are
// saved by some node and are neither parameters nor inputs, each once, by the
// layer that made them. It is called before each backward; the largest sum
// stays.
func (j *job) countSaved() {
	// A block's role is known by its category; activations that live now and
	// were marked as saved are what counts. The trace tells who made them.
	alive := map[int32]tensor.Bytes{}
	layer := map[int32]int32{}
	for i := range j.tr.Events {
		e := &j.tr.Events[i]
		switch e.Kind {
		case trace.Alloc:
			if j.savedIDs[e.ID] {
				alive[e.ID], layer[e.ID] = e.Bytes, e.Layer
			}
		case trace.Free:
			delete(alive, e.ID)
		}
	}
	var sum tensor.Bytes
	by := make([]tensor.Bytes, len(j.tr.Layers))
	for id, n := range alive {
		if c := j.tr.Categories[id]; c == trace.Parameters || c == trace.Inputs {
			continue
		}
		sum += n
		by[layer[id]] += n
	}
	if sum > j.totals.SavedBytes {
		j.totals.SavedBytes, j.totals.LayerSaved = sum, by
	}
}

// countGradients sums the gradients after a backward pass.
func (j *job) countGradients() {
	var sum tensor.Bytes
	seen := map[*cell]bool{}
	for _, m := range j.order {
		for _, c := range m.parameters(seen) {
			if g := obj(c.t).grad; g != nil {
				sum += g.st.bytes
			}
		}
	}
	j.totals.GradientBytes = max(j.totals.GradientBytes, sum)
}

// sum fills in the totals that do not change from step to step.
func (j *job) sum() {
	t := &j.totals
	t.LayerParams = make([]tensor.Bytes, len(j.tr.Layers))
	seen := map[*cell]bool{}
	for _, m := range j.order {
		for _, c := range m.parameters(seen) {
			t.Parameters += c.t.Numel()
			t.ParameterTensors++
			t.ParameterBytes += obj(c.t).st.bytes
			t.LayerParams[c.layer] += obj(c.t).st.bytes
			for _, s := range c.opt.State {
				t.OptimizerStateBytes += obj(s).st.bytes
			}
		}
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
