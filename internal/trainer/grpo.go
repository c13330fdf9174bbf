package trainer

// GRPOLosses are the values of loss_type of GRPOConfig.
var GRPOLosses = []string{"grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"}

const (
	aNumber    = "a number"
	ofvLLM     = "how vLLM generates"
	ofSampling = "how tokens are sampled"
)

// GRPO is the table of trl.GRPOConfig (trl/trainer/base_config.py, grpo_config.py): the
// arguments of TrainingArguments, some with other defaults, and its own.
var GRPO = HF.with("GRPOConfig",
	Argument{Name: "per_device_train_batch_size", Default: int64(8), Min: 1, Reach: Device, Why: "completions of one batch"},
	Argument{Name: "learning_rate", Form: Number, Default: 1e-6, Reach: Numbers, Why: "an argument of the optimizer"},
	Argument{Name: "logging_steps", Form: Number, Default: 10.0, Reach: Device, Why: "logs after every n-th step"},
	Argument{Name: "gradient_checkpointing", Form: Bool, Default: true, Reach: Device, Why: "model.gradient_checkpointing_enable(); what is computed without gradients goes without"},
	Argument{Name: "bf16", Form: Bool, Default: true, Null: true, Reach: Device, Why: "autocast of the forward passes to bfloat16; None: unless fp16 is given"},
	Argument{Name: "label_smoothing_factor", Form: Number, Default: 0.0, Why: "GRPOTrainer computes the loss, and does not read it"},
	Argument{Name: "remove_unused_columns", Form: Bool, Default: false, Null: true, Why: "columns of the data"},

	// The models.
	Argument{Name: "model_init_kwargs", Form: Mapping, Reach: Device, Why: "keywords of from_pretrained for the reference; by default those of load or, without it, dtype float32 and device_map auto"},
	Argument{Name: "trust_remote_code", Form: Bool, Default: false, Why: "whose code is run"},
	Argument{Name: "router_aux_loss_coef", Form: Number, Default: 0.001, Reach: Unmodelled, Why: "of experts: the routers' logits are kept for a second loss"},
	Argument{Name: "disable_dropout", Form: Bool, Default: false, Reach: Device, Why: "modules Dropout, those of adapters among them, do nothing"},
	Argument{Name: "cast_lm_head_to_fp32", Form: Bool, Default: false, Reach: Device, Why: "the output embedding computes in float32; true is refused"},
	Argument{Name: "sync_ref_model", Form: Bool, Default: false, Reach: Device, Why: "the reference follows the model; true is refused"},
	Argument{Name: "ref_model_mixup_alpha", Form: Number, Default: 0.6, Why: aNumber},
	Argument{Name: "ref_model_sync_steps", Default: int64(512), Min: 1, Why: "when sync_ref_model applies"},

	// The data and what is generated.
	Argument{Name: "num_generations", Default: int64(8), Min: 2, Null: true, Why: "completions of a prompt: how those of a batch are grouped"},
	Argument{Name: "num_generations_eval", Form: Int, Min: 1, Null: true, Why: "completions of a prompt in evaluations, which are not modelled"},
	Argument{Name: "max_completion_length", Default: int64(512), Min: 1, Null: true, Reach: Device, Why: "tokens of a completion; the others of seq are the prompt's"},
	Argument{Name: "shuffle_dataset", Form: Bool, Default: true, Null: true, Why: "the order of samples"},
	Argument{Name: "pad_to_multiple_of", Form: Int, Min: 1, Null: true, Reach: Device, Why: "the lengths of prompts and of completions"},
	Argument{Name: "generation_batch_size", Form: Int, Min: 1, Null: true, Reach: Device, Why: "completions that are generated together: steps_per_generation batches"},
	Argument{Name: "steps_per_generation", Form: Int, Min: 1, Null: true, Reach: Device, Why: "batches that are generated together; None: gradient_accumulation_steps"},
	Argument{Name: "num_iterations", Default: int64(1), Min: 1, Reach: Device, Why: "how often a completion is trained on; with more than one, log-probabilities are computed when it is generated"},
	Argument{Name: "temperature", Form: Number, Default: 1.0, Why: "logits are divided by it, in place"},
	Argument{Name: "top_p", Form: Number, Default: 1.0, Why: ofSampling},
	Argument{Name: "top_k", Form: Int, Default: int64(0), Why: ofSampling},
	Argument{Name: "min_p", Form: Number, Why: ofSampling},
	Argument{Name: "repetition_penalty", Form: Number, Default: 1.0, Why: ofSampling},
	Argument{Name: "generation_kwargs", Form: Mapping, Why: ofSampling},
	Argument{Name: "chat_template_kwargs", Form: Mapping, Why: "text"},
	Argument{Name: "cache_implementation", Form: String, Why: "the cache of generation, which is left out"},
	Argument{Name: "ds3_gather_for_generation", Form: Bool, Default: true, Why: "of DeepSpeed ZeRO-3 while it generates"},
	Argument{Name: "use_transformers_continuous_batching", Form: Bool, Default: false, Reach: Unmodelled, Why: "transformers' continuous batching, whose cache takes what is free; with bf16 it converts the weights"},
	Argument{Name: "use_transformers_paged", Form: Bool, Default: false, Reach: Unmodelled, Why: "an older name of use_transformers_continuous_batching"},
	Argument{Name: "transformers_continuous_batching_config", Form: Mapping, Why: "not read but with use_transformers_continuous_batching"},
	Argument{Name: "max_tool_calling_iterations", Form: Int, Null: true, Why: "tools, which make completions longer"},

	// vLLM.
	Argument{Name: "use_vllm", Form: Bool, Default: false, Reach: Device, Why: "vLLM generates: log-probabilities are computed when completions come; with vllm_mode colocate, memory of its own is left out"},
	Argument{Name: "vllm_mode", Form: String, Default: "colocate", Choices: []string{"server", "colocate"}, Why: "where vLLM is"},
	Argument{Name: "vllm_model_impl", Form: String, Default: "vllm", Why: ofvLLM},
	Argument{Name: "vllm_enable_sleep_mode", Form: Bool, Default: false, Why: ofvLLM},
	Argument{Name: "vllm_structured_outputs_regex", Form: String, Why: ofvLLM},
	Argument{Name: "vllm_server_base_url", Form: String, Why: ofvLLM},
	Argument{Name: "vllm_server_host", Form: String, Default: "0.0.0.0", Why: ofvLLM},
	Argument{Name: "vllm_server_port", Default: int64(8000), Why: ofvLLM},
	Argument{Name: "vllm_server_timeout", Form: Number, Default: 240.0, Why: ofvLLM},
	Argument{Name: "vllm_group_port", Default: int64(51216), Why: ofvLLM},
	Argument{Name: "vllm_gpu_memory_utilization", Form: Number, Default: 0.3, Why: "the part of the GPU that vLLM takes with vllm_mode colocate, which is left out"},
	Argument{Name: "vllm_max_model_length", Form: Int, Null: true, Why: ofvLLM},
	Argument{Name: "vllm_tensor_parallel_size", Default: int64(1), Min: 1, Why: ofvLLM},
	Argument{Name: "vllm_importance_sampling_correction", Form: Bool, Default: true, Reach: Device, Why: "of use_vllm: log-probabilities are computed when completions come"},
	Argument{Name: "vllm_importance_sampling_mode", Form: String, Default: "sequence_mask", Choices: []string{"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"}, Why: "numbers of tokens"},
	Argument{Name: "vllm_importance_sampling_clip_max", Form: Number, Default: 3.0, Null: true, Why: aNumber},
	Argument{Name: "vllm_importance_sampling_clip_min", Form: Number, Why: aNumber},
	Argument{Name: "vllm_importance_sampling_cap", Form: Number, Why: "an older name of vllm_importance_sampling_clip_max"},

	// The loss.
	Argument{Name: "loss_type", Form: String, Default: "dapo", Choices: GRPOLosses, Reach: Device, Why: "the loss of a token"},
	Argument{Name: "beta", Form: Number, Default: 0.0, Reach: Device, Why: "with another than 0 there is a reference, and the divergence from it is a part of the loss"},
	Argument{Name: "epsilon", Form: Number, Default: 0.2, Why: aNumber},
	Argument{Name: "epsilon_high", Form: Number, Why: aNumber},
	Argument{Name: "delta", Form: Number, Reach: Device, Why: "the ratio is cut above it, which makes one tensor more"},
	Argument{Name: "sapo_temperature_neg", Form: Number, Default: 1.05, Why: aNumber},
	Argument{Name: "sapo_temperature_pos", Form: Number, Default: 1.0, Why: aNumber},
	Argument{Name: "vespo_k_pos", Form: Number, Default: 2.0, Why: aNumber},
	Argument{Name: "vespo_lambda_pos", Form: Number, Default: 3.0, Why: aNumber},
	Argument{Name: "vespo_k_neg", Form: Number, Default: 3.0, Why: aNumber},
	Argument{Name: "vespo_lambda_neg", Form: Number, Default: 2.0, Why: aNumber},
	Argument{Name: "importance_sampling_level", Form: String, Default: "token", Choices: []string{"token", "sequence"}, Reach: Device, Why: "ratios of tokens, or one for each completion"},
	Argument{Name: "reward_weights", Form: Any, Why: "numbers of completions"},
	Argument{Name: "multi_objective_aggregation", Form: String, Default: "sum_then_normalize", Choices: []string{"sum_then_normalize", "normalize_then_sum"}, Why: "numbers of completions"},
	Argument{Name: "scale_rewards", Form: Any, Default: "group", Why: "numbers of completions"},
	Argument{Name: "mask_truncated_completions", Form: Bool, Default: false, Why: "a mask of the same size"},
	Argument{Name: "top_entropy_quantile", Form: Number, Default: 1.0, Reach: Device, Why: "a mask of the tokens of high entropy; less than 1 is refused"},
	Argument{Name: "entropy_coef", Form: Number, Default: 0.0, Reach: Device, Why: "the entropy is a part of the loss, and what it is computed of is kept; another than 0 is refused"},
	Argument{Name: "use_adaptive_entropy", Form: Bool, Default: false, Reach: Device, Why: "as entropy_coef; true is refused"},
	Argument{Name: "entropy_coef_min", Form: Number, Default: 0.0, Why: aNumber},
	Argument{Name: "entropy_coef_max", Form: Number, Default: 1.0, Why: aNumber},
	Argument{Name: "entropy_coef_delta", Form: Number, Default: 0.005, Why: aNumber},
	Argument{Name: "entropy_target", Form: Number, Default: 0.2, Why: aNumber},
	Argument{Name: "off_policy_mask_threshold", Form: Number, Reach: Unmodelled, Why: "a mask of completions, computed of their tokens' log-probabilities"},
	Argument{Name: "use_bias_correction_kl", Form: Bool, Default: false, Reach: Device, Why: "the divergence is multiplied by the ratio, which makes one tensor more"},

	// Logs.
	Argument{Name: "log_completions", Form: Bool, Default: false, Why: "text"},
	Argument{Name: "log_multimodal", Form: Bool, Default: true, Why: "text"},
	Argument{Name: "num_completions_to_print", Form: Int, Null: true, Why: "text"},
	Argument{Name: "log_unique_prompts", Form: Bool, Default: false, Why: "text"},
	Argument{Name: "log_completions_hub_repo", Form: String, Why: "text"},
)
