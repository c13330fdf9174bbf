package estimate

import (
	"slices"
	"strings"
	"testing"
)

// staged has six ranks, of which the second and the third do the same.
const staged = `memplan: 1
model:
  inputs: {x: {shape: [64]}, y: {shape: [64]}}
  layers:
    - {Linear: [64, 256], module: up}
    - {repeat: {n: 5, as: i}, layers: [{Linear: [256, 256], module: "layers.${i}"}]}
    - {Linear: [256, 64], module: down}
  loss: {mse_loss: {input: out, target: y}}
train: {batch_size: 12, precision: fp32, optimizer: AdamW}
freeze: {modules: [layers.2.bias]}
pp: {ranks: 6, split: [layers.0, layers.1, layers.2, layers.4, down], microbatches: 3}
`

// TestRanks checks that ranks which do the same are played once, and that each has the peaks of a job of its own.
func TestRanks(t *testing.T) {
	r := &Recipe{Path: "staged.yaml", Text: []byte(staged)}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	if like, err := j.distinct(); err != nil || !slices.Equal(like, []int64{0, 1, 1, 3, 4, 5}) {
		t.Errorf("ranks do the same as %v (%v)", like, err)
	}
	for rank, of := range o.Ranks {
		j, err := r.Job(j.stageKey(int64(rank)))
		if err != nil {
			t.Fatal(err)
		}
		alone, err := Run(j)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(alone.Played.Trace.Events, of.Played.Trace.Events) || alone.Free.PeakReserved != of.Free.PeakReserved {
			t.Errorf("rank %d: played alone it does something else", rank)
		}
	}
}

// TestStagePlace checks that what is wrong with a stage is said at the split with which it begins.
func TestStagePlace(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: {shape: [64]}, y: {shape: [64]}}
  layers:
    - {Linear: [64, 64], module: a, name: h}
    - {eq: [h, 0], name: same}
    - {Linear: [64, 64], module: b, inputs: h, name: h}
    - {where: [same, h, 0]}
  loss: {mse_loss: {input: out, target: y}}
train: {batch_size: 4, precision: fp32, optimizer: AdamW}
pp:
  ranks: 2
  microbatches: 2
  split: [b]
`
	j, err := (&Recipe{Path: "staged.yaml", Text: []byte(text)}).Job()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Run(j); err == nil || !strings.HasPrefix(err.Error(), "staged.yaml:14:11: parallel.pp: a stage gets a tensor of bool") {
		t.Errorf("%v", err)
	}
}
