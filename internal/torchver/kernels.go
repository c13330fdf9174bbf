package torchver

var (
	// LayerNormPartialSums: the weight gradients of layer_norm over very many short
	// rows are formed in two steps. PR 148605 introduced it and was reverted.
	LayerNormPartialSums = change(Change{
		Since: Version{2, 8}, Area: kernels,
		What:   "The derivative of `layer_norm` over more than 65,536 short rows sums the gradients of weight and bias through partial sums.",
		Source: "PR 150773 (April 2025)", Held: "internal/estimate TestLayerNormPartialSums",
	})
	FusedRMSNorm = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What: "`rms_norm` is one kernel, which saves the input, the weight and a number for each row; before, it was a composition of seven operators. " +
			"If input and weight have different types, it stays a composition, which multiplies by the weight before it converts the result.",
		Source: "PR 153666 (July 2025)", Held: "internal/estimate TestFusedRMSNorm",
	})
	// FlashStateOnDevice: flash attention keeps the state of the random numbers, and a
	// number that is not used, in two tensors on the device, with dropout or without.
	FlashStateOnDevice = change(Change{
		Since: Version{2, 7}, Area: kernels,
		What:   "Flash attention keeps the state of its random numbers in two tensors on the GPU; before, they were in host memory.",
		Source: `PR 146372 (February 2025): the note "BC breaking change to flash seed/offset" in flash_api.cpp`, Held: "internal/estimate TestFlashState",
	})
)
