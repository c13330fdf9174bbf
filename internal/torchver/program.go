package torchver

var (
	// AutocastCachesWithGrad: autocast converts the parameters that it caches with gradients
	// enabled, under no_grad too, and caches none in inference mode.
	AutocastCachesWithGrad = change(Change{
		Since: Version{2, 11}, Area: python,
		What:   "Autocast converts the parameters that it caches with gradients enabled, also under `no_grad`, and caches none in inference mode; before, it cached whatever it converted.",
		Source: "PR 165068 (merged after 2025-12-10, when 2.10 was branched)", Held: "testdata/releases/jobs_2.14.json.gz",
	})
	// AttentionInputsFreed: F.multi_head_attention_forward lets go of query, key and value
	// once they were multiplied.
	AttentionInputsFreed = change(Change{
		Since: Version{2, 12}, Area: python,
		What:   "`nn.MultiheadAttention` lets go of the projected query, key and value before the output is brought into shape, which is a copy only where it must be; before, they lived until the output's projection was computed.",
		Source: "PR 178452 (March 2026)", Held: "testdata/releases/random_2.14.json.gz",
	})
	WholeSlicesSkipped = change(Change{
		Since: Version{2, 14}, Area: python,
		What:   "A plain `:` among several indices makes no view; before, only a slice did not whose end was written and was the dimension's size.",
		Source: "torch/csrc/autograd/python_variable_indexing.cpp; recorded on 2.14, and which release after 2.6 is the first is not known", Held: "testdata/releases/random_2.14.json.gz",
	})
)
