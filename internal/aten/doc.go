// Package aten is the operators of PyTorch that memplan knows: for each, one row that says
// what its CUDA implementation allocates and in which order, what autograd keeps for the
// backward pass, how that pass is made of further operators, and how values are computed.
// Package op says what rows are written in.
//
// A row is a Go variable, by which others reach it (aten.Mul); only what reads a spec, a
// report or a trace asks for one by name ([Lookup], [Named]). Go initializes the variables
// by what they depend on: no function runs at start-up, and no name of a file matters. What
// a row calls itself is set beside it (Derive, Runs).
//
// Files have the names of those of ATen that they follow, in snake case: what is in
// aten/src/ATen/native/TensorShape.cpp is in tensor_shape.go. native_functions.go has the
// in-place forms that are like their operators, derivatives.go reads formulas of
// derivatives.yaml, functional.go has what torch/nn/functional.py makes of others,
// bitsandbytes.go the operators of that library, checkpoint.go what selective checkpoints
// keep, math.go functions of numbers, and table.go the table itself.
//
// The allocations are those of PyTorch 2.6, file by file of aten/src/ATen; what
// later versions changed is asked of package torchver, and what cuDNN and CUB take of
// packages cudnn and cub. All of it is held against recordings of real PyTorch in
// testdata/; evidence.txt lists which rows they execute.
package aten
