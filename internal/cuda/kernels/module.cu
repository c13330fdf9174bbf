// All kernels but those of module_80.cu, as one module. It is compiled to PTX by
// make ptx, and by a C++ compiler under the emulator for tests.
#define MODULE_70
#ifndef MEMPLAN_EMULATOR
#include "device.cuh"
#endif
#include "prelude.cuh"
#include "ops.h"
#include "math.cuh"
#include "random.cuh"
#include "map.cuh"
#include "update.cuh"
#include "reduce.cuh"
#include "operand.cuh"
#ifndef MEMPLAN_EMULATOR
#include "tensor.cuh"
#else
#include "../emulator/tensor.h"
#endif
#include "product.cuh"
#ifdef MODULE_80
#include "staged.cuh"
#endif
#include "gemm.cuh"
#include "conv.cuh"
#include "softmax.cuh"
#include "norm.cuh"
#include "attention.cuh"
#include "attention_panels.cuh"
#include "attention_tensor.cuh"
#include "pool.cuh"
#include "lookup.cuh"
#include "along.cuh"
