package torchver

var (
	RootReshards = change(Change{
		Since: Version{2, 8}, Area: python,
		What:   "`fully_shard(..., reshard_after_forward=True)` holds for the root, too; only if nothing is said does the root keep its parameters from its forward to its backward pass.",
		Source: "PR 154704, PR 155319 (June 2025); _fsdp_state.py of 2.9.1", Held: "internal/estimate TestFSDPReleases",
	})
	// OneRankGathersNothing: an empty tensor takes the place of the all-gather's output.
	OneRankGathersNothing = change(Change{
		Since: Version{2, 9}, Area: python,
		What:   "FSDP2 on one GPU gathers nothing: each parameter is copied from its part.",
		Source: "PR 160135 (August 2025); _fsdp_param_group.py of 2.9.1", Held: "internal/estimate TestFSDPReleases",
	})
	_ = change(Change{
		Since: Version{2, 9}, Area: python,
		What:   "FSDP2: parameters of a group that are frozen may have another type than those that are trained.",
		Source: "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py of 2.9.1; 2.7 or 2.8 may have it already", Left: "Such a group is refused.",
	})
	_ = change(Change{
		Since: Version{2, 12}, Area: python,
		What:   "FSDP2: parameters of a module that `shard_placement_fn` places on different meshes are groups of their own, each with its buffers.",
		Source: "torch/distributed/fsdp/_fully_shard of 2.9.1, 2.12.1 and 2.14.1; 2.10 or 2.11 may have it already", Left: "No spec can say it.",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: python,
		What:   "`set_reduce_scatter_max_input_buffers` keeps more than one input of reduce-scatters.",
		Source: "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py of 2.12.1, without it, and 2.14.1; 2.13 may have it already", Left: "No spec can say it; the default is one, as before.",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What: "On sm_90 and sm_100, if CUTLASS's Python DSL is installed, `rms_norm` is a kernel of its own, whose derivative sums the gradient of the weight in parts: " +
			"a float32 number for each element of the weight and each multiprocessor that it uses.",
		Source: "torch/_native/ops/norm/norms.py of 2.14.1, which 2.12.1 has not; 2.13 may have it", Left: "The parts, a few MiB for a moment, are not in the figures.",
	})
)
