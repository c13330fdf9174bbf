package importer

import (
	"slices"

	"github.com/memplan/memplan/internal/trainer"
)

// The reasons for which keys have no effect on memory.
const (
	ofData       = "how data is found, read, prepared and shuffled"
	ofText       = "tokenizer and chat template: what tokens are, not how many"
	ofLogs       = "logging and tracking"
	ofSaves      = "when and where checkpoints are written"
	ofRate       = "learning rate and other numbers of the optimizer"
	ofLength     = "how long the training is"
	ofCode       = "how code and weights are fetched"
	ofCallbacks  = "checks between steps"
	ofDrawn      = "random numbers"
	ofGeneration = "text generated between steps, in evaluations"
)

// axolotlKeys are the keys of Axolotl 0.18 (utils/schemas, integrations/*/args.py).
var axolotlKeys = slices.Concat(
	table(reads, "`model.hf`", "base_model base_model_config"),
	table(reads, "`model.task`", "model_type type_of_model reward_model process_reward_model num_labels"),
	table(reads, "`model.load.dtype`, `trainer.hf.bf16` and `fp16`", "bf16 fp16 bfloat16 float16 float32"),
	table(reads, "`model.load.quantization_config`", "load_in_8bit load_in_4bit bnb_config_kwargs"),
	table(reads, "`model.load.convert`", "embeddings_skip_upcast"),
	table(reads, "`peft.lora`", "adapter lora_r lora_alpha lora_dropout lora_target_modules lora_target_linear lora_target_parameters lora_modules_to_save lora_exclude_modules lora_fan_in_fan_out lora_rank_pattern lora_alpha_pattern peft_layers_to_transform peft_layers_pattern peft_use_dora peft_use_rslora peft_layer_replication peft_init_lora_weights peft_trainable_token_indices peft_ensure_weight_tying peft_autocast_adapter_dtype"),
	table(reads, "`peft.kernels`", "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel"),
	table(reads, "`model.with.attn`", "attn_implementation flash_attention xformers_attention sdp_attention flex_attention sage_attention eager_attention"),
	table(reads, "`params.seq`, the sequence length", "sequence_len sample_packing pad_to_sequence_len pad_to_multiple_of group_by_length"),
	table(reads, "`trainer.hf.per_device_train_batch_size` and `gradient_accumulation_steps`", "micro_batch_size batch_size gradient_accumulation_steps"),
	table(reads, "`trainer.hf.gradient_checkpointing` and its kwargs", "gradient_checkpointing gradient_checkpointing_kwargs activation_offloading"),
	table(reads, "`trainer.hf.optim`", "optimizer optim_args"),
	table(reads, "evaluation", "val_set_size test_datasets eval_batch_size evals_per_epoch eval_steps eval_strategy evaluation_strategy eval_sample_packing"),
	table(reads, "`trainer.hf.use_liger_kernel` and `liger_kernel_config`, with the Liger plugin", "plugins liger_rope liger_rms_norm liger_swiglu liger_glu_activation liger_cross_entropy liger_fused_linear_cross_entropy"),
	table(reads, "`model.cut_cross_entropy`, with the Cut Cross Entropy plugin", "cut_cross_entropy"),
	table(reads, "`model.with.global_attn`", "gemma4_hybrid_attn_impl"),
	table(reads, "`model.with.linearized`", "llama4_linearized_experts"),
	table(reads, "`freeze`", "unfrozen_parameters freeze_mm_modules"),
	table(reads, "`params.images`, how many images a sample has", "processor_type image_size image_resize_algorithm"),
	table(reads, "`parallel`", "fsdp fsdp_config fsdp_version deepspeed dp_shard_size dp_replicate_size ddp_find_unused_parameters ddp_bucket_cap_mb"),
	table(reads, "the trainer", "rl"),
	table(reads, "`trainer.dpo`, with rl: dpo", "rl_beta dpo_loss_type dpo_loss_weights dpo_label_smoothing dpo_use_weighting dpo_padding_free dpo_use_liger_kernel precompute_ref_log_probs"),
	table(reads, "`trainer.grpo`, with rl: grpo and rl: gdpo", "trl"),
	table(none, "how vLLM generates", "vllm"),
	same("trainer.hf", "learning_rate adam_beta1 adam_beta2 adam_epsilon logging_steps weight_decay max_grad_norm neftune_noise_alpha torch_empty_cache_steps dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor"),
	[]Key{{"noisy_embedding_alpha", sets, "trainer.hf.neftune_noise_alpha"}},

	table(none, ofData, "datasets shuffle_merged_datasets shuffle_before_merging_datasets dataset_prepared_path dataset_shard_num dataset_shard_idx skip_prepare_dataset num_dataset_shards_to_save pretraining_dataset dataset_processes dataset_num_proc dataset_exact_deduplication dataset_keep_in_memory dataloader_drop_last remove_unused_columns push_dataset_to_hub excess_length_strategy min_sample_len max_prompt_len sample_packing_group_size sample_packing_bin_size sample_packing_sequentially sample_packing_mp_start_method sample_packing_eff_est sample_packing_seq_len_multiplier curriculum_sampling streaming streaming_multipack_buffer_size pretrain_multipack_buffer_size pretrain_multipack_attn pretraining_sample_concatenation is_preprocess preprocess_iterable total_num_tokens total_supervised_tokens train_on_inputs accelerator_config max_packed_sequence_len"),
	table(none, ofText, "tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common tokenizer_type tokenizer_save_jinja_files processor_kwargs special_tokens tokens added_tokens_overrides chat_template chat_template_jinja chat_template_kwargs eot_tokens default_system_message fix_untrained_tokens role_boundaries"),
	table(none, ofLogs, "wandb_project wandb_entity wandb_watch wandb_name wandb_run_id wandb_mode wandb_log_model use_wandb use_mlflow mlflow_tracking_uri mlflow_experiment_name mlflow_run_name hf_mlflow_log_artifacts use_comet comet_api_key comet_workspace comet_project_name comet_experiment_key comet_mode comet_online comet_experiment_config use_trackio trackio_project_name trackio_run_name trackio_space_id use_otel_metrics otel_metrics_host otel_metrics_port use_tensorboard include_tokens_per_second include_num_input_tokens_seen gradio_title gradio_share gradio_server_name gradio_server_port gradio_max_new_tokens gradio_temperature use_swanlab swanlab_project swanlab_experiment_name swanlab_description swanlab_mode swanlab_workspace swanlab_api_key swanlab_log_model swanlab_web_host swanlab_api_host swanlab_lark_webhook_url swanlab_lark_secret swanlab_log_completions swanlab_completion_log_interval swanlab_completion_max_buffer"),
	table(none, ofSaves, "output_dir hub_model_id hub_strategy hub_revision save_safetensors save_steps saves_per_epoch save_strategy save_total_limit save_first_step save_only_model load_best_model_at_end metric_for_best_model greater_is_better resume_from_checkpoint auto_resume_from_checkpoints axolotl_config_path merge_lora merge_method"),
	table(none, ofRate, "dpo_beta embedding_lr embedding_lr_scale lr_scheduler lr_scheduler_kwargs lr_quadratic_warmup cosine_min_lr_ratio cosine_constant_lr_ratio lr_div_factor warmup_steps warmup_ratio adam_epsilon2 adam_eps adam_beta3 eta_min loraplus_lr_ratio loraplus_lr_embedding dion_lr dion_momentum jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps"),
	table(none, ofLength, "max_steps num_epochs early_stopping_patience"),
	table(none, ofCode, "trust_remote_code revision_of_model hf_use_auth_token low_cpu_mem_usage experimental_skip_move_to_device base_model_ignore_patterns is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model torchdistx_path gptq_groupsize gptq_model_v1 gptq_disable_exllama"),
	table(none, ofCallbacks, "loss_watchdog_threshold loss_watchdog_patience gc_steps gc_collect_steps debug strict"),
	table(none, ofDrawn, "seed reinit_weights"),
	table(none, "matrix products in TF32 take the same memory", "tf32"),
	table(none, "the launch: processes, devices and clouds", "world_size local_rank ddp device ddp_timeout use_ray ray_run_name ray_num_workers resources_per_worker provider project_name gpu gpu_count node_count volumes branch dockerfile_commands memory timeout memory_preprocess timeout_preprocess secrets env"),
	table(none, "which device the weights are loaded to: with `axolotl train` it is the launcher's choice", "device_map"),
	table(none, "padding of embeddings when the tokenizer has more tokens; memplan plans the model's own vocabulary", "mean_resizing_embeddings shrink_embeddings"),
	table(none, ofGeneration, "generate_samples num_generation_samples generation_max_new_tokens generation_temperature generation_top_p generation_top_k generation_prompt_ratio generation_do_sample eval_table_size eval_max_new_tokens eval_causal_lm_metrics bench_dataset bench_split"),
	table(none, "counts tokens in tensors of one number, which are freed at once", "include_tkps"),
	table(none, "of another program or of an older Axolotl, and not read", "flash_optimum flash_attn_cross_entropy flash_attn_rms_norm full_finetune test_value rope_scaling"),

	table(asks, "the vocabulary is padded to a multiple of 32; planned with the model's own", "resize_token_embeddings_to_32x"),
	table(asks, "a stored adapter; planned as a new one with the keys of this file", "lora_model_dir"),
	table(asks, "adapters in host memory", "lora_on_cpu"),
	table(asks, "LoftQ", "peft"),
	table(asks, "ReLoRA", "relora relora_prune_ratio relora_prune_method relora_cpu_offload"),
	table(asks, "a quantization by other libraries than bitsandbytes; planned with weights of 16 bits", "gptq model_quantization_config model_quantization_config_kwargs quantize_moe_experts expert_backend nonexpert_quantization use_onebitllms llmcompressor qat quantization nvfp4_merge_aware nvfp4_merge_aware_start_step dsv4_fp8_nonexpert_mode dsv4_bf16_all dsv4_fp4_grouped_mode gemma4_fp8_nonexpert gemma4_nf4_nonexpert"),
	table(asks, "kernels for experts; planned with those of transformers", "experts_implementation use_scattermoe use_sonicmoe use_dsv4_kernels use_glm_dsa_kernels moe_grouped_backend moe_dequant_chunk_size moe_bnb_fast dsv4_fp8_lora_kernel dsv4_shared_mlp_lora_kernel dense_mixer"),
	table(asks, "kernels of the Hub; planned with those of transformers", "use_kernels"),
	table(asks, "another attention kernel; planned with attn_implementation", "large_head_attention flash_attn_d512 sdpa_varlen fused_attn_kernel scaling_softmax scaling_softmax_factor scaling_softmax_bias flash_attn_fuse_mlp s2_attention flex_attn_compile_kwargs ring_attn_func heads_k_stride"),
	table(asks, "a loss of its own; planned with the model's", "chunked_cross_entropy chunked_cross_entropy_num_chunks use_eaft eaft_alpha eaft_k orpo_alpha kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk kd_online_server_base_url kd_online_topk liger_use_token_scaling"),
	table(asks, "an MLP that computes its tokens in parts; planned in one", "tiled_mlp tiled_mlp_num_shards tiled_mlp_use_original_mlp"),
	table(asks, "layers or activations in host memory, which free GPU memory; planned on the GPU", "layer_offloading"),
	table(asks, "checkpoints that save some results; planned with checkpoints of all layers", "selective_checkpointing dynamic_checkpoint"),
	table(asks, "compiled graphs; "+trainer.EagerMode, "torch_compile torch_compile_backend torch_compile_mode torch_compile_options deepcompile"),
	table(asks, "FP8; planned in 16 bits", "fp8 fp8_enable_fsdp_float8_all_gather"),
	table(asks, "norms in float32 under FSDP", "fp32_norms fp32_norm_classes"),
	table(asks, "parallelism of tensors, sequences or experts; planned with all of them in each process", "tensor_parallel_size context_parallel_size context_parapllel_size sequence_parallel_degree expert_parallel_size expert_parallel_backend expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes expert_parallel_token_capacity expert_parallel_fallback_on_unsupported"),
	table(asks, "a limit on what the model may take of a GPU", "max_memory gpu_memory_limit auto_find_batch_size"),
	table(asks, "parameters that change while training", "lisa_n_layers lisa_step_interval lisa_layers_attribute spectrum_top_fraction spectrum_model_name grokfast_alpha grokfast_lamb mora use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks"),
	table(asks, "other keys of the model's configuration; planned with the model's own", "model_config overrides_of_model_config overrides_of_model_kwargs cls_model_config"),
	table(asks, "groups of parameters", "lr_groups optim_target_modules dion_rank_fraction dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap qgalore_scale qgalore_proj_type qgalore_proj_quant qgalore_proj_bits qgalore_proj_group_size qgalore_cos_threshold qgalore_gamma_proj qgalore_queue_size"),
	table(asks, "a batch without padding; planned with padding", "batch_flattening multipack_real_batches"),
	table(asks, "other kernels of Liger", "liger_rms_norm_gated liger_layer_norm"),
	table(asks, "a trainer of its own; planned with transformers.Trainer", "trainer_cls ebft diffusion center_rewards_coefficient simpo_gamma cpo_alpha kto_desirable_weight kto_undesirable_weight hatchery"),
	table(asks, "a profile of operators, which PyTorch keeps in host memory", "profiler_steps profiler_steps_start"),
	table(asks, "an evaluation that generates text", "do_causal_lm_eval lm_eval_tasks lm_eval_batch_size lm_eval_post_train lm_eval_model"),
	table(asks, "an evaluation of other data or lengths", "do_bench_eval eval_sequence_len"),
	table(asks, "buffers that DistributedDataParallel broadcasts", "ddp_broadcast_buffers"),
	table(asks, "sharded loading of quantized weights", "qlora_sharded_model_loading"),
)

// axolotlDefaults are values by which keys that are not modelled ask for nothing
// beside what any file asks for.
var axolotlDefaults = map[string]string{
	"eaft_alpha": "1.0", "eaft_k": "20", "tensor_parallel_size": "1", "context_parallel_size": "1", "expert_parallel_size": "1", "ddp_broadcast_buffers": "true",
	"experts_implementation": "eager", "relora_prune_method": "magnitude",
}
