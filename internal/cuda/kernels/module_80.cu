// The kernels that GPUs of compute capability 8.0 and later have beside those of
// module.cu: products of bfloat16 by tensor cores, and faster ones of matrices in half
// precision.
#define MODULE_80
#include "device.cuh"
#include "prelude.cuh"
#include "math.cuh"
#include "random.cuh"
#include "operand.cuh"
#include "tensor.cuh"
#include "product.cuh"
#include "staged.cuh"
#include "gemm.cuh"
#include "conv.cuh"
#include "attention.cuh"
#include "attention_panels.cuh"
#include "attention_tensor.cuh"
