package estimate

import (
	"strings"
	"testing"
)

// TestShardEmbeddings: shard_embeddings is what accelerate 1.14 does to a model of transformers. Its
// fsdp2_prepare_model on PyTorch 2.6, of 4 processes with this model and loop, had peaks of 676794880
// bytes allocated and 874512384 reserved; without the embeddings apart they would be 715012608 and
// 887095296. What is left is the last norm, which accelerate takes together with the output embedding.
func TestShardEmbeddings(t *testing.T) {
	const head = `memplan: 1
torch: 2.6
device: {gpu: a100-80gb}
model: {hf: meta-llama/Llama-2-7b-hf, task: causal-lm, with: {seq: 256, mask: ones, vocab_size: 32000, hidden_size: 512, intermediate_size: 1376, num_hidden_layers: 4,
  num_attention_heads: 8, num_key_value_heads: 4, use_cache: false, tie_word_embeddings: TIED}}
train: {batch_size: 4, optimizer: AdamW, precision: amp-bf16}
step: [batch, {forward: {model: model}, name: out}, {name: loss, inputs: 'out[-1]'}, {del: out}, {backward: loss}, optimizer_step, zero_grad, {del: loss}]
parallel: {fsdp: 4, param_dtype: bfloat16, reduce_dtype: bfloat16, output_dtype: bfloat16, reshard_after_forward: true, KEYS}
`
	peak := func(tied, keys string) (int64, int64) {
		_, r := estimateText(t, strings.NewReplacer("TIED", tied, "KEYS", keys).Replace(head))
		return int64(r.Peak.AllocatedBytes), int64(r.Peak.ReservedBytes)
	}
	allocated, reserved := peak("false", "shard_embeddings: true")
	if near := func(got, want int64) bool { return got == want }; !near(allocated, 676794880) || !near(reserved, 874512384) {
		t.Errorf("peaks of %d and %d", allocated, reserved) //
	}
	allocated, reserved = peak("true", "shard_embeddings: true") // which stay together
	if a, r := peak("true", "reshard_last: true"); a != allocated || r != reserved {
		t.Errorf("peaks of %d and %d with tied embeddings, want %d and %d", allocated, reserved, a, r)
	}
}
