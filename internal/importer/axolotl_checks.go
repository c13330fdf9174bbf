package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// axolotlCheck is one of the checks by which Axolotl refuses a file before it loads
// anything (utils/schemas): those of keys that do not go with one another. A file that
// lacks data or half of its batch is planned.
type axolotlCheck struct {
	name string // of Axolotl's function
	// at is the value that is refused; nil: none is.
	at  func(j *job) *spec.Value
	why string // after "Axolotl refuses KEY: VALUE "
}

// together is the last of keys that do not go together, if all ask for something.
func together(keys ...string) func(j *job) *spec.Value {
	return func(j *job) (at *spec.Value) {
		for _, k := range keys {
			if at = j.get(k); !given(at) {
				return nil
			}
		}
		return at
	}
}

// without is the value of a key that another one must go with.
func without(key, other string) func(j *job) *spec.Value {
	return func(j *job) *spec.Value {
		if j.on(key) && !j.on(other) {
			return j.get(key)
		}
		return nil
	}
}

// when is the value of a key if something is the case.
func when(key string, is func(j *job) bool) func(j *job) *spec.Value {
	return func(j *job) *spec.Value {
		if v := j.get(key); given(v) && is(j) {
			return v
		}
		return nil
	}
}

// fsdp2 reports whether the file says that FSDP is that of version 2.
func (j *job) fsdp2() bool {
	v := j.get("fsdp_version")
	if v == nil && j.on("fsdp_config") {
		v = fsdpKey(j.get("fsdp_config"), "version")
	}
	return v != nil && v.Str == "2"
}

// optim is the optimizer that the file names.
func (j *job) optim(names ...string) bool {
	v := j.get("optimizer")
	return v != nil && slices.Contains(names, v.Str)
}

// says reports whether a key has one of these values.
func (j *job) says(key string, values ...string) bool {
	v := j.get(key)
	return v != nil && slices.Contains(values, v.Str)
}

// called reports whether a name is part of that of base_model.
func (j *job) called(name string) bool {
	v := j.get("base_model")
	return v != nil && strings.Contains(strings.ToLower(v.Str), name)
}

// many reports whether a key is a number above 1.
func (j *job) many(key string) bool {
	v := j.get(key)
	return v != nil && v.Kind == spec.Int && v.Int > 1
}

