// Package kernel is the vocabulary in which a training step is computed: for
// each kernel its name, its operands and its numbers. Rows of package aten say which
// kernels an operator needs (op.Eval); a device, such as the CPU of package cpu or a
// GPU of package cuda, knows how to run each.
//
// # Operands
//
// A Tensor is memory with sizes and strides, both in elements; a stride may be 0
// (a broadcast) and, of an operand that is only read, strides may overlap.
// Operands come in the order of Kernel.Tensors, what a kernel writes first. An
// optional operand that is absent has no address. What a kernel writes never
// overlaps itself; it may be the very tensor that it reads (in place) where the
// kernel is one of Map.
//
// Floating operands of a call are of one type, unless the kernel says
// otherwise: the type of the first one. Indices are int64, masks bool (one byte,
// 0 or 1). Sums are accumulated in at least float32.
//
// # Kinds
//
// Kernels of kind Map compute each element of the first operand from the
// elements at the same place of the others; all have one size. The others are
// described one by one.
//
// # Determinism
//
// A kernel gives the same bits for the same operands each time: no atomic
// additions of floating numbers. Random numbers are a function of the seed and
// the place (Philox4x32-10, see Uniform), so that a recomputation repeats them,
// and every device draws the same.
package kernel
