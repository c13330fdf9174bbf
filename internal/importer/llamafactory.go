package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// LLaMA-Factory's arguments, as `llamafactory-cli train` runs them (hparams, model and
// train of LLaMA-Factory 0.9).
var llamaFactory = &Format{
	Name: "llamafactory", Title: "LLaMA-Factory",
	Signs: [][]string{
		{"model_name_or_path", "stage"}, {"model_name_or_path", "finetuning_type"}, {"model_name_or_path", "template"}, {"model_name_or_path", "cutoff_len"},
		{"model_name_or_path", "export_dir"}, {"model_name_or_path", "infer_backend"}, {"model_name_or_path", "tensor_model_parallel_size"},
	},
	Unless: []string{"base_model"},
	Keys: withArguments(slices.Concat(
		table(reads, "`model.hf`", "model_name_or_path"),
		table(reads, "the trainer", "stage do_train do_predict pref_loss"),
		table(reads, "`model.load`, `peft` or `freeze`", "finetuning_type pure_bf16 use_badam"),
		table(reads, "`model.load.convert`", "upcast_layernorm"),
		table(reads, "`peft.lora`", "lora_rank lora_alpha lora_dropout lora_target additional_target use_rslora use_dora pissa_init pissa_iter"),
		table(reads, "`freeze` or `peft.lora.exclude_modules`, of a model of text and images", "freeze_vision_tower freeze_multi_modal_projector freeze_language_model"),
		table(reads, "`freeze`, with finetuning_type: freeze, or `peft.lora.layers_to_transform`", "freeze_trainable_layers freeze_trainable_modules freeze_extra_modules use_llama_pro"),
		table(none, "settings of a kind of fine-tuning that the file does not ask for", "oft_target module_dropout"),
		table(reads, "`peft.oft`, with finetuning_type: oft", "oft_rank oft_block_size"),
		table(reads, "`model.load.quantization_config`", "quantization_method quantization_bit quantization_type double_quantization"),
		table(reads, "`model.with.attn`", "flash_attn"),
		table(reads, "`params.seq`, the sequence length", "cutoff_len packing neat_packing"),
		table(reads, "`params.images`, how many images a sample has", "dataset dataset_dir template image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches"),
		table(reads, "`trainer.hf.gradient_checkpointing`", "disable_gradient_checkpointing use_reentrant_gc"),
		table(reads, "`trainer.hf.use_liger_kernel`", "enable_liger_kernel"),
		table(reads, "evaluation", "val_size eval_dataset"),
		table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb"),
		table(reads, "refused: another program", "export_dir infer_backend tensor_model_parallel_size use_mca use_megatron_bridge use_hyper_parallel"),

		table(none, ofData, "media_dir train_on_prompt mask_history streaming buffer_size mix_strategy interleave_probs overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples ignore_pad_token_for_loss tokenized_path data_shared_file_system disable_shuffling eval_on_each_dataset"),
		table(none, ofText, "tool_format default_system enable_thinking preserve_thinking use_fast_tokenizer split_special_tokens init_special_tokens new_special_tokens_config"),
		table(none, ofLogs, "use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret plot_loss include_effective_tokens_per_second print_param_status"),
		table(none, ofCode, "trust_remote_code cache_dir model_revision hf_hub_token ms_hub_token om_hub_token low_cpu_mem_usage adapter_folder offload_folder"),
		table(none, ofSaves, "overwrite_output_dir pissa_convert create_new_adapter"),
		table(none, ofRate, "loraplus_lr_ratio loraplus_lr_embedding"),
		table(none, ofLength, "early_stopping_steps"),
		table(none, "inference and its servers", "quantization_device_map infer_dtype use_kv_cache vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend"),
		table(none, "the export of a model", "export_size export_device export_quantization_bit export_quantization_dataset export_quantization_nsamples export_quantization_maxlen export_legacy_format export_hub_model_id"),
		table(none, "the launch: processes, devices and clouds", "ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers resources_per_worker placement_strategy ray_init_kwargs master_addr master_port"),
		table(none, ofGeneration, "do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty skip_special_tokens eval_num_beams generation_max_length generation_num_beams generation_config sortish_sampler"),
		table(none, "sizes of videos and sound, of which samples are planned to have none", "video_max_pixels video_min_pixels video_fps video_maxlen use_audio_in_video audio_sampling_rate"),
		table(none, "numbers and models of other stages", "pref_beta pref_ftx pref_bco_weight dpo_label_smoothing kto_chosen_weight kto_rejected_weight simpo_gamma ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards reward_model reward_model_adapters reward_model_quantization_bit reward_model_type ld_alpha"),
		table(none, "settings of an optimizer that the file does not ask for", "galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise apollo_scale_front badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode badam_verbose"),
		table(none, "settings of a profile that the file does not ask for", "profiler_output_dir profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules"),
		table(none, "settings of a loss that the file does not ask for", "asft_alpha eaft_alpha"),

		table(asks, "stored adapters; planned as a new one with the keys of this file", "adapter_name_or_path"),
		table(asks, "a reference model of its own; planned with the model without its adapters", "ref_model ref_model_adapters ref_model_quantization_bit"),
		table(asks, "new rows of embeddings; planned with the model's own vocabulary", "resize_vocab add_tokens add_special_tokens"),
		table(asks, "rope with other scaling", "rope_scaling"),
		table(asks, "shifted sparse attention", "shift_attn"),
		table(asks, "mixture of depths", "mixture_of_depths"),
		table(asks, "Unsloth's layers and kernels; planned with those of transformers", "use_unsloth"),
		table(asks, "checkpoints in host memory; planned on the GPU", "use_unsloth_gc"),
		table(asks, "the auxiliary loss of experts", "moe_aux_loss_coef"),
		table(asks, "logits in float32; planned as the model computes them", "upcast_lmhead_output"),
		table(asks, "random weights, made on the CPU; planned as loaded", "train_from_scratch"),
		table(asks, "kernels of LLaMA-Factory's own", "use_v1_kernels"),
		table(asks, "KTransformers, which keeps experts in host memory; planned on the GPU", "use_kt kt_cpu_activation kt_weight_path kt_non_expert_weight_path kt_expert_checkpoint_path kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size kt_config"),
		table(asks, "an optimizer of another library; planned with optim", "use_galore use_apollo use_adam_mini use_muon"),
		table(asks, "a loss of its own; planned with the model's", "use_dft_loss use_asft_loss use_eaft_loss"),
		table(asks, "metrics of an evaluation, which keep logits", "compute_accuracy"),
		table(asks, "an evaluation that generates text", "predict_with_generate"),
		table(asks, "FP8; planned in 16 bits", "fp8 fp8_backend fp8_enable_fsdp_float8_all_gather"),
		table(asks, "a profile of operators, which PyTorch keeps in host memory", "enable_torch_profiler"),
		table(asks, "parallelism of sequences; planned with all of them in each process", "hyper_parallel_args hyper_parallel_cp_size megatron_bridge_args"),
	)),
	Trainer: "hf", Passes: true, Names: sameNames(lfChanged),
	Defaults: map[string]string{"fp8_backend": "auto", "hyper_parallel_cp_size": "1"},
	read:     (*job).llamaFactory, other: (*job).refuseOthers,
}

