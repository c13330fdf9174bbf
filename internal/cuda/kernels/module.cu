// All kernels, as one module. It is compiled to PTX by make ptx, and by a C++
// compiler under the emulator for tests.
#ifndef MEMPLAN_EMULATOR
#include "device.cuh"
#endif
#include "prelude.cuh"
#include "ops.h"
#include "math.cuh"
#include "map.cuh"
#include "reduce.cuh"
#include "product.cuh"
#include "conv.cuh"
#include "softmax.cuh"
#include "norm.cuh"
#include "attention.cuh"
#include "pool.cuh"
#include "lookup.cuh"
