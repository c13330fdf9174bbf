// Package distributed plays DistributedDataParallel, FSDP1 and FSDP2, and the
// ZeroRedundancyOptimizer on the first process: what they allocate beside the model, when,
// and on which stream.
//
// The first three stand on hooks alone, as in PyTorch: of gradients that are ready, of the forward
// of modules, of the end of a backward pass. A model and its section of the program come
// in; nothing below knows of them. Collectives move no bytes here, and what NCCL needs
// for itself is no block of the allocator.
package distributed
