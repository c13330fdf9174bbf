package torchver

var (
	// LayerNormPartialSums: the weight gradients of layer_norm over very many short
	// rows are formed in two steps. PR 148605 introduced it and was reverted.
	LayerNormPartialSums = change(Change{
		Since: Version{2, 8}, Area: kernels,
		What:   "The derivative of `layer_norm` over more than 65,536 short rows sums the gradients of weight and bias through partial sums.",
		Source: "PR 150773 (April 2025)", Held: "internal/estimate TestLayerNormPartialSums",
	})
	// EinsumSwaps: the operands of a product change places if the result then lies in order.
	EinsumSwaps = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What:   "Where `einsum` leaves all dimensions of the second operand before those of the first, the operands change places, so that the result is contiguous.",
		Source: "issue 161729 (August 2025); aten/src/ATen/native/Linear.cpp of 2.9.1: sumproduct_pair", Held: "internal/estimate TestEinsumSwaps",
	})
	// TensordotOfAll: a tensordot that leaves one element is no product of matrices.
	TensordotOfAll = change(Change{
		Since: Version{2, 8}, Area: kernels,
		What:   "`tensordot` over all elements is `dot` of contiguous tensors, else a product and its sum; before, a matrix product, for which others were copied.",
		Source: "PR 145936 (May 2025); aten/src/ATen/native/Linear.cpp of 2.9.1: tensordot", Held: "internal/estimate TestTensordotOfAll",
	})
	// TopkSwapsBuffers: what topk with several thread blocks a slice reads and writes in
	// one pass are two buffers.
	TopkSwapsBuffers = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What:   "`topk` with several thread blocks a row has two buffers of each rank and of the bits that are found.",
		Source: "aten/src/ATen/native/cuda/TensorTopK.cu of 2.9.1; 2.7 or 2.8 may have it already", Held: "internal/estimate TestTopkBuffers",
	})
	FusedRMSNorm = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What: "`rms_norm` is one kernel, which saves the input, the weight and a number for each row; before, it was a composition of seven operators. " +
			"If input and weight have different types, it stays a composition, which multiplies by the weight before it converts the result.",
		Source: "PR 153666 (July 2025)", Held: "internal/estimate TestFusedRMSNorm",
	})
	// RMSNormInFloat32: autocast converts the inputs of rms_norm.
	RMSNormInFloat32 = change(Change{
		Since: Version{2, 12}, Area: kernels,
		What:   "Autocast converts the inputs of `rms_norm` to float32, so that its result is float32, too, and weights of float32 go to the kernel.",
		Source: "PR 174824, issue 188955 (2026); recorded on 2.14", Held: "internal/estimate TestFusedRMSNorm",
	})
	// InstanceStatsStay: instance_norm writes running statistics only where it takes those of the input.
	InstanceStatsStay = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What:   "`instance_norm` with running statistics, in evaluation, leaves them as they are; before, it wrote back the means of what it had repeated.",
		Source: "aten/src/ATen/native/Normalization.cpp of the main branch of 2026: instance_norm; recorded on 2.14, and which release after 2.6 is the first is not known", Held: "testdata/releases/random_2.14.json.gz",
	})
	// InstanceStatsConverted: instance_norm without a weight takes running statistics in the type of
	// its input.
	InstanceStatsConverted = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What:   "`instance_norm` without a weight converts running statistics of another type to that of its input, as under autocast.",
		Source: "recorded on 2.14; which release after 2.6 is the first is not known", Held: "testdata/releases/random_2.14.json.gz",
	})
	// GroupNormKeepsInput: the kernels of group_norm make the copies that they need for themselves.
	GroupNormKeepsInput = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What: "`group_norm` saves its input as it is, and the kernels copy what is not contiguous for themselves, in the derivative gradient and input; " +
			"before, the contiguous copy was what was saved.",
		Source: "derivatives.yaml of 2.12.1 and 2.14.1; aten/src/ATen/native/group_norm.cpp of the main branch of 2026; 2.13 may have it already", Held: "internal/estimate TestGroupNormReleases",
	})
	GroupNormNHWC = change(Change{
		Since: Version{2, 15}, Area: kernels,
		What:   "`group_norm` of channels_last images has kernels of its own, copies nothing and returns channels_last.",
		Source: "PR 191945 (August 2026): group_norm_memory_format; the tests that 2.14.1 has leave channels_last out", Held: "internal/estimate TestGroupNormReleases",
	})
	// FlashStateOnDevice: flash attention keeps the state of the random numbers, and a
	// number that is not used, in two tensors on the device, with dropout or without.
	FlashStateOnDevice = change(Change{
		Since: Version{2, 7}, Area: kernels,
		What:   "Flash attention keeps the state of its random numbers in two tensors on the GPU; before, they were in host memory.",
		Source: `PR 146372 (February 2025): the note "BC breaking change to flash seed/offset" in flash_api.cpp`, Held: "internal/estimate TestFlashState",
	})
	_ = change(Change{
		Since: Version{2, 13}, Area: kernels,
		What:   "`lp_pool` with an infinite `norm_type` is `max_pool` of absolute values; before, it went through powers and means, as with others.",
		Source: "PR 183997 (May 2026); torch/nn/functional.py of 2.14.1", Left: "No spec can say infinity.",
	})
)
