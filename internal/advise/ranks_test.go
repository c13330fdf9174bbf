package advise

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
)

// TestSearchRanks searches for the largest batch of a pipeline of which one stage needs most with a small batch, and
// another with a large one: it is the least of those that the stages have alone.
func TestSearchRanks(t *testing.T) {
	r := &estimate.Recipe{Path: "staged.yaml", Text: []byte(`memplan: 1
model:
  inputs: {ids: {shape: [16], dtype: int64}, y: {shape: [16, 64]}}
  layers:
    - {Embedding: [200000, 64], module: table}
    - {Linear: [64, 4096], module: up}
    - GELU
    - {Linear: {in_features: 4096, out_features: 64, bias: false}, module: down}
  loss: {mse_loss: {input: out, target: y}}
train: {batch_size: 4, precision: fp32, optimizer: AdamW}
device: {gpu: a100-40gb, memory: 1GiB}
pp: {ranks: 2, split: [up], microbatches: 2}
`)}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	o, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	if rank := o.Job.Program.Parallel.Pipeline.Rank; rank != 0 {
		t.Fatalf("with a small batch, rank %d needs most", rank)
	}
	const headroom = 0.05
	all, err := SearchRanks(t.Context(), r, BatchFrom(o), headroom, o)
	if err != nil {
		t.Fatal(err)
	}
	largest, recommended := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, of := range o.Ranks {
		alone, err := Search(t.Context(), r, BatchFrom(of), headroom, of.Job.RankKey())
		if err != nil {
			t.Fatal(err)
		}
		largest, recommended = min(largest, alone.Largest), min(recommended, alone.Recommended)
	}
	if all.Largest != largest || all.Recommended != recommended || largest == 0 {
		t.Errorf("%d, %d recommended, want %d and %d", all.Largest, all.Recommended, largest, recommended)
	}
}
