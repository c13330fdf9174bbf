package trainer

import (
	"cmp"
	"slices"
	"strings"
)

// TransformerEngine and Local are the implementations of Megatron's layers.
const (
	TransformerEngine = "transformer_engine"
	Local             = "local"
)

// Megatron is the table of the arguments of pretrain_gpt.py of Megatron-core 0.15
// (megatron/training/arguments.py), by their names with underscores. world_size, which torchrun
// says, and apex are no arguments there.
var Megatron = &Table{"Megatron-LM 0.15", slices.SortedFunc(slices.Values(slices.Concat(megatronModelled, megatronExperts, megatronOthers())), func(a, b Argument) int { return cmp.Compare(a.Name, b.Name) })}

var megatronModelled = []Argument{
	{Name: "world_size", Default: int64(1), Min: 1, Reach: Device, Why: "GPUs, as torchrun is told"},
	{Name: "apex", Form: Bool, Default: true, Reach: Device, Why: "whether Apex is installed, of which Megatron takes kernels: FusedAdam, norms, softmax, gradients of weights that are added at once. Transformer Engine has FusedAdam, too"},
	{Name: "num_layers", Default: int64(24), Min: 1, Reach: Device, Why: "of the model"},
	{Name: "hidden_size", Default: int64(1024), Min: 1, Reach: Device, Why: "of the model"},
	{Name: "ffn_hidden_size", Form: Int, Min: 1, Reach: Device, Why: "of the model; without it 4 * hidden_size, with swiglu two thirds of that"},
	{Name: "num_attention_heads", Default: int64(16), Min: 1, Reach: Device, Why: "of the model"},
	{Name: "kv_channels", Form: Int, Min: 1, Reach: Device, Why: "of the model; without it hidden_size / num_attention_heads"},
	{Name: "group_query_attention", Form: Bool, Default: false, Reach: Device, Why: "num_query_groups is read"},
	{Name: "num_query_groups", Default: int64(1), Min: 1, Reach: Device, Why: "of the model, with group_query_attention"},
	{Name: "seq_length", Default: int64(1024), Min: 1, Reach: Device, Why: "tokens of a sample"},
	{Name: "max_position_embeddings", Default: int64(1024), Min: 1, Reach: Device, Why: "the table of positions"},
	{Name: "position_embedding_type", Form: String, Default: "learned_absolute", Choices: []string{"learned_absolute", "rope", "none"}, Reach: Device, Why: "of the model"},
	{Name: "use_rotary_position_embeddings", Form: Bool, Default: false, Reach: Device, Why: "position_embedding_type rope"},
	{Name: "rotary_percent", Form: Number, Default: 1.0, Reach: Device, Why: "of the model"},
	{Name: "normalization", Form: String, Default: "LayerNorm", Choices: []string{"LayerNorm", "RMSNorm"}, Reach: Device, Why: "of the model"},
	{Name: "norm_epsilon", Form: Number, Default: 1e-5, Reach: Numbers, Why: "a number"},
	{Name: "swiglu", Form: Bool, Default: false, Reach: Device, Why: "of the model"},
	{Name: "disable_bias_linear", Form: Bool, Default: false, Reach: Device, Why: "of the model"},
	{Name: "add_qkv_bias", Form: Bool, Default: false, Reach: Device, Why: "of the model"},
	{Name: "untie_embeddings_and_output_weights", Form: Bool, Default: false, Reach: Device, Why: "of the model"},
	{Name: "vocab_size", Form: Int, Min: 1, Reach: Device, Why: "tokens, before they are padded; without it those of tokenizer_type"},
	{Name: "padded_vocab_size", Form: Int, Min: 1, Reach: Device, Why: "tokens, as padded"},
	{Name: "make_vocab_size_divisible_by", Default: int64(128), Min: 1, Reach: Device, Why: "to a multiple of this and of tensor_model_parallel_size"},
	{Name: "tokenizer_type", Form: String, Reach: Device, Why: "how many tokens there are: NullTokenizer one more than vocab_size, GPT2BPETokenizer 50257"},
	{Name: "hidden_dropout", Form: Number, Default: 0.1, Reach: Device, Why: "of the model"},
	{Name: "attention_dropout", Form: Number, Default: 0.1, Reach: Device, Why: "of the model"},
	{Name: "attention_softmax_in_fp32", Form: Bool, Default: false, Reach: Device, Why: "of the local layers"},
	{Name: "apply_query_key_layer_scaling", Form: Bool, Default: false, Reach: Device, Why: "attention_softmax_in_fp32, and scores are scaled once more"},
	{Name: "no_bias_gelu_fusion", Form: Bool, Default: false, Reach: Device, Why: "the activation as several operators"},
	{Name: "no_bias_swiglu_fusion", Form: Bool, Default: false, Reach: Device, Why: "the activation as several operators"},
	{Name: "no_bias_dropout_fusion", Form: Bool, Default: false, Reach: Device, Why: "bias, dropout and addition as several operators"},
	{Name: "no_masked_softmax_fusion", Form: Bool, Default: false, Reach: Device, Why: "of the local layers"},
	{Name: "no_rope_fusion", Form: Bool, Default: false, Reach: Device, Why: "the rotation as several operators"},
	{Name: "no_create_attention_mask_in_dataloader", Form: Bool, Default: false, Reach: Device, Why: "batches have no mask"},
	{Name: "no_gradient_accumulation_fusion", Form: Bool, Default: false, Reach: Device, Why: "gradients of weights are tensors of their own before they are added"},
	{Name: "transformer_impl", Form: String, Default: TransformerEngine, Choices: []string{Local, TransformerEngine}, Reach: Device, Why: "of which layers the model is"},
	{Name: "attention_backend", Form: String, Default: "auto", Choices: []string{"auto", "flash", "fused", "unfused", "local"}, Reach: Device, Why: "of Transformer Engine: auto is planned as flash in 16 bits, as unfused in float32"},
	{Name: "use_mcore_models", Form: Bool, Default: false, Why: "the default since 0.9"},

	{Name: "bf16", Form: Bool, Default: false, Reach: Device, Why: "the type of the parameters"},
	{Name: "fp16", Form: Bool, Default: false, Reach: Device, Why: "the type of the parameters"},
	{Name: "loss_scale", Form: Number, Reach: Device, Why: "a constant scale is refused"},
	{Name: "accumulate_allreduce_grads_in_fp32", Form: Bool, Default: false, Reach: Device, Why: "the type of the buffer of gradients; bf16 sets it"},
	{Name: "grad_reduce_in_bf16", Form: Bool, Default: false, Reach: Device, Why: "the type of the buffer of gradients, with bf16"},

	{Name: "micro_batch_size", Default: int64(1), Min: 1, Reach: Device, Why: "samples of one batch of a GPU"},
	{Name: "global_batch_size", Form: Int, Min: 1, Reach: Device, Why: "global_batch_size / (micro_batch_size * data-parallel size) batches are accumulated; without it one"},
	{Name: "tensor_model_parallel_size", Default: int64(1), Min: 1, Reach: Device, Why: "GPUs of tensor parallelism"},
	{Name: "sequence_parallel", Form: Bool, Default: false, Reach: Device, Why: "activations between tensor-parallel layers are divided"},
	{Name: "pipeline_model_parallel_size", Default: int64(1), Min: 1, Reach: Device, Why: "GPUs of pipeline parallelism, each with a stage of the model"},
	{Name: "pipeline_model_parallel_rank", Form: Int, Min: 0, Reach: Device, Why: "no argument of pretrain_gpt.py: the stage that is planned; without it all are"},
	{Name: "pipeline_model_parallel_layout", Form: String, Reach: Device, Why: "the layers of each stage, which is refused"},
	{Name: "num_layers_per_virtual_pipeline_stage", Form: Int, Min: 1, Reach: Device, Why: "layers of a virtual stage, of which a GPU has several"},
	{Name: "num_virtual_stages_per_pipeline_rank", Form: Int, Min: 1, Reach: Device, Why: "virtual stages of a GPU"},
	{Name: "microbatch_group_size_per_virtual_pipeline_stage", Form: Int, Min: 1, Reach: Device, Why: "microbatches in a row through a virtual stage; without it as many as pipeline_model_parallel_size"},
	{Name: "decoder_first_pipeline_num_layers", Form: Int, Min: 1, Reach: Device, Why: "layers of the first stage"},
	{Name: "decoder_last_pipeline_num_layers", Form: Int, Min: 1, Reach: Device, Why: "layers of the last stage"},
	{Name: "account_for_embedding_in_pipeline_split", Form: Bool, Default: false, Reach: Device, Why: "the embedding is counted as a layer of the first stage"},
	{Name: "account_for_loss_in_pipeline_split", Form: Bool, Default: false, Reach: Device, Why: "the loss is counted as a layer of the last stage"},
	{Name: "no_overlap_p2p_communication", Form: Bool, Default: false, Reach: Device, Why: "of virtual stages: what is received is waited for at once"},
	{Name: "overlap_p2p_communication_warmup_flush", Form: Bool, Default: false, Reach: Device, Why: "of virtual stages: tensors are received ahead"},
	{Name: "context_parallel_size", Default: int64(1), Min: 1, Reach: Device, Why: "more than 1 is refused"},
	{Name: "use_distributed_optimizer", Form: Bool, Default: false, Reach: Device, Why: "parameters in float32 and the optimizer's state are divided"},
	{Name: "num_distributed_optimizer_instances", Default: int64(1), Min: 1, Reach: Device, Why: "the optimizer is divided among data-parallel size / this"},
	{Name: "overlap_grad_reduce", Form: Bool, Default: false, Reach: Device, Why: "gradients are reduced in buckets, whose ends are padded"},
	{Name: "overlap_param_gather", Form: Bool, Default: false, Why: "when parameters are gathered"},
	{Name: "ddp_bucket_size", Form: Int, Min: 1, Reach: Device, Why: "elements of such a bucket; without it 40000000 or 1000000 for each GPU, whichever is more"},
	{Name: "ddp_pad_buckets_for_high_nccl_busbw", Form: Bool, Default: false, Reach: Device, Why: "the ends of buckets"},

	{Name: "recompute_granularity", Form: String, Choices: []string{"full", "selective"}, Reach: Device, Why: "activation checkpointing"},
	{Name: "recompute_activations", Form: Bool, Default: false, Reach: Device, Why: "recompute_granularity selective"},
	{Name: "recompute_method", Form: String, Choices: []string{"uniform", "block"}, Reach: Device, Why: "of full: of all layers, or of the first"},
	{Name: "recompute_num_layers", Form: Int, Min: 1, Reach: Device, Why: "of uniform: layers of one checkpoint, of which 1 is modelled; of block: how many layers"},
	{Name: "recompute_modules", Form: Any, Reach: Device, Why: "of selective: core_attn is modelled"},

	{Name: "optimizer", Form: String, Default: "adam", Choices: []string{"adam", "sgd"}, Reach: Device, Why: "the optimizer; sgd is refused"},
	{Name: "clip_grad", Form: Number, Default: 1.0, Why: "gradients are scaled in place"},
	{Name: "lr", Form: Number, Why: "a number"},
	{Name: "weight_decay", Form: Number, Default: 0.01, Why: "a number"},
	{Name: "adam_beta1", Form: Number, Default: 0.9, Why: "a number"},
	{Name: "adam_beta2", Form: Number, Default: 0.999, Why: "a number"},
	{Name: "adam_eps", Form: Number, Default: 1e-8, Why: "a number"},
	{Name: "no_check_for_nan_in_loss_and_grad", Form: Bool, Default: false, Reach: Device, Why: "the loss of a batch is not looked at"},
	{Name: "calculate_per_token_loss", Form: Bool, Default: false, Reach: Device, Why: "gradients are divided by the tokens of a step, not each loss by its own"},
	{Name: "deterministic_mode", Form: Bool, Default: false, Reach: Device, Why: "the gradient of the table of tokens by indexing"},
}

