// Package op is the operator table: for each operator of PyTorch that memplan
// knows, one row that says what its CUDA implementation allocates and in which
// order, what autograd keeps for the backward pass, and how that pass is made
// of further operators.
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
// A row is a Go variable, by which others reach it; only what reads a spec, a report
// or a trace asks for one by name. Go initializes the variables by what they depend
// on: no function runs at start-up, and no name of a file matters. What a row calls
// itself is set beside it (derive, runs).
//
// Eval is how the values of a row are computed where a job is executed: by kernels of
// a Machine or, where it is rare, on arrays, whose mathematics is package array. Where a
// derivative is a formula, the same text says what it allocates and what it computes.
//
// Rows say nothing of graphs, threads or scopes. They see an Exec, which the
// engine implements with real bookkeeping and [Meta] with shapes alone, and an
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
// C++ local does; locals die in the reverse order of their making. Scratch is a
// local without shape. What must die earlier is dropped by hand, where the C++
// code ends a temporary or a block.
//
// # Sources
//
// The allocations are those of PyTorch 2.6, file by file of aten/src/ATen; what
// later versions changed is asked of package torchver. All of it is held
// against recordings of real PyTorch in testdata/.
package op