// lfChanged are arguments that advice may change; gradient_checkpointing is on unless
// disable_gradient_checkpointing says otherwise.
const lfChanged = "per_device_train_batch_size gradient_accumulation_steps optim bf16 fp16 max_grad_norm"

func (j *job) llamaFactory() {
	if !j.on("do_train") {
		at := j.doc.Root.Get("do_train")
		if at == nil {
			at = j.get("do_predict")
		}
		j.fail(at, "the file trains nothing: do_train is not true")
	}
	j.model("model_name_or_path")
	j.put("model.task", "causal-lm", nil)
	stage := j.oneOf("stage", "sft", "sft", "pt", "rm", "ppo", "dpo", "kto")
	if stage != "sft" && stage != "pt" || j.multimodal() { // their trainers say so, as do those of models with a processor
		j.put("trainer.model_accepts_loss_kwargs", "false", nil)
	}
	j.parts(func() { j.lfStage(stage) }, j.lfTypes, j.lfQuantized, j.lfTuning, j.lfAttention, func() { j.lfLength(stage) },
		func() { j.lfLiger(stage) }, j.lfCheckpoints, j.lfEvaluates)
}

// lfAttentions are the kinds of attention with their names in transformers.
var lfAttentions = map[string]string{"disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2", "fa3": "flash_attention_3"}

