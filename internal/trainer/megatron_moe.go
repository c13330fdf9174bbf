package trainer

// megatronExperts are the arguments of Megatron's mixtures of experts (_add_moe_args).
var megatronExperts = []Argument{
	{Name: "num_experts", Form: Int, Min: 0, Reach: Device, Why: "experts of a layer; without it, or 0, layers are dense"},
	{Name: "moe_layer_freq", Form: Any, Default: int64(1), Reach: Device, Why: "which layers have experts: every n-th, or a list such as ([0]*1+[1]*15)"},
	{Name: "moe_ffn_hidden_size", Form: Int, Min: 1, Reach: Device, Why: "of an expert; without it ffn_hidden_size"},
	{Name: "moe_shared_expert_intermediate_size", Form: Int, Min: 1, Reach: Device, Why: "of shared experts; without it there are none"},
	{Name: "moe_router_topk", Default: int64(2), Min: 1, Reach: Device, Why: "experts of a token"},
	{Name: "moe_router_dtype", Form: String, Choices: []string{"fp32", "fp64"}, Reach: Device, Why: "in which type experts are chosen and weighted; without it that of the parameters"},
	{Name: "moe_router_score_function", Form: String, Default: "softmax", Choices: []string{"softmax", "sigmoid"}, Reach: Device, Why: "scores of experts"},
	{Name: "moe_router_pre_softmax", Form: Bool, Default: false, Reach: Device, Why: "softmax of all scores, not of those that are chosen"},
	{Name: "moe_router_num_groups", Form: Int, Min: 1, Reach: Unmodelled, Why: "groups of experts are left out"},
	{Name: "moe_router_group_topk", Form: Int, Min: 1, Reach: Unmodelled, Why: "groups of experts are left out"},
	{Name: "moe_router_topk_scaling_factor", Form: Number, Reach: Device, Why: "scores are scaled once more"},
	{Name: "moe_router_enable_expert_bias", Form: Bool, Default: false, Reach: Unmodelled, Why: "the bias of each expert, and how many tokens each had, are left out"},
	{Name: "moe_router_load_balancing_type", Form: Any, Default: "aux_loss", Reach: Device, Why: "aux_loss, the loss of moe_aux_loss_coeff, sinkhorn or none; others are refused"},
	{Name: "moe_aux_loss_coeff", Form: Any, Default: 0.0, Reach: Device, Why: "with 0 there is no such loss"},
	{Name: "moe_z_loss_coeff", Form: Number, Reach: Device, Why: "another loss of scores"},
	{Name: "moe_token_dispatcher_type", Form: String, Default: "allgather", Choices: []string{"allgather", "alltoall", "flex"}, Reach: Device, Why: "how tokens go to experts; flex is refused"},
	{Name: "moe_grouped_gemm", Form: Bool, Default: false, Reach: Device, Why: "experts as one layer (TEGroupedMLP), with Transformer Engine"},
	{Name: "moe_expert_capacity_factor", Form: Number, Reach: Device, Why: "most tokens of an expert is refused; without it none is dropped"},
	{Name: "moe_pad_expert_input_to_capacity", Form: Bool, Default: false, Why: "of moe_expert_capacity_factor"},
	{Name: "moe_token_drop_policy", Form: String, Default: "probs", Choices: []string{"probs", "position"}, Why: "of moe_expert_capacity_factor"},
	{Name: "moe_apply_probs_on_input", Form: Bool, Default: false, Reach: Device, Why: "tokens that are weighted before the experts are refused"},
	{Name: "expert_model_parallel_size", Default: int64(1), Min: 1, Reach: Device, Why: "GPUs over which experts are spread"},
	{Name: "expert_tensor_parallel_size", Form: Int, Min: 1, Reach: Device, Why: "GPUs of tensor parallelism of experts; without it tensor_model_parallel_size"},
	{Name: "balance", Form: String, Default: "even", Choices: []string{"even", "worst"}, Reach: Device, Why: "no argument of Megatron: how many tokens experts get, which the data decide. even: all as many; worst: those of this GPU all that may be theirs"},
}
