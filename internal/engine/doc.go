// Package engine plays a program as Python and PyTorch would run it: it takes a
// [program.Job], whose shapes package graph has checked, calls the rows of package op
// one after the other, and writes down when memory is taken and given back. What
// leaves it is a [Played]: the trace, sums over a step, and what the figures are
// worth. It knows nothing of specs, of devices' capacities, or of the allocator.
//
// Player is PyTorch for one thread of Python and one of autograd: tensors over
// storages with reference counts, the graph of nodes, saved tensors and their hooks,
// autocast, checkpoints, sharding. job is the script around it: models, optimizers,
// steps, evaluations. A [Backend], if there is one, computes what is played.
package engine
