// Package autograd plays PyTorch below Python, for one device, one thread of Python and
// one of backward passes: tensors over storages with reference counts, the graph of nodes
// with what they save, backward passes, autocast, modes of dispatch, and the state of
// CUDA's libraries.
//
// Operators come in by [Player.Do], as operators of package aten; their allocations and frees go
// out in a trace. It knows of no module, statement or optimizer: those above put theirs
// in by PyTorch's own hooks, which are values here: [SavedHooks], [Function], [Object]'s
// Ready and Reduce, [Player.BeforeBackward], [Player.AfterPass]. What surrounds the code
// at work, above as here, is [Scope].
package autograd
