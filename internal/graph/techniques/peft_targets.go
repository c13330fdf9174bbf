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
