// Package cpu runs the kernels of package kernel on the machine's processor,
// over memory that is divided as that of a GPU is: addresses, capacity and
// refusals are those of allocsim's virtual device, and behind each segment lies
// memory of the machine. A job runs on it as it would on a GPU of that capacity,
// out of memory included.
//
// # Numbers
//
// Kernels compute in float32 and float64. Functions of single elements are
// computed in float64 and rounded once; sums of products are those of package
// gemm, all others are accumulated in float64. What is divided among goroutines,
// and in which order it is added, depends on the operands alone, so that results
// are the same bits whatever GOMAXPROCS is. Numbers of the 16-bit types are
// computed with in float32 and rounded, as PyTorch's are.
package cpu
