package estimate

import (
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/graph/layers"
)

// named is a job whose block, called by NAME, has a child beside parameters of its
// own that look like those of a linear layer.
const named = `memplan: 1
model:
  inputs: {x: {shape: [64]}, y: {shape: [], dtype: int64}}
  blocks:
    NAME:
      parameters: {weight: {shape: [64, 64]}, bias: {shape: [64]}}
      modules: {fc: {Linear: 64}}
      layers:
        - {addmm: [bias, x, weight], name: h}
        - {call: fc, inputs: h}
    NAME_2:
      parameters: {weight: {shape: [64, 64]}, bias: {shape: [64]}}
      layers: [{addmm: [bias, x, weight]}]
  layers: [{block: NAME}, {block: NAME_2}, ReLU, {block: NAME}, {block: NAME_2}, {Linear: 2}]
  loss: {CrossEntropyLoss: {target: y}}
`

// TestNamesOfBlocks calls blocks by the names of layers: what a spec calls its
// blocks changes nothing.
func TestNamesOfBlocks(t *testing.T) {
	words := []string{"Conv1D", "conv1D", "linear", "linear4bit", "multihead_attention", "batch_norm2d", "sequential", "embedding"}
	all := words
	for _, n := range layers.Names() {
		all = append(all, strings.ToLower(n[:1])+n[1:]) // the class has the name
	}
	for _, set := range [][]string{
		{"offload.parameters=true"}, {"lora={r: 4}"}, {"quantize={bits: 8}", "mode=inference"}, {"prune={amount: 0.5}"}, {"train.checkpoint=true", "model.checkpoint=['layers.1']"},
	} {
		want, _ := estimateText(t, strings.ReplaceAll(named, "NAME", "plain"), set...)
		for _, name := range all {
			got, _ := estimateText(t, strings.ReplaceAll(named, "NAME", name), set...)
			if !slices.Equal(got.Played.Trace.Events, want.Played.Trace.Events) {
				t.Errorf("%v: blocks called %s take %v, others %v", set, name, got.Free.PeakAllocated.Allocated, want.Free.PeakAllocated.Allocated)
			}
		}
		all = words // once is enough of those that nothing else knows
	}
}
