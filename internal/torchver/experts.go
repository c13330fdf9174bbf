package torchver

// GroupedExperts and GroupedExpertsHopper: Axolotl writes no kernels of LoRA for experts
// from the first of them on.
var (
	GroupedExperts = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What:   "Experts of transformers 5 are grouped matrix products (`torch._grouped_mm`) from sm_80 on: nothing is filled with zeros, and the offsets are saved, not kept.",
		Source: "transformers/integrations/moe.py; aten/src/ATen/native/GroupedMMUtils.h of 2.9.1; recorded on 2.14", Held: "testdata/releases/hf_2.14.json.gz",
	})
	GroupedExpertsHopper = change(Change{
		Since: Version{2, 8}, Area: kernels,
		What:   "Experts of transformers 5 are grouped matrix products on sm_90 and newer ones, of bfloat16 alone.",
		Source: "transformers/integrations/moe.py; aten/src/ATen/native/cuda/Blas.cpp", Held: "internal/aten TestGroupedMm",
	})
)
