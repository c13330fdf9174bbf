// Package op is what operators are written in: what one says of itself ([Op]), how it
// runs ([Call], [Back]), how a program writes its call ([Sig]), how its derivative and
// values are computed ([Formula], [Eval]), what all of that rests on ([Evidence]), and the
// [Table] that holds them. It knows no operator: those of PyTorch are in package aten,
// which no file of this one may ask for. What cuDNN takes it is told by package cudnn.
//
// # Rows
//
// A row is one of three kinds.
//
//   - A primitive is one call of a kernel. Its Run allocates outputs and
//     scratch in the order of the C++ code. Save lists what autograd keeps,
//     Grad is the derivative formula.
//   - A view allocates nothing: View computes the layout of the result over
//     the storage of its first input.
//   - A composite has no derivative of its own; Run calls other rows, as
//     PyTorch's CompositeImplicitAutograd functions do.
//
// Eval is how the values of a row are computed where a job is executed: by kernels of a
// Machine ([Mapped], [Launch]) or, where it is rare, on arrays ([OnHost], [Element],
// [Elements], [Linear], [Statistic]), whose mathematics is package array. Where a
// derivative is a formula, the same text says what it allocates and what it computes.
//
// Rows say nothing of graphs, threads or scopes. They see an [Exec], which the
// engine implements with real bookkeeping and [Shapes] with shapes alone, and an
// [Env] that holds the facts which PyTorch's code branches on: architecture,
// number of multiprocessors, version, grad mode, autocast.
//
// # Order
//
// PyTorch's code generator sorts. The gradients of a formula are computed in
// the alphabetical order of their arguments' names (mat2 before self), joint
// formulas at the place of their first; saved inputs are released in
// alphabetical order, then saved results. Rows keep to that order.
//
// # References
//
// Rows keep to C++'s rules of life. Every tensor that a row makes is owned by
// it until it is returned (Call.Return), handed to a gradient (Back.Set) or
// dropped. Call.Local registers a tensor that lives to the end of the row, as a
// C++ local does; locals are destroyed in the reverse order of their construction. Scratch is a
// local without shape. What must be freed earlier is dropped by hand, where the C++
// code ends a temporary or a block.
package op
