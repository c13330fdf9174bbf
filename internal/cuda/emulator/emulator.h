// The CUDA C++ of the kernels on a CPU, for tests: in place of device.cuh. A
// thread of a block is a fiber; SYNC switches to the scheduler, which lets the
// threads of a block go on in an order drawn anew for each stretch between
// barriers, so that a barrier that is missing shows as a wrong result. Shared
// memory holds garbage when a block starts, or what another one left. What this does not show: races within
// a stretch that every order of whole threads hides, and what the GPU's weaker
// memory order allows.
#pragma once

#include <math.h>
#include <stddef.h>
#include <string.h>

#define MEMPLAN_EMULATOR
#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __shared__ static __attribute__((section("emulator_shared")))
#define __launch_bounds__(...)
#define INLINE static inline

struct Emulated {
	unsigned thread;
	long long block_x, block_y;
	size_t dynamic; // bytes of shared memory that the launch gives
	bool beyond;    // a function wanted more
};
extern Emulated emulated;
void emulated_barrier();

#define TID ((int)emulated.thread)
#define BLOCK_X (emulated.block_x)
#define BLOCK_Y (emulated.block_y)
#define SYNC() emulated_barrier()
#define WARP_SYNC() emulated_barrier() // all warps of a block come by as often

// Shared memory whose size the launch says, of at most what a GPU has.
__shared__ __attribute__((aligned(128))) char emulated_dynamic[227 << 10];
#define DYNAMIC_SHARED(Type, name) \
	if (sizeof(Type) > emulated.dynamic) { \
		emulated.beyond = true; \
		return; \
	} \
	Type &name = *(Type *)emulated_dynamic

INLINE float fused(float a, float b, float c) { return fmaf(a, b, c); }
INLINE double fused(double a, double b, double c) { return fma(a, b, c); }
INLINE float square_root(float a) { return sqrtf(a); }
INLINE float round_even(float a) { return rintf(a); }
INLINE double round_even(double a) { return rint(a); }
INLINE float floor_of(float a) { return floorf(a); }

INLINE float from_half(unsigned h) {
	unsigned sign = (h & 0x8000) << 16, rest = h & 0x7fff;
	if (rest >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000 | (rest & 0x3ff) << 13);
	if (rest >= 0x400) return __builtin_bit_cast(float, sign | ((rest << 13) + (112u << 23)));
	float f = (float)rest * (1.0f / (1 << 24)); // subnormal
	return sign ? -f : f;
}

INLINE unsigned to_half(float f) {
	unsigned b = __builtin_bit_cast(unsigned, f), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;
	if (rest > 0x7f800000) return sign | 0x7e00;
	if (rest >= 0x477ff000) return sign | 0x7c00; // rounds to at least 65520
	if (rest < 0x38800000) { // subnormal: units of 2^-24; the sum rounds to even
		float unit = __builtin_bit_cast(float, rest) + 0.5f;
		return sign | (__builtin_bit_cast(unsigned, unit) - __builtin_bit_cast(unsigned, 0.5f));
	}
	unsigned odd = rest >> 13 & 1;
	return sign | ((rest - (112u << 23) + 0xfff + odd) >> 13);
}
