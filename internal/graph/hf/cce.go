package hf

import (
	"slices"

	"github.com/memplan/memplan/internal/note"
)

// cceTypes are the types that the param cut_cross_entropy of the preset llama is
// recorded with.
var cceTypes = []string{
	"afmoe", "apertus", "arcee", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "exaone4", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe",
	"glm4_moe_lite", "gpt_oss", "granite", "hunyuan_v1_dense", "lfm2", "lfm2_moe", "llama", "minimax_m2", "ministral3", "mistral", "mistral4", "mixtral", "olmo", "olmo2",
	"olmo3", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3",
}

// cceAround are the models of text and images, or audio, that it is recorded with.
var cceAround = []string{
	"gemma3", "glm4v", "glm46v", "internvl", "lfm2_vl", "llava", "mistral3", "mllama", "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "voxtral",
}

// cutCrossEntropy is the value of the param cut_cross_entropy with those that are given.
func (h *model) cutCrossEntropy(given map[string]any) bool {
	c := h.m.CCE
	if !c.V {
		return false
	}
	if task := given["task"]; task != nil && task != "causal-lm" {
		h.fail(c.At, "cut_cross_entropy is a loss of task causal-lm, not of %s", task)
	}
	if names, _ := given["liger"].([]any); slices.Contains(names, any(fusedLoss)) {
		h.fail(c.At, "cut_cross_entropy and Liger's %s exclude each other; write %s: false among Liger's kernels", fusedLoss, fusedLoss)
	}
	if h.Spec.Trainer.OfSFT() {
		h.fail(c.At, "SFTTrainer computes its metrics of logits, of which Cut Cross Entropy makes none; loss_type: chunked_nll, without cut_cross_entropy, computes few at a time")
	}
	if v := given["transformers"]; v != nil && v != "5.12" {
		h.fail(c.At, "cut_cross_entropy of transformers %v is not modelled; modelled is that of 5.12", v)
	}
	name, types := h.c.Type, cceTypes
	if h.c.Around != "" {
		name, types = h.c.Around, cceAround
	}
	if !slices.Contains(types, name) {
		h.NotModelled = append(h.NotModelled, note.Asked.New("cut_cross_entropy: Cut Cross Entropy of %s; planned with the logits of all tokens, which take more", name).Of("model.cut_cross_entropy"))
		return false
	}
	return true
}