// lfAttention says which kernels attend (model/model_utils/attention.py).
func (j *job) lfAttention() {
	v := j.get("flash_attn")
	name := j.oneOf("flash_attn", "auto", "auto", "disabled", "sdpa", "fa2", "fa3")
	if v == nil {
		v = j.get("model_name_or_path")
	}
	switch {
	case j.isType("gpt_oss"):
		j.attention("flash_attn", v, "kernels-community/vllm-flash-attn3")
	case j.isType("gemma2") && name == "auto":
		j.assume(v, "flash_attn: auto is fa2 for Gemma 2, if flash-attn is installed; it is eager otherwise")
		j.attention("flash_attn", v, "flash_attention_2")
	default:
		j.attention("flash_attn", v, lfAttentions[name])
	}
}

// lfLiger writes Liger's kernels. Other stages than supervised training have losses of
// their own, of logits (model/model_utils/liger_kernel.py).
func (j *job) lfLiger(stage string) {
	v := j.get("enable_liger_kernel")
	if !given(v) {
		return
	}
	j.put("trainer.hf.use_liger_kernel", "true", v)
	if stage != "sft" && stage != "pt" {
		j.put("trainer.hf.liger_kernel_config", noLigerLoss, j.get("stage"))
	}
}

// lfCheckpoints writes gradient checkpointing (model/model_utils/checkpointing.py).
func (j *job) lfCheckpoints() {
	if !j.flag("disable_gradient_checkpointing", false) {
		j.put("trainer.hf.gradient_checkpointing", "true", nil).why = "LLaMA-Factory's default: disable_gradient_checkpointing is false"
		reentrant := j.flag("use_reentrant_gc", true)
		j.put("trainer.hf.gradient_checkpointing_kwargs", fmt.Sprintf("{use_reentrant: %v}", reentrant), j.get("use_reentrant_gc"))
		j.put("trainer.checkpoint_trained", "true", nil)
	}
}

func (j *job) lfEvaluates() {
	if s := j.str("eval_strategy", "no"); s != "no" && !j.on("val_size") && !j.on("eval_dataset") {
		j.fail(j.get("eval_strategy"), "an evaluation needs eval_dataset or val_size")
	}
	j.argumentsEvaluate()
}

// lfStage says what the stages beside supervised training do (train/dpo, kto and rm).
func (j *job) lfStage(stage string) {
	adapter := j.str("finetuning_type", "lora") == "lora"
	switch at := j.get("stage"); stage {
	case "ppo":
		j.fail(at, "stage: ppo is not modelled; memplan plans sft, pt, rm, dpo and kto")
	case "rm":
		j.pairs = true
		j.doubt(at, "stage: rm: a value head on the model; planned as a causal language model on both samples of each pair, whose loss takes more memory: up to 12 bytes for each token and each entry of the vocabulary")
	case "dpo":
		if loss := j.str("pref_loss", "sigmoid"); loss == "orpo" || loss == "simpo" {
			stage = loss
		}
		j.prefers("stage", stage, adapter)
	case "kto":
		j.prefers("stage", stage, adapter)
	}
	if !j.pairs {
		return
	}
	for _, k := range []string{"per_device_train_batch_size", "per_device_eval_batch_size"} {
		j.put("trainer.hf."+k, stringOf(2*j.count(k, 8)), j.get(k))
	}
}

// refuseOthers stops at files of LLaMA-Factory that are no training with
// transformers.Trainer.
func (j *job) refuseOthers() {
	for _, o := range []struct{ key, is string }{
		{"export_dir", "the export of a model, which trains nothing"},
		{"infer_backend", "inference, which trains nothing"},
		{"tensor_model_parallel_size", "training with Megatron, which is not modelled"},
		{"use_mca", "training with Megatron, which is not modelled"},
		{"use_megatron_bridge", "training with Megatron, which is not modelled"},
		{"use_hyper_parallel", "training with HyperParallel, which is not modelled"},
	} {
		if v := j.doc.Root.Get(o.key); v != nil && (v.Kind != spec.Bool || v.Bool) {
			j.fail(v, "%s: the file asks for %s", o.key, o.is)
		}
	}
}

// isSharded reports FSDP, under which nothing is loaded to the GPU.
func (j *job) isSharded() bool {
	acc := j.beside[accelerate]
	return j.on("fsdp") || j.on("fsdp_config") || acc != nil && acc.str("distributed_type", "") == "FSDP"
}

// lfTypes says how the weights are loaded (model/loader.py).
func (j *job) lfTypes() {
	j.put("model.load.dtype", "auto", nil)
	if !j.isSharded() {
		j.put("model.load.device_map", `{"": 0}`, nil)
	}
}

