package estimate

import (
	"strings"
	"testing"
)

// TestShardEmbeddings: shard_embeddings is what accelerate 1.14 does to a model of transformers. Its
// Accelerator on PyTorch 2.6, of 4 processes with this model and loop, had these peaks; the events of
// its steps are those that are predicted, one by one.
func TestShardEmbeddings(t *testing.T) {
	const head = `memplan: 1
torch: 2.6
device: {gpu: a100-80gb}
model: {hf: meta-llama/Llama-2-7b-hf, task: causal-lm, with: {seq: 256, mask: ones, vocab_size: 32000, hidden_size: 512, intermediate_size: 1376, num_hidden_layers: 4,
  num_attention_heads: 8, num_key_value_heads: 4, use_cache: false, tie_word_embeddings: TIED}}
train: {batch_size: 4, optimizer: AdamW}
step: [batch, {forward: {model: model}, name: out}, {name: loss, inputs: 'out[-1]'}, {del: out}, {name: scaled, div: [loss, 1]}, {backward: scaled}, {del: scaled}, optimizer_step, zero_grad, {del: loss}]
parallel: {fsdp: 4, param_dtype: bfloat16, reduce_dtype: bfloat16, output_dtype: bfloat16, reshard_after_forward: true, shard_embeddings: true, cpu_ram_efficient_loading: EFFICIENT}
`
	near := func(got, want int64) bool { return got > want-want/200 && got < want+want/200 }
	for _, c := range []struct {
		tied, efficient     string
		allocated, reserved int64
	}{
		{"false", "false", 676803584, 874512384},
		{"true", "false", 708523008, 891289600},
		{"true", "true", 659895296, 998244352}, // after another load
	} {
		_, r := estimateText(t, strings.NewReplacer("TIED", c.tied, "EFFICIENT", c.efficient).Replace(head))
		if a, s := int64(r.Peak.AllocatedBytes), int64(r.Peak.ReservedBytes); !near(a, c.allocated) || !near(s, c.reserved) || c.efficient == "false" && (a != c.allocated || s != c.reserved) {
			t.Errorf("tied %s, efficient %s: peaks of %d and %d, want %d and %d", c.tied, c.efficient, a, s, c.allocated, c.reserved)
		}
	}
}
