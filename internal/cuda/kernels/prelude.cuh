// The vocabulary of all kernels: operands of any element type, and how their
// elements are found.
//
// The binding passes 8 bytes for each parameter. So a kernel has scalar
// parameters only; TENSOR declares those of an operand, and VIEW gathers them.
#pragma once

#define INLINE_MEMBER __device__ inline __attribute__((always_inline))

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;

// Element types, by the numbers of tensor.DType.
enum { U8, I8, I16, I32, I64, F16, F32, F64, BOOL, BF16 };

// Dimensions are counted from the innermost. There are at most RANK, tensor.MaxRank.
enum { RANK = 8 };

struct View {
	char *at; // null: absent
	int type;
	i64 stride[RANK]; // in elements
};

struct Sizes {
	int rank;
	i64 numel;
	i64 n[RANK];
};

#define EACH_DIM(X) X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7)
#define TENSOR(t) \
	char *t##_at, i64 t##_type, i64 t##_0, i64 t##_1, i64 t##_2, i64 t##_3, i64 t##_4, i64 t##_5, i64 t##_6, i64 t##_7
#define VIEW(t) \
	View t = {t##_at, (int)t##_type, {t##_0, t##_1, t##_2, t##_3, t##_4, t##_5, t##_6, t##_7}}
#define SIZES \
	i64 size_rank, i64 size_numel, i64 size_0, i64 size_1, i64 size_2, i64 size_3, i64 size_4, i64 size_5, i64 size_6, i64 size_7
#define SIZES_OF(s) \
	Sizes s = {(int)size_rank, size_numel, {size_0, size_1, size_2, size_3, size_4, size_5, size_6, size_7}}

// bfloat16 is the upper half of a float32, rounded to even; float16 is the
// platform's: from_half and to_half.
INLINE float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
INLINE u32 as_bits(float f) { return __builtin_bit_cast(u32, f); }

INLINE u32 to_bfloat(float f) {
	u32 b = as_bits(f);
	if ((b & 0x7fffffff) > 0x7f800000) return b >> 16 | 0x40;
	return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// Elements as C, which is float or i64.
template <class C> INLINE C load(const char *at, int type, i64 i) {
	switch (type) {
	case F32: return (C)((const float *)at)[i];
	case BF16: return (C)as_float((u32)((const unsigned short *)at)[i] << 16);
	case F16: return (C)from_half(((const unsigned short *)at)[i]);
	case I64: return (C)((const i64 *)at)[i];
	case I32: return (C)((const int *)at)[i];
	case I16: return (C)((const short *)at)[i];
	case I8: return (C)((const signed char *)at)[i];
	case F64: return (C)((const double *)at)[i];
	}
	return (C)((const unsigned char *)at)[i];
}

template <class C> INLINE void store(char *at, int type, i64 i, C v) {
	switch (type) {
	case F32: ((float *)at)[i] = (float)v; return;
	case BF16: ((unsigned short *)at)[i] = (unsigned short)to_bfloat((float)v); return;
	case F16: ((unsigned short *)at)[i] = (unsigned short)to_half((float)v); return;
	case I64: ((i64 *)at)[i] = (i64)v; return;
	case I32: ((int *)at)[i] = (int)(i64)v; return;
	case I16: ((short *)at)[i] = (short)(i64)v; return;
	case I8: ((signed char *)at)[i] = (signed char)(i64)v; return;
	case F64: ((double *)at)[i] = (double)v; return;
	case BOOL: ((unsigned char *)at)[i] = v != (C)0; return;
	}
	((unsigned char *)at)[i] = (unsigned char)(i64)v;
}

// The same of the types in which networks compute: most kernels know no others.
// bits_at and decoded are the two halves of get, so that one can have many loads
// on their way before the first is waited for.
INLINE u32 bits_at(const char *at, int type, i64 i) { return type == F32 ? ((const u32 *)at)[i] : ((const unsigned short *)at)[i]; }
INLINE float decoded(int type, u32 bits) { return type == F32 ? as_float(bits) : type == BF16 ? as_float(bits << 16) : from_half(bits); }
INLINE float get(const View &v, i64 i) { return decoded(v.type, bits_at(v.at, v.type, i)); }
INLINE void put(const View &v, i64 i, float x) {
	if (v.type == F32) ((float *)v.at)[i] = x;
	else ((unsigned short *)v.at)[i] = (unsigned short)(v.type == BF16 ? to_bfloat(x) : to_half(x));
}

// A place in a tensor: the coordinates of row-major index i.
struct Place {
	i64 at[RANK];
};

INLINE Place place(const Sizes &s, i64 i) {
	Place p;
	if (s.numel < 1ll << 31) { // 32-bit division is many times faster
		u32 rest = (u32)i;
#pragma unroll
		for (int d = 0; d < RANK; d++) {
			if (d >= s.rank) { p.at[d] = 0; continue; }
			u32 n = (u32)s.n[d], q = d + 1 < s.rank ? rest / n : 0;
			p.at[d] = rest - q * n;
			rest = q;
		}
		return p;
	}
#pragma unroll
	for (int d = 0; d < RANK; d++) {
		if (d >= s.rank) { p.at[d] = 0; continue; }
		i64 q = d + 1 < s.rank ? i / s.n[d] : 0;
		p.at[d] = i - q * s.n[d];
		i = q;
	}
	return p;
}

INLINE i64 offset(const View &v, const Place &p, int rank) {
	i64 o = 0;
#pragma unroll
	for (int d = 0; d < RANK; d++)
		if (d < rank) o += p.at[d] * v.stride[d];
	return o;
}

INLINE i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
INLINE float nan_value() { return as_float(0x7fc00000); }
INLINE float infinity() { return as_float(0x7f800000); }

// Memory of the module between the two passes of a reduction. Kernels run in the
// order in which they are launched, so one is enough; the allocator's bytes are
// not touched. The lengths are those of tuning in launch.go.
enum { SCRATCH = 1 << 20 };
__device__ __attribute__((aligned(16))) float scratch[SCRATCH];
__device__ i64 scratch_int[1 << 16];

// How the threads of a block reduce: the combinations.
struct Plus {
	template <class C> static __device__ C of(C a, C b) { return a + b; }
};
struct Larger { // a NaN is the largest
	template <class C> static __device__ C of(C a, C b) { return a != a || a > b ? a : b; }
};

struct Smaller { // a NaN is the smallest
	template <class C> static __device__ C of(C a, C b) { return a != a || a < b ? a : b; }
};

// reduce combines v of all THREADS threads of a block, in an order that depends on
// nothing, and gives all of them the result. cells is shared memory of the block.
template <class Op, int THREADS, class C> INLINE C reduce(C v, C *cells) {
	cells[TID] = v;
	SYNC();
#pragma unroll
	for (int k = THREADS / 2; k > 0; k >>= 1) {
		if (TID < k) cells[TID] = Op::of(cells[TID], cells[TID + k]);
		SYNC();
	}
	C r = cells[0];
	SYNC();
	return r;
}
