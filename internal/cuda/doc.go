// Package cuda is the device of package runtime that is a GPU of NVIDIA's.
//
// # What is built where
//
// Without the build tag cuda the package plans launches and has no device: Open
// and Available say so. With it (make cuda) the device is driven through
// gorgonia.org/cu, which needs a C compiler, but neither CUDA toolkit nor driver:
// package driver has the declarations it is compiled against, and opens
// libcuda.so.1 when Available or Open is called. One binary serves machines with
// and without a GPU. MEMPLAN_LIBCUDA names another library, such as the emulator.
//
// # Launches
//
// A call of a kernel becomes one launch or a few of functions of modules
// (launch.go, plan_*.go): data, made without a GPU, in which the table of plans
// says how sizes and strides become parameters, and which function serves which
// sizes. Nothing is allocated: what a reduction holds between two launches is in
// memory of the module, since the allocator accounts for every byte of the device. A
// module is a function alone, or a family of functions that share such memory (up to
// 4.5 MiB; modules.go); it is loaded, and compiled by the driver, when a job first
// launches one of them.
// All sums have an order that depends on sizes and the GPU alone; there are no
// atomics.
//
// Products of matrices (plan_tile.go) are computed by tiles, with k in parts where
// tiles alone leave multiprocessors idle. float32 is multiplied as such, never in
// TF32; float16, and bfloat16 from compute capability 8.0 on, by tensor cores with
// sums in float32. From 8.0 on, matrices in half precision that can be read by groups
// of 16 bytes come to shared memory by copies that need no registers (staged.cuh),
// and the largest tiles want more of it than 48 KiB. Convolutions are products of
// what is read from the images where they lie, and attention multiplies by wmma, or
// in float32.
//
// # Kernels
//
// kernels/*.cuh are CUDA C++ in the dialect that clang knows without the CUDA
// toolkit; elementary functions are in math.cuh. make ptx compiles them for the
// oldest GPU (sm_70), and what later ones have beside that (sm_80); the driver
// compiles both for the one that is there. make ptx-assemble shows what NVIDIA's
// assembler makes of them, where that is installed.
// Operands may be float32, bfloat16 and float16, with sums in float32; kernels of
// kind Map, sum and amax also know integers. float64 is refused.
//
// # Tests
//
// emulator/ runs the same sources on the CPU behind the same interface of the
// driver: make cuda-test compares every kernel with package kerneltest, gradients of
// whole models with those in float64, trains small models, and makes the driver
// fail. Calls without a context, memory that is not given back, and addresses that
// are not mapped show as errors. It cannot show what needs a GPU:
// speed, the driver's own compiler, and races that whole threads in any order
// between barriers hide. tools/gpu.sh tests and measures on a machine that has
// one; so far nothing was run on one, and testdata/measured has no figures of it.
package cuda
