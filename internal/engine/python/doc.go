// Package python plays what Python does around operators: names and stacks with their
// references, calls of functions and modules, torch.autograd.Function, checkpoints and
// the exception that ends their recomputation, and what is done to modules before they
// train: moves, first values, quantized and pruned layers, adapters, copies.
//
// A program's functions and classes come in, calls of package autograd go out. It knows
// of no step, optimizer or process group; those that wrap a module's forward do so by
// [ForwardHooks].
package python
