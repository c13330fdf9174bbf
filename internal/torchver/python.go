package torchver

var (
	// DTensorSeedsLate: the state of random numbers goes to all ranks with the first operator
	// of DTensors that draws some, not with the first parameter that is spread.
	DTensorSeedsLate = change(Change{
		Since: Version{2, 7}, Area: python,
		What:   "`distribute_tensor`, and so `parallelize_module`, copies no state of random numbers (16 bytes) to the GPU; the first operator of DTensors that draws some does.",
		Source: "PR 147025 (February 2025); torch/distributed/tensor/_api.py of 2.14.1; recorded on 2.14", Held: "internal/estimate TestTensorParallelReleases",
	})
	// AddsBeforeNorms: norms of DTensors are taken of what was added over the ranks.
	AddsBeforeNorms = change(Change{
		Since: Version{2, 9}, Area: python,
		What:   "`clip_grad_norm_` of DTensors adds the norms of the ranks' parts before it takes the norm of all norms, and gradients of which each rank has a summand before it takes their norms; before, it added the norm of all, and such gradients when it scaled them.",
		Source: "PR 159856 (August 2025); torch/distributed/tensor/_ops/_math_ops.py of 2.14.1; recorded on 2.14", Held: "internal/estimate TestTensorParallelReleases",
	})
	_ = change(Change{
		Since: Version{2, 7}, Area: python,
		What:   "`loss_parallel` makes this rank's logits contiguous and converts them in one copy; before, in two.",
		Source: "PR 148096 (February 2025); torch/distributed/tensor/parallel/loss.py of 2.14.1", Left: "Logits of a spec are contiguous.",
	})
	_ = change(Change{
		Since: Version{2, 9}, Area: python,
		What:   "Each operator that draws random numbers for a DTensor copies the state of them (16 bytes) to the GPU for a moment. Until 2.12 or later; 2.14 does it on the CPU.",
		Source: "PR 160482 (August 2025), PR 174446 (February 2026); torch/distributed/tensor/_random.py and _dispatch.py of 2.14.1", Left: "Less than a block of 512 bytes, for a moment; not in the figures.",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: python,
		What:   "`trunc_normal_` draws again what lies outside, with masks and a copy; before, it worked in place.",
		Source: "torch/nn/init.py of 2.14.1; which release after 2.6 is the first is not known", Left: "Specs initialize modules on the CPU, before they are moved.",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: python,
		What:   "`AveragedModel.update_parameters` compares its counter with zero once; before, for each parameter.",
		Source: "torch/optim/swa_utils.py of 2.14.1; which release after 2.6 is the first is not known", Left: "The counter is on the CPU.",
	})
	// FakesStartNothing: init_gpu_context compares a device with a string, and makes nothing.
	FakesStartNothing = change(Change{
		Since: Version{2, 12}, Area: python,
		What:   "The first fake tensor, which DTensor makes to infer a placement, allocates no tensor of one element on the GPU.",
		Source: "PR 176409 (March 2026); torch/_subclasses/fake_tensor.py of 2.14.1: init_gpu_context; recorded on 2.14", Held: "internal/estimate TestTensorParallelReleases",
	})
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
