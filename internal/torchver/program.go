package torchver

// AutocastCachesWithGrad reports whether autocast converts the parameters that it
// caches with gradients enabled, under no_grad too, and caches none in inference
// mode. Before, it cached whatever it converted.
//
// PR 165068 (merged after 2025-12-10, when 2.10 was branched).
func (v Version) AutocastCachesWithGrad() bool { return v.AtLeast(Version{2, 11}) }

// WholeSlicesSkipped reports whether a plain ":" among several indices makes no view.
// Before, only a slice did whose end was written and was the dimension's size.
//
// Recorded on 2.14 and not on 2.6; which release between them is the first is not
// known (torch/csrc/autograd/python_variable_indexing.cpp).
func (v Version) WholeSlicesSkipped() bool { return v.AtLeast(Version{2, 14}) }