var axolotlChecks = []axolotlCheck{
	{"check_gas_bsz", together("gradient_accumulation_steps", "batch_size"), "with gradient_accumulation_steps; remove one of them"},
	{"check_pretraining_w_max_steps", without("pretraining_dataset", "max_steps"), "without max_steps; write max_steps"},
	{"check_streaming_w_max_steps", without("streaming", "max_steps"), "without max_steps; write max_steps"},
	{"check_pretraining_w_val_set_size", together("pretraining_dataset", "val_set_size"), "with pretraining_dataset; write test_datasets, or val_set_size: 0"},
	{"check_streaming_w_val_set_size", together("streaming", "val_set_size"), "with streaming; write test_datasets, or val_set_size: 0"},
	{"check_val_w_test_datasets", together("test_datasets", "val_set_size"), "with test_datasets; write val_set_size: 0"},
	{"check_warmup", together("warmup_steps", "warmup_ratio"), "with warmup_steps; remove one of them"},
	{"check_saves", together("saves_per_epoch", "save_steps"), "with saves_per_epoch; remove one of them"},
	{"check_saves", when("save_steps", func(j *job) bool { return j.get("save_strategy") != nil && !j.says("save_strategy", "steps") }), "with a save_strategy other than steps; remove one of them"},
	{"check_evals", together("evals_per_epoch", "eval_steps"), "with evals_per_epoch; remove one of them"},
	{"check_evals", when("eval_steps", func(j *job) bool { return j.on("eval_strategy") && !j.says("eval_strategy", "steps") }), "with an eval_strategy other than steps; remove one of them"},
	{"check_evals", when("evals_per_epoch", func(j *job) bool { return j.on("eval_strategy") && !j.says("eval_strategy", "steps") }), "with an eval_strategy other than steps; remove one of them"},
	{"check_evals", func(j *job) *spec.Value {
		v := j.get("val_set_size")
		if v == nil || given(v) || j.on("test_datasets") || j.says("eval_strategy", "no") || !j.on("eval_steps") && !j.on("eval_strategy") {
			return nil
		}
		return v
	}, "with eval_steps or eval_strategy; write eval_strategy: no"},
	{"check_eval_packing", when("eval_table_size", func(j *job) bool { return j.on("sample_packing") && j.flag("eval_sample_packing", true) }), "with sample_packing; write eval_sample_packing: false"},
	{"check_sample_packing_w_rl", together("rl", "sample_packing"), "with rl; write sample_packing: false"},
	{"check_kto_config", when("rl", func(j *job) bool { return j.says("rl", "kto") && j.flag("remove_unused_columns", true) }), "without remove_unused_columns: false; write it"},
	{"check_dpo", when("dpo_loss_type", func(j *job) bool { return !j.says("rl", "dpo") }), "without rl: dpo; remove it"},
	{"check_dpo", when("dpo_loss_weights", func(j *job) bool { return !j.says("rl", "dpo") || j.get("dpo_loss_type") == nil }), "without rl: dpo and dpo_loss_type; remove it"},
	{"check_simpo_warmup", when("warmup_ratio", func(j *job) bool { return j.says("rl", "simpo") }), "with rl: simpo; write warmup_steps"},
	{"check_neftune", together("neftune_noise_alpha", "noisy_embedding_alpha"), "with neftune_noise_alpha; remove it"},
	{"check_use_reentrant_mismatch", when("gradient_checkpointing_kwargs", func(j *job) bool {
		return j.on("unfrozen_parameters") && given(j.get("gradient_checkpointing_kwargs").Get("use_reentrant"))
	}), "with unfrozen_parameters; write use_reentrant: false"},
	{"check_frozen", together("adapter", "unfrozen_parameters", "peft_layers_to_transform"), "with unfrozen_parameters; remove one of them"},
	{"check_peft_layers_pattern", without("peft_layers_pattern", "peft_layers_to_transform"), "without peft_layers_to_transform; write it"},
	{"check_lora_kernels_trust_remote_code", when("trust_remote_code", func(j *job) bool { return j.on("lora_mlp_kernel") || j.on("lora_qkv_kernel") || j.on("lora_o_kernel") }), "with fused kernels of LoRA; write lora_mlp_kernel: false, lora_qkv_kernel: false and lora_o_kernel: false"},
	{"validate_qlora", when("load_in_8bit", func(j *job) bool { return j.says("adapter", "qlora") }), "with adapter: qlora; write adapter: lora, or load_in_4bit: true alone"},
	{"validate_lora_target_parameters_dropout", together("lora_target_parameters", "lora_dropout"), "with lora_target_parameters; write lora_dropout: 0"},
	{"check_quantize_moe_experts", together("lora_target_linear", "quantize_moe_experts"), "with lora_target_linear; write lora_target_parameters"},
	{"check_quantize_moe_experts", when("quantize_moe_experts", func(j *job) bool { return !j.on("load_in_4bit") && !j.on("load_in_8bit") }), "without load_in_4bit or load_in_8bit; write one of them"},
	{"normalize_attn_implementation", func(j *job) *spec.Value {
		for _, a := range axolotlAttentions {
			if v := j.get(a.key); given(v) && j.on("attn_implementation") {
				return v
			}
		}
		return nil
	}, "with attn_implementation; remove it"},
	{"validate_attn_implementation", when("attn_implementation", func(j *job) bool { return j.says("attn_implementation", "flash", "flex", "sdp") }), "; write flash_attention_2, flex_attention or sdpa"},
	{"normalize_attn_implementation", when("gemma4_hybrid_attn_impl", func(j *job) bool {
		return j.on("attn_implementation") && !j.says("attn_implementation", "flash_attention_2")
	}), "without flash_attention_2; write attn_implementation: flash_attention_2"},
	{"check_nemotron_h_gradient_checkpointing", when("gradient_checkpointing", func(j *job) bool {
		return j.called("nemotron-h") && !j.on("sample_packing")
	}), "of Nemotron-H without sample_packing; write sample_packing: true"},
	{"check_mpt_checkpointing", when("gradient_checkpointing", func(j *job) bool { return j.called("mpt") }), "of an MPT model; write gradient_checkpointing: false"},
	{"check_falcon_fsdp", when("fsdp", func(j *job) bool { return j.called("falcon") }), "of a Falcon model; write fsdp_config instead"},
	{"check_activation_offloading_wo_gc", without("activation_offloading", "gradient_checkpointing"), "without gradient_checkpointing; write gradient_checkpointing: true"},
	{"check_selective_checkpointing", without("selective_checkpointing", "gradient_checkpointing"), "without gradient_checkpointing; write gradient_checkpointing: true"},
	{"check_better_transformers", when("flash_optimum", func(j *job) bool { return j.on("fp16") || j.on("bf16") }), "with bf16 or fp16; remove it"},
	{"check_cross_entropy_conflicts", func(j *job) (at *spec.Value) {
		n := 0
		for _, k := range []string{"cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy", "liger_fused_linear_cross_entropy"} {
			if v := j.get(k); given(v) {
				at, n = v, n+1
			}
		}
		if n < 2 {
			return nil
		}
		return at
	}, "with another one of cut_cross_entropy, chunked_cross_entropy, liger_cross_entropy and liger_fused_linear_cross_entropy; keep one of them"},
	{"check_deprecated_swiglu", together("liger_glu_activation", "liger_swiglu"), "with liger_glu_activation; remove it"},
	{"check_fsdp_deepspeed", together("deepspeed", "fsdp"), "with deepspeed; remove one of them"},
	{"check_fsdp2_w_8bit_optimizer", when("optimizer", func(j *job) bool { return j.on("fsdp_config") && j.fsdp2() && j.optim("adamw_8bit", "adamw_bnb_8bit") }), "with fsdp_version: 2; write optimizer: adamw_torch_8bit"},
	{"check_fsdp_offload_w_8bit_optimizer", when("optimizer", func(j *job) bool {
		return strings.Contains(j.get("optimizer").Str, "8bit") && j.on("fsdp_config") && given(fsdpKey(j.get("fsdp_config"), "offload_params")) && !j.fsdp2()
	}), "with offload_params of FSDP1; write fsdp_version: 2 and optimizer: adamw_torch_8bit"},
	{"check_fsdp2_base_model_quant_rl", when("rl", func(j *job) bool {
		return j.says("fsdp_version", "2") && j.says("rl", "dpo", "kto", "orpo", "ipo") && (j.on("load_in_4bit") || j.on("load_in_8bit"))
	}), "with fsdp_version: 2 and weights in 4 or 8 bits; write fsdp_version: 1, or load_in_4bit: false and adapter: lora"},
	{"check_multigpu_lora_kernels", func(j *job) *spec.Value {
		for _, k := range loraKernels {
			if v := j.get(k.key); given(v) && j.on("fsdp_config") && !j.fsdp2() && j.opts.Processes != 1 {
				return v
			}
		}
		return nil
	}, "with FSDP1; write fsdp_version: 2"},
	{"check_muon_deepspeed_fsdp", when("optimizer", func(j *job) bool {
		return j.optim("muon") && (j.on("deepspeed") || (j.on("fsdp") || j.on("fsdp_config")) && !j.fsdp2())
	}), "with DeepSpeed or FSDP1; write fsdp_version: 2"},
	{"check_flashoptim_deepspeed_fsdp", when("optimizer", func(j *job) bool {
		return strings.HasPrefix(j.get("optimizer").Str, "flash_") && (j.on("deepspeed") || (j.on("fsdp") || j.on("fsdp_config")) && !j.fsdp2())
	}), "with DeepSpeed or FSDP1; write fsdp_version: 2"},
	{"check_qgalore", when("optimizer", func(j *job) bool { return j.optim("q_galore_adamw8bit") && (j.on("adapter") || j.on("deepspeed")) }), "with an adapter or DeepSpeed; write optimizer: adamw_torch_8bit"},
	{"_configure_custom_optimizer", when("optimizer", func(j *job) bool { return j.optim("ao_adamw_4bit", "ao_adamw_8bit") }), ", which it has no class for; write optimizer: adamw_torch_4bit or adamw_torch_8bit"},
	{"check_tensor_parallel_optimizer", when("tensor_parallel_size", func(j *job) bool {
		return j.many("tensor_parallel_size") && j.optim("paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit")
	}), "with an optimizer of bitsandbytes in 8 bits; write optimizer: adamw_torch_fused"},
	{"check_liger_rms_norm_tensor_parallel", when("liger_rms_norm", func(j *job) bool { return j.many("tensor_parallel_size") }), "with tensor_parallel_size; write liger_rms_norm: false"},
	{"check_context_parallel_size", when("context_parallel_size", func(j *job) bool {
		return j.many("context_parallel_size") && !j.flash() && !j.on("use_glm_dsa_kernels")
	}), "without FlashAttention; write attn_implementation: flash_attention_2"},
	{"check_context_parallel_size", when("context_parallel_size", func(j *job) bool {
		return j.many("context_parallel_size") && j.on("sample_packing") && j.many("micro_batch_size") && !j.on("use_glm_dsa_kernels")
	}), "with sample_packing and more than one row; write micro_batch_size: 1"},
	{"check_relora", when("relora", func(j *job) bool {
		return !j.on("jagged_restart_steps") || !j.on("adapter") || j.on("fsdp") || j.on("fsdp_config") || j.on("deepspeed")
	}), "without jagged_restart_steps and an adapter, or with FSDP or DeepSpeed; write jagged_restart_steps and adapter: lora"},
	{"check_early_stopping", when("early_stopping_patience", func(j *job) bool { return !j.on("save_steps") || !j.on("eval_steps") }), "without save_steps and eval_steps; write both"},
	{"check_mem_mismatch", together("max_memory", "gpu_memory_limit"), "with max_memory; remove one of them"},
}

