//go:build cuda

package cuda

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
)

// TestTrainModels trains small models of transformers on the GPU and on the CPU, as TestTrain
// does: with heads that share keys, experts, positions that are looked up, sorted patches, and
// a gradient of what is added to scores.
func TestTrainModels(t *testing.T) {
	t.Setenv("MEMPLAN_EMULATOR_MEMORY", "4294967296")
	t.Setenv("MEMPLAN_EMULATOR_CAPABILITY", "8") // grouped products are another library's below
	d := open(t)
	for _, c := range []struct{ model, with string }{
		{"mixtral", "seq: 24, hidden_size: 64, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 97, num_local_experts: 4"},
		{"gpt_oss", "seq: 20, vocab_size: 97, hidden_size: 64, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, num_local_experts: 4, num_experts_per_tok: 2"},
		{"swin", "image_size: 56, embed_dim: 12, depths: [2, 1], num_heads: [2, 4]"},
		{"t5", "seq: 12, vocab_size: 97, d_model: 32, d_kv: 8, d_ff: 48, num_layers: 1, num_heads: 4"},
		{"vit_mae", "hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, intermediate_size: 48, image_size: 48, decoder_num_attention_heads: 4, decoder_hidden_size: 32, decoder_num_hidden_layers: 1, decoder_intermediate_size: 48"},
		{"apertus", "seq: 20, vocab_size: 97, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2"},
	} {
		t.Run(c.model, func(t *testing.T) {
			text := "memplan: 1\nmodel:\n  preset: hf/" + c.model + "\n  with: {" + c.with + "}\ntrain: {batch_size: 2, optimizer: AdamW}\ndevice: {gpu: a100-40gb}\n"
			j, err := (&estimate.Recipe{Path: c.model, Text: []byte(text)}).Job()
			if err != nil {
				t.Fatal(err)
			}
			want, weights, err := trained(j, cpu.New(4*tensor.GiB), 3)
			if err != nil {
				t.Fatal(err)
			}
			got, gotWeights, err := trained(j, d, 3)
			if err != nil {
				t.Fatal(err)
			}
			if on := got.HostOperators; len(on) > 0 {
				t.Errorf("computed in host memory are %q", on)
			}
			if difference, norm := errorOf(gotWeights, weights); len(gotWeights) != len(weights) || !(difference <= 1e-3*norm) {
				t.Errorf("weights differ by %.2g of %.2g", difference, norm)
			}
			for i := range want.Steps {
				if a, b := got.Steps[i].Loss, want.Steps[i].Loss; !(math.Abs(a-b) <= 1e-5*math.Abs(b)) {
					t.Errorf("step %d: loss %v, on the CPU %v", i, a, b)
				}
			}
		})
	}
}
