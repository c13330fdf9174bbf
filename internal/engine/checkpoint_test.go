package engine_test

import (
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/trace"
)

// checkpointed is a spec with a block of two linear layers that is called as
// its checkpoint says.
func checkpointed(how string) string {
	return fmt.Sprintf(`memplan: 1
model:
  inputs: {x: [64], y: {shape: [], dtype: int64}}
  blocks:
    block: {layers: [{Linear: 256}, GELU, {Linear: 64}]}
  layers:
    - Linear: 64
    - {block: block, checkpoint: %s}
    - Linear: 10
  loss: {cross_entropy: {target: y}}
train: {batch_size: 32}
`, how)
}

// again counts the runs of an operator's forward in backward passes of step 2.
func again(p *engine.Played, op string) int {
	n := 0
	for _, e := range p.Trace.Events {
		// The results of the block's layers: 256 and 64 numbers of 4 bytes a sample.
		if e.Kind == trace.Alloc && e.Step == 2 && e.Phase == trace.Backward && p.Trace.Ops[e.Op] == op && (e.Bytes == 32*256*4 || e.Bytes == 32*64*4) {
			n++
		}
	}
	return n
}

// TestCheckpointRecomputes counts what the backward pass computes again: without
// reentrance all but the last layer, whose inputs are the last tensors that the
// block saves; with it all; and of operators whose results are kept nothing.
func TestCheckpointRecomputes(t *testing.T) {
	for _, c := range []struct {
		how         string
		addmm, gelu int
	}{
		{"false", 0, 0},
		{"true", 1, 1},
		{"{use_reentrant: true}", 2, 1},
		{"{save: [matmul]}", 0, 1},
		{"{save: [gelu]}", 1, 0},
	} {
		p := play(t, build(t, checkpointed(c.how)))
		if a, g := again(p, "addmm"), again(p, "gelu"); a != c.addmm || g != c.gelu {
			t.Errorf("checkpoint: %s: %d matrix products and %d activations are computed again, want %d and %d", c.how, a, g, c.addmm, c.gelu)
		}
	}
}

// TestCheckpointSaves sums what the graph keeps at the end of the forward pass:
// of the block its input alone, which the layer before has made.
func TestCheckpointSaves(t *testing.T) {
	full := play(t, build(t, checkpointed("false"))).Totals.SavedBytes
	kept := play(t, build(t, checkpointed("true"))).Totals.SavedBytes
	const hidden = 32 * 256 * 4 // the result of the first layer, and that of GELU
	if full-kept != 2*hidden {
		t.Errorf("a checkpoint saves %d bytes, want %d", full-kept, 2*hidden)
	}
}

// TestCheckpointWithoutGradients warns as PyTorch does.
func TestCheckpointWithoutGradients(t *testing.T) {
	p := play(t, build(t, `memplan: 1
model:
  inputs: {x: [64], y: {shape: [], dtype: int64}}
  layers: [{Linear: 64, checkpoint: {use_reentrant: true}}, {Linear: 10}]
  loss: {cross_entropy: {target: y}}
`))
	if len(p.Warnings) != 1 {
		t.Errorf("warnings: %q, want one", p.Warnings)
	}
}
