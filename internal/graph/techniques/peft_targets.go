package techniques

import "strings"

// loraTargets are the target_modules of LoRA by model type, where none are given
// (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING in peft/utils/constants.py),
// of the types that memplan knows.
var loraTargets = byType(map[string][]string{
	"q v": {"t5", "mt5"},
	"q_proj v_proj": {
		"bart", "opt", "gptj", "gpt_neo", "llama", "llama4", "mistral", "mixtral", "stablelm", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3",
	},
	"c_attn":                      {"gpt2", "gpt_bigcode"},
	"query_key_value":             {"bloom", "gpt_neox", "falcon", "chatglm"},
	"query value":                 {"bert", "roberta", "xlm-roberta", "electra", "layoutlm"},
	"query_proj value_proj":       {"deberta-v2"},
	"in_proj":                     {"deberta"},
	"Wqkv":                        {"mpt"},
	"qkv_proj":                    {"codegen"},
	"q_proj v_proj fc1 fc2":       {"phi"},
	"q_proj k_proj v_proj o_proj": {"nemotron_h"},
	"key value receptance output": {"rwkv"},
	"q v q_proj v_proj":           {"blip-2"},
	"c_proj c_attn":               {"btlm"},
})

// adaloraTargets are those of AdaLoRA.
var adaloraTargets = byType(map[string][]string{
	"q k v o wi wo":                         {"t5"},
	"q k v o wi_0 wi_1 wo":                  {"mt5"},
	"q_proj k_proj v_proj out_proj fc1 fc2": {"bart", "opt"},
	"c_attn":                                {"gpt2", "gpt_bigcode"},
	"query_key_value":                       {"bloom", "gpt_neox"},
	"q_proj v_proj": {
		"gptj", "gpt_neo", "llama", "llama4", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3",
	},
	"query value":                          {"bert"},
	"query key value dense":                {"roberta"},
	"query_proj key_proj value_proj dense": {"deberta-v2"},
	"in_proj":                              {"deberta"},
	"q_proj k_proj v_proj o_proj":          {"nemotron_h"},
})

// ia3Targets and ia3Feedforward are the defaults of (IA)3.
var (
	ia3Targets = byType(map[string][]string{
		"k v wo":                            {"t5"},
		"k v wi_1":                          {"mt5"},
		"c_attn mlp.c_proj":                 {"gpt2", "gpt_bigcode"},
		"query_key_value mlp.dense_4h_to_h": {"bloom"},
		"key value output.dense":            {"roberta", "bert"},
		"q_proj k_proj fc2":                 {"opt"},
		"q_proj v_proj fc_out":              {"gptj"},
		"query_key_value dense_4h_to_h":     {"gpt_neox", "falcon"},
		"q_proj v_proj c_proj":              {"gpt_neo"},
		"q_proj v_proj fc2":                 {"bart", "phi"},
		"k_proj v_proj down_proj":           {"llama", "mistral"},
		"q_proj v_proj down_proj":           {"llama4", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"},
		"k_proj v_proj w2":                  {"mixtral"},
		"key_proj value_proj output.dense":  {"deberta-v2"},
		"in_proj output.dense":              {"deberta"},
	})
	ia3Feedforward = byType(map[string][]string{
		"wo":                {"t5"},
		"mlp.c_proj":        {"gpt2", "gpt_bigcode"},
		"mlp.dense_4h_to_h": {"bloom"},
		"output.dense":      {"roberta", "bert", "deberta-v2", "deberta"},
		"fc2":               {"opt", "bart", "phi"},
		"fc_out":            {"gptj"},
		"dense_4h_to_h":     {"gpt_neox", "falcon"},
		"c_proj":            {"gpt_neo"},
		"down_proj":         {"llama", "llama4", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"},
		"w2":                {"mixtral"},
	})
)

// byType turns names of modules with the types that have them around.
func byType(names map[string][]string) map[string][]string {
	out := map[string][]string{}
	for list, types := range names {
		for _, t := range types {
			out[t] = strings.Fields(list)
		}
	}
	return out
}
