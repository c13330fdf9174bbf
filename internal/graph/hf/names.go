package hf

import (
	"cmp"

	"github.com/memplan/memplan/internal/program"
)

var (
	expertsW    = []string{"w1", "w3", "w2"}
	expertsProj = []string{"gate_proj", "up_proj", "down_proj"}

	mixtralNames = &program.Names{Experts: expertsW, Renamed: [][2]string{{"mlp", "block_sparse_moe"}}}
	qwenNames    = &program.Names{Experts: expertsProj}
	vitNames     = &program.Names{Renamed: [][2]string{
		{"layers", "encoder.layer"}, {"q_proj", "attention.query"}, {"k_proj", "attention.key"}, {"v_proj", "attention.value"},
		{"attention.o_proj", "attention.output.dense"}, {"mlp.fc1", "intermediate.dense"}, {"mlp.fc2", "output.dense"},
	}}
)

// checkpoints are the model types whose checkpoints have other names than transformers 5's
// models (_build_checkpoint_conversion_mapping in transformers/conversion_mapping.py), where these
// come in another order or are of experts that are joined when they are read.
var checkpoints = map[string]*program.Names{
	"mixtral": mixtralNames, "minimax_m2": mixtralNames,
	"lfm2_moe": {Experts: expertsW},
	"afmoe":    qwenNames, "deepseek_v2": qwenNames, "deepseek_v3": qwenNames, "glm4_moe": qwenNames, "glm4_moe_lite": qwenNames, "jamba": qwenNames, "olmoe": qwenNames,
	"qwen2_moe": qwenNames, "qwen3_5_moe_text": qwenNames, "qwen3_moe": qwenNames, "qwen3_next": qwenNames,
	"nemotron_h": {Experts: []string{"up_proj", "down_proj"}, Renamed: [][2]string{{"model", "backbone"}}},
	"voxtral": {Renamed: [][2]string{
		{"lm_head", "language_model.lm_head"}, {"model.language_model", "language_model.model"}, {"model.audio_tower", "audio_tower"}, {"model.multi_modal_projector", "multi_modal_projector"},
	}},
	"vit": vitNames, "deit": vitNames,
}

// float32s are parts of the names of tensors that these types have in float32 when weights
// are read in 16 bits (_keep_in_fp32_modules_strict).
var float32s = map[string][]string{
	"deepseek_v3": {"e_score_correction_bias"}, "glm4_moe": {"e_score_correction_bias"}, "glm4_moe_lite": {"e_score_correction_bias"}, "nemotron_h": {"e_score_correction_bias"},
	"voxtral": {"embed_positions"},
}

// names are those of the checkpoint; nil: the model's.
func (c *Config) names() *program.Names {
	return checkpoints[cmp.Or(c.Around, c.Type)]
}
