// Package engine plays a program as PyTorch would run it: it takes a [program.Job],
// whose shapes package graph has checked, runs its step until two are alike, and writes
// down when memory is taken and given back. What leaves it is a [Played]: the trace, sums
// over a step, and what the figures are worth. It knows nothing of specs, of devices'
// capacities, or of the allocator.
//
// Here is the script around the models: optimizers, scaling and clipping of gradients,
// steps and evaluations, averages. What runs below has packages of its own, each of which
// calls those before it only: autograd, python, distributed. Which steps need not be
// played, package steady tells. A [Backend], if there is one, computes what is played.
package engine
