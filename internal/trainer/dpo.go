package trainer

// DPOLosses are the values of loss_type of DPOConfig.
var DPOLosses = []string{
	"sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm",
}

// DPO is the table of trl.DPOConfig (trl/trainer/base_config.py, dpo_config.py): the
// arguments of TrainingArguments, some with other defaults, and its own.
var DPO = HF.with("DPOConfig",
	Argument{Name: "per_device_train_batch_size", Default: int64(8), Min: 1, Reach: Device, Why: "pairs of one batch, each of which is two sequences"},
	Argument{Name: "learning_rate", Form: Number, Default: 1e-6, Reach: Numbers, Why: "an argument of the optimizer"},
	Argument{Name: "logging_steps", Form: Number, Default: 10.0, Reach: Device, Why: "logs after every n-th step"},
	Argument{Name: "gradient_checkpointing", Form: Bool, Default: true, Reach: Device, Why: "model.gradient_checkpointing_enable()"},
	Argument{Name: "bf16", Form: Bool, Default: true, Null: true, Reach: Device, Why: "autocast of the forward passes to bfloat16; None: unless fp16 is given"},
	Argument{Name: "label_smoothing_factor", Form: Number, Default: 0.0, Why: "DPOTrainer computes the loss, and does not read it"},

	// The models.
	Argument{Name: "model_init_kwargs", Form: Mapping, Reach: Device, Why: "keywords of from_pretrained for the reference; by default those of load or, without it, dtype float32 and device_map auto"},
	Argument{Name: "trust_remote_code", Form: Bool, Default: false, Why: "whose code is run"},
	Argument{Name: "router_aux_loss_coef", Form: Number, Default: 0.001, Reach: Unmodelled, Why: "of experts: the routers' logits are kept for a second loss"},
	Argument{Name: "disable_dropout", Form: Bool, Default: true, Reach: Device, Why: "modules Dropout, those of adapters among them, do nothing"},
	Argument{Name: "precompute_ref_log_probs", Form: Bool, Default: false, Reach: Device, Why: "the reference's log-probabilities are computed before training; true is refused"},
	Argument{Name: "precompute_ref_batch_size", Form: Int, Min: 1, Null: true, Why: "pairs of a batch of precompute_ref_log_probs"},
	Argument{Name: "sync_ref_model", Form: Bool, Default: false, Reach: Device, Why: "the reference follows the model; true is refused"},
	Argument{Name: "ref_model_mixup_alpha", Form: Number, Default: 0.6, Why: "a number"},
	Argument{Name: "ref_model_sync_steps", Default: int64(512), Min: 1, Why: "when sync_ref_model applies"},

	// The data.
	Argument{Name: "dataset_num_proc", Form: Int, Null: true, Why: "processes before training"},
	Argument{Name: "pad_token", Form: String, Why: "text"},
	Argument{Name: "max_length", Form: Int, Default: int64(1024), Min: 1, Null: true, Reach: Device, Why: "the largest length of a prompt with a completion"},
	Argument{Name: "truncation_mode", Form: String, Default: "keep_start", Choices: []string{"keep_start", "keep_end"}, Why: "which tokens are left out"},
	Argument{Name: "padding_free", Form: Bool, Default: false, Why: "DPOTrainer warns, and pads"},
	Argument{Name: "pad_to_multiple_of", Form: Int, Min: 1, Null: true, Reach: Device, Why: "the length of a batch"},

	// The loss.
	Argument{Name: "loss_type", Form: Strings, Default: "sigmoid", Choices: DPOLosses, Reach: Device, Why: "the loss of a pair"},
	Argument{Name: "loss_weights", Form: Any, Why: "numbers"},
	Argument{Name: "ld_alpha", Form: Number, Reach: Unmodelled, Why: "masks of tokens beyond the shared length of a pair"},
	Argument{Name: "f_divergence_type", Form: String, Default: "reverse_kl", Choices: []string{"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"}, Reach: Unmodelled, Why: "other functions of one number for each sequence; planned is reverse_kl"},
	Argument{Name: "f_alpha_divergence_coef", Form: Number, Default: 0.5, Why: "a number"},
	Argument{Name: "label_smoothing", Form: Number, Default: 0.0, Why: "a number"},
	Argument{Name: "beta", Form: Number, Default: 0.1, Why: "a number"},
	Argument{Name: "use_weighting", Form: Bool, Default: false, Reach: Unmodelled, Why: "weights of pairs, computed of all logits"},
	Argument{Name: "discopop_tau", Form: Number, Default: 0.05, Why: "a number"},
	Argument{Name: "activation_offloading", Form: Bool, Default: false, Reach: Device, Why: "what autograd saves is copied to the CPU on a stream (offload.activations)"},
)
