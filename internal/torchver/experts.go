package torchver

// GroupedExperts: Axolotl writes no kernels of LoRA for experts from the release on in
// which transformers computes them by grouped matrix products.
var GroupedExperts = change(Change{
	Since: Version{2, 9}, Area: kernels,
	What:   "Experts of transformers 5 are grouped matrix products (`torch._grouped_mm`; on sm_90 since 2.8).",
	Source: "transformers/integrations/moe.py", Left: "memplan plans experts as before and says so (`left_out` of specs/hf).",
})
