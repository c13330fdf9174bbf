// Package gemm multiplies matrices of floating numbers on the processor.
//
// Sums are made of parts of Depth products. In a part each number of the result is
// summed in one register, in order, each product being added before it is rounded
// (math.FMA); the parts are added to it in order. Neither the width of the vectors
// nor how the work is divided has a say in that, so that the bits of the result
// are the same in AVX-512, AVX2, NEON and Go, on any number of processors. Of a
// NaN that is all but its sign and payload.
package gemm

//go:generate go run ../../tools/gemm
