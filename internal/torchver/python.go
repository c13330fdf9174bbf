package torchver

var (
	_ = change(Change{
		Since: Version{2, 8}, Area: python,
		What:   "`fully_shard(..., reshard_after_forward=True)` holds for the root, too; only if nothing is said does the root keep its parameters from its forward to its backward pass.",
		Source: "PR 154704, PR 155319 (June 2025)", Left: "FSDP2 is planned as that of 2.6, and the report says so (`other_fsdp`).",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: python,
		What:   "FSDP2 on one GPU gathers nothing: an empty tensor takes the place of the all-gather's output. Of several groups of parameters each has its own buffers; `set_reduce_scatter_max_input_buffers` keeps more than one input of reduce-scatters.",
		Source: "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py of 2.14.1; the first release is not known", Left: "As above.",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What: "On sm_90 and sm_100, if CUTLASS's Python DSL is installed, `rms_norm` is a kernel of its own, whose derivative sums the gradient of the weight in parts: " +
			"a float32 number for each element of the weight and each multiprocessor that it uses.",
		Source: "torch/_native/ops/norm/norms.py of 2.14.1; the first release is not known", Left: "The parts, a few MiB for a moment, are not in the figures.",
	})
)
