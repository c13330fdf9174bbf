// Package compiled plays models that torch.compile compiled: the code that Inductor wrote
// around its kernels runs in the place of their forward and backward passes, as
// AOTAutograd calls it (torch/_functorch/_aot_autograd/runtime_wrappers.py).
package compiled