// lfQuantized says how weights are quantized (model/model_utils/quantization.py).
func (j *job) lfQuantized() {
	compute := "float32"
	if j.flag("bf16", false) || j.flag("pure_bf16", false) {
		compute = "bfloat16"
	} else if j.flag("fp16", false) {
		compute = "float16"
	}
	v := j.get("quantization_bit")
	if v == nil {
		return
	}
	if m := j.oneOf("quantization_method", "bnb", "bnb", "gptq", "awq", "aqlm", "quanto", "eetq", "hqq", "mxfp4", "fp8"); m != "bnb" {
		j.fail(j.get("quantization_method"), "quantization_method: %s is not modelled; memplan plans bnb", m)
	}
	q := "model.load.quantization_config."
	switch n := j.count("quantization_bit", 0); n {
	case 8:
		j.put(q+"load_in_8bit", "true", v)
	case 4:
		j.put(q+"load_in_4bit", "true", v)
		j.put(q+"bnb_4bit_compute_dtype", compute, nil)
		j.put(q+"bnb_4bit_use_double_quant", fmt.Sprint(j.flag("double_quantization", true)), j.get("double_quantization"))
		j.put(q+"bnb_4bit_quant_type", j.oneOf("quantization_type", "nf4", "nf4", "fp4"), j.get("quantization_type"))
		j.put(q+"bnb_4bit_quant_storage", compute, nil)
	default:
		j.fail(v, "quantization_bit is 4 or 8 with bnb, not %d", n)
	}
}

// lfTuning says what is trained (model/adapter.py).
func (j *job) lfTuning() {
	kind := j.oneOf("finetuning_type", "lora", "lora", "oft", "freeze", "full")
	half := j.flag("pure_bf16", false) || j.flag("use_badam", false)
	at := j.get("finetuning_type")
	if kind != "lora" && kind != "oft" && j.get("quantization_bit") != nil {
		j.fail(at, "finetuning_type: %s does not train weights in 4 or 8 bits; write lora", kind)
	}
	if v := j.get("use_llama_pro"); given(v) && kind == "full" {
		j.fail(v, "use_llama_pro goes with finetuning_type freeze or lora, not with full")
	}
	if v := j.get("use_badam"); given(v) {
		j.doubt(v, "use_badam: BAdam trains one block of layers at a time; planned with all layers trained")
	}
	for _, k := range []string{"use_galore", "use_apollo", "use_muon", "use_adam_mini"} {
		if v := j.get(k); given(v) && j.isSharded() {
			j.fail(v, "%s does not go with sharding", k)
		}
	}
	var convert []string
	if j.on("upcast_layernorm") {
		convert = append(convert, `{modules: ["*norm*", "*ln*"], dtype: float32}`) // LAYERNORM_NAMES
	}
	switch kind {
	case "full":
		frozen := patternsOf(j.frozen(false))
		switch {
		case half:
		case frozen == "": // what is trained is converted
			convert = append(convert, `{modules: ["*"], dtype: float32}`)
		default:
			convert = append(convert, fmt.Sprintf(`{modules: ["*"], except: %s, dtype: float32}`, frozen))
		}
		j.freeze(frozen)
	case "oft":
		convert = append(convert, j.oft(half)...)
	case "lora":
		rank := j.count("lora_rank", 8)
		j.keys["peft.lora.r"] = "lora_rank"
		j.put("peft.lora.r", fmt.Sprint(rank), j.get("lora_rank"))
		j.put("peft.lora.lora_alpha", fmt.Sprint(j.count("lora_alpha", 2*rank)), j.get("lora_alpha"))
		if v := j.get("lora_dropout"); v != nil {
			j.set("peft.lora.lora_dropout", "lora_dropout", v)
		}
		j.targets("peft.lora.", "lora_target")
		if v := j.get("use_llama_pro"); given(v) { // find_expanded_modules
			if _, ok := composites[j.modelType()]; ok {
				j.fail(v, "use_llama_pro: adapters of some layers of a model of text and images are not modelled")
			}
			ids := j.expanded(j.layers(v, "use_llama_pro"), j.whole("freeze_trainable_layers", 2))
			j.put("peft.lora.layers_to_transform", strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), v)
		}
		if names := j.frozen(true); len(names) > 0 {
			j.put("peft.lora.exclude_modules", quote(excluded(names)), j.get("freeze_vision_tower")).why = "LLaMA-Factory gives these parts no adapters"
		}
		for _, k := range []string{"use_rslora", "use_dora"} {
			if v := j.get(k); given(v) {
				j.set("peft.lora."+k, k, v)
			}
		}
		if v := j.get("pissa_init"); given(v) {
			init := "pissa"
			if n := j.whole("pissa_iter", 16); n != -1 {
				init = fmt.Sprintf("pissa_niter_%d", n)
			}
			j.put("peft.lora.init_lora_weights", init, v)
		}
		convert = append(convert, j.modulesToSave("peft.lora.", half)...)
	}
	if convert != nil {
		j.put("model.load.convert", "", at).list = convert
	}
	if kind == "freeze" {
		j.lfFreeze(at, !half)
	}
}

