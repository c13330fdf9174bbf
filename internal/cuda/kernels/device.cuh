// What the kernels need of CUDA C++, in terms of what clang has built in for
// NVPTX: there is no CUDA toolkit at build time. The emulator has another file in
// its place.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

#define TID ((int)__nvvm_read_ptx_sreg_tid_x())
#define BLOCK_X ((long long)__nvvm_read_ptx_sreg_ctaid_x())
#define BLOCK_Y ((long long)__nvvm_read_ptx_sreg_ctaid_y())
#define BLOCK_Z ((long long)__nvvm_read_ptx_sreg_ctaid_z())
#define GRID_X ((long long)__nvvm_read_ptx_sreg_nctaid_x())
#define GRID_Y ((long long)__nvvm_read_ptx_sreg_nctaid_y())
#define SYNC() __nvvm_bar_sync(0)
#define WARP_SYNC() __nvvm_bar_warp_sync(0xffffffff)

// Shared memory whose size the launch says.
#define DYNAMIC_SHARED(Type, name) \
	extern __shared__ __attribute__((aligned(128))) char name##_bytes[]; \
	Type &name = *(Type *)name##_bytes

#define INLINE static __device__ inline __attribute__((always_inline))

INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
INLINE float square_root(float a) { return __nvvm_sqrt_rn_f(a); }
INLINE float round_even(float a) { return __builtin_rintf(a); }
INLINE double round_even(double a) { return __builtin_rint(a); }
INLINE float floor_of(float a) { return __builtin_floorf(a); }

// float16 is converted by the machine's own instructions.
INLINE float from_half(unsigned h) {
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)h));
	return f;
}
INLINE unsigned to_half(float f) {
	unsigned short h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
}