// megatronOthers are the arguments that are not modelled: those of which what they ask for
// reaches memory, and those that do not.
func megatronOthers() []Argument {
	var out []Argument
	for _, g := range []struct {
		reach Reach
		why   string
		names string
	}{
		{Unmodelled, "what it asks for is left out", `fp8_format fp8_recipe fp8_param_gather first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 fp4_format fp4_recipe fp4_param_gather no_fp8_wgrad
			enable_cuda_graph external_cuda_graph cuda_graph_impl cuda_graph_scope retro_project_dir retro_add_retriever softmax_type window_size window_attn_skip_freq
			use_rope_scaling no_rope_freq no_position_embedding mrope_section apply_layernorm_1p apply_residual_connection_post_layernorm openai_gelu squared_relu quick_geglu activation_func_clamp_value glu_linear_offset
			multi_latent_attention mtp_num_layers perform_rl_step rampup_batch_size batch_size distribute_saved_activations checkpoint_activations no_clone_scatter_output_in_embedding tp_comm_overlap use_cpu_initialization
			empty_unused_memory_level use_fused_weighted_squared_relu cross_entropy_loss_fusion use_flash_attn optimizer_cpu_offload optimizer_offload_fraction use_torch_optimizer_for_cpu_offload
			overlap_cpu_optimizer_d2h_h2d use_legacy_models use_te_activation_func fp32_residual_connection fp16_lm_cross_entropy reuse_grad_buf_for_mxfp8_param_ag
			defer_embedding_wgrad_compute ddp_num_buckets overlap_param_gather_with_optimizer_step use_nccl_ub use_megatron_fsdp init_model_with_meta_device
			data_parallel_sharding_strategy fsdp_double_buffer keep_fp8_transpose_cache enable_full_sharding_in_hsdp use_torch_fsdp2 torch_fsdp2_no_reshard_after_forward
			hierarchical_context_parallel_sizes replication vocab_extra_ids encoder_seq_length decoder_seq_length encoder_num_layers decoder_num_layers reset_attention_mask qk_layernorm qk_l2_norm vision_pretraining
			moe_use_upcycling moe_use_legacy_grouped_gemm moe_layer_recompute moe_extended_tp moe_router_fusion moe_router_padding_for_fp8 moe_input_jitter_eps moe_enable_deepep
			moe_shared_expert_overlap moe_permute_fusion overlap_moe_expert_parallel_comm heterogeneous_layers_config_path heterogeneous_layers_config_encoded_json spec hybrid_attention_ratio
			hybrid_mlp_ratio hybrid_override_pattern is_hybrid_model yaml_cfg use_precision_aware_optimizer kitchen_config_file kitchen_recipe_number sft inference_dynamic_batching test_mode use_checkpoint_args load_main_params_from_ckpt`},
		{Nothing, "of the figures of fp8 and of generation, whose own argument is left out", `fp8_margin fp8_interval fp8_amax_history_len fp8_amax_compute_algo te_rng_tracker inference_rng_tracker
			inference_batch_times_seqlen_threshold max_tokens_to_oom output_bert_embeddings bert_embedder_type flash_decode cuda_graph_warmup_steps inference_max_requests inference_max_seq_length inference_max_batch_size
			inference_dynamic_batching_buffer_size_gb decode_only_cuda_graphs symmetric_ar_type nccl_all_reduce_for_prefill mlp_chunks_for_prefill disable_chunked_prefill`},
		{Nothing, "of multi_latent_attention, num_experts, use_precision_aware_optimizer and others, which say whether it is read", `q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim rotary_scaling_factor mscale mscale_all_dim
			cache_mla_latents mtp_loss_scaling_factor moe_router_bias_update_rate moe_router_force_load_balancing moe_per_layer_logging moe_deepep_num_sms delay_wgrad_compute
			main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype mamba_state_dim mamba_head_dim mamba_num_groups mamba_num_heads rotary_seq_len_interpolation_factor rope_scaling_factor
			relative_attention_num_buckets relative_attention_max_distance wgrad_deferral_limit cp_comm_type
			no_scatter_gather_tensors_in_pipeline tp_comm_overlap_cfg
			cross_entropy_fusion_impl no_pin_cpu_grads no_pin_cpu_params`},
		{Nothing, "what is logged, saved or watched", `log_params_norm log_num_zeros_in_grad log_throughput log_progress timing_log_level log_energy no_barrier_with_level_1_timing timing_log_option tensorboard_log_interval
			tensorboard_queue_size log_timers_to_tensorboard no_log_loss_scale_to_tensorboard log_validation_ppl_to_tensorboard log_memory_to_tensorboard log_world_size_to_tensorboard wandb_project wandb_entity wandb_exp_name
			wandb_save_dir logging_level log_interval tensorboard_dir log_straggler disable_straggler_on_startup straggler_ctrlr_port straggler_minmax_count config_logger_dir no_one_logger profile profile_step_start
			profile_step_end use_pytorch_profiler profile_ranks record_memory_history memory_snapshot_path error_injection_rate error_injection_type rerun_mode check_for_spiky_loss
			check_for_large_grads check_weight_hash_across_dp_replicas_interval result_rejected_tracker_filename iterations_to_skip save save_interval save_retain_interval no_save_optim no_save_rng load no_load_optim
			no_load_rng no_strict_fsdp_dtensor_load non_persistent_save_interval non_persistent_ckpt_type non_persistent_global_ckpt_dir non_persistent_local_ckpt_dir non_persistent_local_ckpt_algo finetune
			pretrained_checkpoint ckpt_step no_initialization no_use_tokenizer_model_from_checkpoint_args exit_on_missing_checkpoint use_dist_ckpt use_persistent_ckpt_worker auto_detect_ckpt_format dist_ckpt_format ckpt_format
			ckpt_convert_format ckpt_convert_save ckpt_convert_update_legacy_dist_opt_format dist_ckpt_save_pre_mcore_014 dist_ckpt_workers ckpt_fully_parallel_save no_ckpt_fully_parallel_save async_save ckpt_fully_parallel_load ckpt_assume_constant_structure dist_ckpt_strictness
			dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient adlr_autoresume adlr_autoresume_interval manual_gc manual_gc_interval no_manual_gc_eval exit_interval exit_duration_in_mins
			exit_signal_handler inprocess_restart enable_ft_package calc_ft_timeouts verify_integrity`},
		{Nothing, "numbers, data and processes", `seed data_parallel_random_init init_method_std embedding_init_method_std init_method_xavier_uniform lr_decay_style lr_decay_iters lr_decay_samples lr_wsd_decay_samples
			lr_wsd_decay_iters lr_warmup_fraction lr_warmup_iters lr_warmup_samples lr_warmup_init min_lr override_opt_param_scheduler use_checkpoint_opt_param_scheduler decoupled_lr decoupled_min_lr lr_wsd_decay_style
			start_weight_decay end_weight_decay weight_decay_incr_style sgd_momentum initial_loss_scale min_loss_scale loss_scale_window hysteresis train_iters train_samples eval_iters eval_interval
			full_validation multiple_validation_sets skip_train train_sync_interval rotary_base rotary_interleaved rope_type vocab_file merge_file tokenizer_model tokenizer_metadata tiktoken_pattern tiktoken_num_special_tokens
			tiktoken_special_tokens legacy_tokenizer trust_remote_code data_path split train_data_path valid_data_path test_data_path data_args_path per_split_data_args_path data_cache_path no_mmap_bin_files mock_data
			num_workers reset_position_ids eod_mask_loss num_dataset_builder_threads object_storage_cache_path mid_level_dataset_surplus dataloader_type distributed_backend distributed_timeout_minutes
			distributed_timeout_seconds_after_init no_align_grad_reduce no_align_param_gather ddp_average_in_collective local_rank lazy_mpu_init use_sharp sharp_enabled_group disable_symmetric_registration
			no_gradient_reduce_div_fusion suggested_communication_unit_size nccl_communicator_config_path use_tp_pp_dp_mapping disable_gloo_process_groups no_async_tensor_model_parallel_allreduce no_persist_layer_norm
			high_priority_stream_groups pipeline_model_parallel_comm_backend decrease_batch_size_if_needed disable_tp_comm_overlap_ag disable_tp_comm_overlap_rs tp_comm_overlap_rs_dgrad disable_tp_comm_bulk_dgrad
			disable_tp_comm_bulk_wgrad tp_comm_bootstrap_backend disable_bf16_reduced_precision_matmul enable_experimental onnx_safe disable_msc`},
	} {
		for _, name := range strings.Fields(g.names) {
			out = append(out, Argument{Name: name, Form: Any, Reach: g.reach, Why: g.why})
		}
	}
	return out
}
