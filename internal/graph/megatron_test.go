package graph_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/engine"
)

// Fused kernels that are not modelled are named, unless arguments turn them off; a model without
// positions has no table of them, and without dropout no masks are kept.
func TestMegatronArguments(t *testing.T) {
	const text = "memplan: 1\nmodel: {preset: megatron}\ntrainer: {megatron: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, seq_length: 32, max_position_embeddings: 32, bf16: true, "
	notes := func(args string) string {
		r, err := build(t, "a.yaml", []byte(text+args+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Play(r.Job, options().Env, nil, 2); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, n := range r.NotModelled {
			out = append(out, n.Text)
		}
		for _, p := range r.Job.Models[0].Root.ParamPaths() {
			if strings.Contains(p, "position") {
				out = append(out, p)
			}
		}
		return strings.Join(out, "\n")
	}
	for _, c := range []struct {
		args, word string
		want       bool
	}{
		{"hidden_dropout: 0", "no_gradient_accumulation_fusion", true},
		{"hidden_dropout: 0, no_gradient_accumulation_fusion: true, disable_bias_linear: true", "no_gradient_accumulation_fusion", false},
		{"position_embedding_type: rope", "rope", false},
		{"qk_layernorm: true", "qk_layernorm", true},
		{"qk_layernorm: true, transformer_impl: local", "qk_layernorm", false},
		{"position_embedding_type: learned_absolute", "position_embeddings", true},
		{"position_embedding_type: none", "position_embeddings", false},
	} {
		if got := notes(c.args); strings.Contains(got, c.word) != c.want {
			t.Errorf("%s: %s is there: %v; got %s", c.args, c.word, !c.want, got)
		}
	}
}

// A stage of a pipeline has experts in its own layers: of eight layers of which the last five
// have some, on two processes with two virtual stages each.
func TestMegatronStagesOfExperts(t *testing.T) {
	const text = "memplan: 1\nmodel: {preset: megatron}\ntrainer: {megatron: {num_layers: 8, hidden_size: 64, num_attention_heads: 4, seq_length: 32, max_position_embeddings: 32, bf16: true, " +
		"num_experts: 4, moe_layer_freq: '([0]*3+[1]*5)', no_bias_gelu_fusion: true, pipeline_model_parallel_size: 2, num_virtual_stages_per_pipeline_rank: 2, world_size: 2, micro_batch_size: 1, global_batch_size: 4, pipeline_model_parallel_rank: "
	for rank, want := range []string{"chunks.1.layers.0 chunks.1.layers.1", "chunks.0.layers.1 chunks.1.layers.0 chunks.1.layers.1"} {
		r, err := build(t, "a.yaml", []byte(text+strconv.Itoa(rank)+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Job.Models[0].Root.ParamPaths() {
			if layer, ok := strings.CutSuffix(p, ".mlp.router.weight"); ok {
				got = append(got, layer)
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("rank %d has experts in %s, not %s", rank, got, want)
		}
	}
}