// axolotlRemoved are keys that releases of Axolotl had, with what to write now
// (utils/schemas/deprecated.py).
var axolotlRemoved = []struct{ key, instead string }{
	{"max_packed_sequence_len", "remove it"}, {"s2_attention", "remove it"}, {"rope_scaling", "write it under overrides_of_model_config"},
	{"flash_attn_rms_norm", "write liger_rms_norm, with the Liger plugin"}, {"unsloth_cross_entropy_loss", "write cut_cross_entropy, with its plugin"},
	{"unsloth_lora_mlp", "write lora_mlp_kernel"}, {"unsloth_lora_qkv", "write lora_qkv_kernel"}, {"unsloth_lora_o", "write lora_o_kernel"},
	{"unsloth_rms_norm", "write liger_rms_norm, with the Liger plugin"}, {"unsloth_rope", "write liger_rope, with the Liger plugin"},
}

// mambas are the model types of which Axolotl runs the kernels of Mamba 2 one by one under
// context parallelism (monkeypatch/models/mamba_utils.py).
var mambas = []string{"nemotron_h", "falcon_h1", "granitemoehybrid"}

// axolotlRefuses reports what Axolotl refuses.
func (j *job) axolotlRefuses() {
	if v := j.get("context_parallel_size"); j.many("context_parallel_size") && slices.ContainsFunc(mambas, j.isType) {
		j.doc.Errs.Addf(v.Span, "context_parallel_size: %s with layers of Mamba 2, whose kernels run one by one then, is not modelled; write context_parallel_size: 1", v.Str)
	}
	for _, k := range axolotlRemoved { // which older releases take
		if v := j.get(k.key); given(v) {
			j.notes = append(j.notes, j.at(note.WouldFail.New("%s; %s", j.refused(v, "in its releases of 2026, which have the key no more"), k.instead), v))
		}
	}
	for _, c := range axolotlChecks {
		spec.Try(func() {
			if v := c.at(j); v != nil {
				j.doc.Errs.Addf(v.Span, "%s", j.refused(v, c.why))
			}
		})
	}
}

// refused is the message about a value that Axolotl refuses.
func (j *job) refused(v *spec.Value, why string) string {
	what := ""
	for _, p := range j.doc.Root.Pairs {
		if p.Value == v {
			what = p.Key.Str
			if v.Kind != spec.List && v.Kind != spec.Map {
				what += ": " + v.Str
			}
		}
	}
	if !strings.HasPrefix(why, ",") && !strings.HasPrefix(why, ";") {
		what += " "
	}
	return fmt.Sprintf("Axolotl refuses %s%s", what, why)
}