// oft writes OFTConfig, whose targets are those of lora_target: nothing reads oft_target. It
// returns what is converted then.
func (j *job) oft(half bool) (convert []string) {
	const oft = "peft.oft."
	if v := j.get("use_llama_pro"); given(v) {
		j.fail(v, "use_llama_pro with finetuning_type: oft is not modelled; memplan plans it with lora")
	}
	if r := j.whole("oft_rank", 0); r != 0 {
		j.put(oft+"r", fmt.Sprint(r), j.get("oft_rank"))
	}
	j.put(oft+"oft_block_size", fmt.Sprint(j.whole("oft_block_size", 32)), j.get("oft_block_size"))
	j.targets(oft, "lora_target")
	if names := j.frozen(true); len(names) > 0 {
		j.put(oft+"exclude_modules", quote(excluded(names)), j.get("freeze_vision_tower")).why = "LLaMA-Factory gives these parts no adapters"
	}
	return j.modulesToSave(oft, half)
}

// modulesToSave writes the modules of which PEFT trains copies, and returns their conversion: unless
// half, all that is trained is converted (cast_trainable_params_to_fp32).
func (j *job) modulesToSave(below string, half bool) (convert []string) {
	v := j.get("additional_target")
	if v == nil {
		return nil
	}
	j.put(below+"modules_to_save", listOf(v), v)
	names := words(v)
	if len(names) == 0 || half {
		return nil
	}
	for i, n := range names {
		names[i] = quote("*" + n)
	}
	return []string{fmt.Sprintf("{modules: [%s], dtype: float32, trained: true}", strings.Join(names, ", "))}
}

// whole is a whole number, which may be negative.
func (f *file) whole(key string, otherwise int64) int64 {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	if v.Kind != spec.Int || v.Int > maxCount || v.Int < -maxCount {
		f.fail(v, "%s must be a whole number, not %s", key, v.Describe())
	}
	return v.Int
}

// targets writes target_modules: the names of all linear layers, or a list with commas. In a
// model of text and images the modules are targets by their paths.
func (j *job) targets(below, key string) {
	path := below + "target_modules"
	v := j.get(key)
	_, byPath := composites[j.modelType()]
	switch {
	case v != nil && v.Str != "all":
		j.put(path, listOf(v), v)
	case byPath:
		j.put(path, "all-linear", v)
	default:
		j.allLinear(v)
	}
}

// allLinear makes the names of all linear layers targets.
func (j *job) allLinear(v *spec.Value) { j.put("peft.linear_names", "true", v) }

// listOf writes names with commas as a list.
func listOf(v *spec.Value) string {
	if v.Kind == spec.List {
		return flow(v)
	}
	var items []string
	for _, n := range strings.Split(v.Str, ",") {
		if n = strings.TrimSpace(n); n != "" {
			items = append(items, text(n))
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// lfLength says how long sequences are (train/sft/workflow.py, data/collator.py).
func (j *job) lfLength(stage string) {
	n, packed := j.count("cutoff_len", 2048), j.flag("packing", stage == "pt")
	if v := j.get("neat_packing"); given(v) {
		packed = true
		j.doubt(v, "neat_packing: the mask of packed samples; planned without")
	}
	seq := sequences{key: "cutoff_len", most: n, more: j.lfImages(), multiple: 8}
	if stage == "pt" {
		seq.multiple = 1
	}
	if packed {
		seq.full, seq.at = "packed sequences are full: they have cutoff_len tokens", j.get("packing")
		if seq.at == nil {
			seq.at = j.get("stage")
		}
	}
	j.sequences(seq)
	j.put("model.with.mask", "ones", nil)
}
