// Matrix products c[m,n] = Σ_k a[m,k]*b[n,k], where a, b and c are anything that
// has rows and columns: matrices with strides, or the images of a convolution.
//
// An operand has row(i), what can be known of row i before the loop over k, and
// at(row, k), the bits of an element of type `type`; kfast says that neighbours in
// k lie together. A result has put(m, n, sum).
#pragma once

struct alignas(16) Four {
	float v[4];
};

enum { STEP = 8 }; // how much of k a tile holds

// tile computes T×T elements with 256 threads, each (T/16)². k goes from k0 to
// before k1. sa and sb are shared memory of STEP*(T+4) floats. Sizes are some
// below 2^31 (cuda.mostRows), so that places are int.
template <int T, class A, class B, class C>
INLINE void tile(const A &a, const B &b, const C &c, int m0, int n0, int rows, int cols, int k0, int k1, float *sa, float *sb) {
	enum { LOADS = T * STEP / 256, PER = T / 16, GROUPS = T / 64, LINE = T + 4 };
	int am[LOADS], ak[LOADS], bn[LOADS], bk[LOADS];
	bool in_a[LOADS], in_b[LOADS];
	typename A::Row ra[LOADS];
	typename B::Row rb[LOADS];
#pragma unroll
	for (int i = 0; i < LOADS; i++) {
		am[i] = a.kfast ? TID / STEP + 256 / STEP * i : TID % T;
		ak[i] = a.kfast ? TID % STEP : TID / T + 256 / T * i;
		bn[i] = b.kfast ? TID / STEP + 256 / STEP * i : TID % T;
		bk[i] = b.kfast ? TID % STEP : TID / T + 256 / T * i;
		in_a[i] = m0 + am[i] < rows;
		in_b[i] = n0 + bn[i] < cols;
		ra[i] = a.row(in_a[i] ? m0 + am[i] : 0);
		rb[i] = b.row(in_b[i] ? n0 + bn[i] : 0);
	}
	float sum[PER][PER] = {};
	u32 na[LOADS], nb[LOADS];
	int ty = TID / 16 * 4, tx = TID % 16 * 4;
	for (int k = k0 - STEP; k < k1; k += STEP) {
		// The next tile is on its way while this one is computed.
		int next = k + STEP;
#pragma unroll
		for (int i = 0; i < LOADS; i++) {
			na[i] = in_a[i] && next + ak[i] < k1 ? a.at(ra[i], next + ak[i]) : 0;
			nb[i] = in_b[i] && next + bk[i] < k1 ? b.at(rb[i], next + bk[i]) : 0;
		}
		if (k >= k0) {
#pragma unroll
			for (int s = 0; s < STEP; s++) {
				float va[PER], vb[PER];
#pragma unroll
				for (int g = 0; g < GROUPS; g++) {
					Four fa = *(const Four *)&sa[s * LINE + g * 64 + ty], fb = *(const Four *)&sb[s * LINE + g * 64 + tx];
#pragma unroll
					for (int i = 0; i < 4; i++) { va[g * 4 + i] = fa.v[i]; vb[g * 4 + i] = fb.v[i]; }
				}
#pragma unroll
				for (int i = 0; i < PER; i++)
#pragma unroll
					for (int j = 0; j < PER; j++) sum[i][j] = fused(va[i], vb[j], sum[i][j]);
			}
			SYNC();
		}
#pragma unroll
		for (int i = 0; i < LOADS; i++) {
			sa[ak[i] * LINE + am[i]] = decoded(a.type, na[i]);
			sb[bk[i] * LINE + bn[i]] = decoded(b.type, nb[i]);
		}
		SYNC();
	}
#pragma unroll
	for (int i = 0; i < PER; i++)
#pragma unroll
		for (int j = 0; j < PER; j++) {
			int m = m0 + i / 4 * 64 + ty + i % 4, n = n0 + j / 4 * 64 + tx + j % 4;
			if (m < rows && n < cols) c.put(m, n, sum[i][j]);
		}
}

// Divided is a result of which k may be divided: then sums go to scratch, from
// where finish takes them.
template <class C> struct Divided {
	const C &c;
	float *to; // null: it is not
	i64 cols;
	INLINE_MEMBER void put(i64 m, i64 n, float v) const {
		if (to) to[m * cols + n] = v;
		else c.put(m, n, v);
	}
};

// Block is the part of the work that a block has: the tile and the part of k.
struct Block {
	int m0, n0, k0, k1;
	i64 batch, split;
};

template <int T> INLINE Block block_of(i64 rows, i64 cols, i64 depth, i64 splits, i64 each) {
	i64 tm = ceil_div(rows, T), tn = ceil_div(cols, T), i = BLOCK_X;
	Block b;
	b.m0 = (int)(i % tm * T); i /= tm;
	b.n0 = (int)(i % tn * T); i /= tn;
	b.split = i % splits;
	b.batch = i / splits;
	b.k0 = (int)(b.split * each);
	b.k1 = (int)(b.split * each + each < depth ? b.split * each + each : depth);
	return b;
}

// multiply is the body of tiled kernels. With splits above 1 each of them has
// `each` of k, and finish adds up what they wrote.
template <int T, class A, class B, class C>
INLINE void multiply(const A &a, const B &b, const C &c, const Block &w, i64 rows, i64 cols, i64 splits, float *sa, float *sb) {
	Divided<C> d = {c, splits > 1 ? scratch + (w.batch * splits + w.split) * rows * cols : nullptr, cols};
	tile<T>(a, b, d, w.m0, w.n0, (int)rows, (int)cols, w.k0, w.k1, sa, sb);
}

template <class C> INLINE void finish(const C &c, i64 batch, i64 i, i64 rows, i64 cols, i64 splits) {
	float v = 0;
	for (i64 s = 0; s < splits; s++) v += scratch[(batch * splits + s) * rows * cols + i];
	c.put(i / cols, i % cols, v);
}

// A matrix of a batch, as rows of k.
struct Matrix {
	typedef i64 Row;
	const char *memory;
	int type;
	bool kfast;
	i64 base, row_stride;
	int k_stride;
	INLINE_MEMBER Row row(int i) const { return base + i * row_stride; }
	INLINE_MEMBER u32 at(Row r, int k) const { return bits_at(memory, type, r + (i64)k * k_stride); }
};

INLINE Matrix matrix(const View &v, i64 batch, i64 row_stride, i64 k_stride) {
	Matrix m = {v.at, v.type, k_stride == 1, batch * v.stride[2], row_stride, (int)k_stride};
	return m;
}

struct Result {
	View c, bias;
	i64 batch;
	float alpha, beta;
	INLINE_MEMBER void put(i64 m, i64 n, float v) const {
		v *= alpha;
		if (bias.at) v = fused(beta, get(bias, batch * bias.stride[2] + m * bias.stride[1] + n * bias.stride[0]), v);
		::put(c, batch * c.stride[2] + m * c.stride[1] + n * c.stride[0], v);
	}
};

#define GEMM_KERNEL(T) \
	extern "C" __global__ void __launch_bounds__(256) gemm_##T(float alpha, float beta, i64 rows, i64 cols, i64 depth, i64 splits, i64 each, \
		TENSOR(c), TENSOR(a), TENSOR(b), TENSOR(bias)) { \
		__shared__ Four sa[STEP * (T + 4) / 4]; \
		__shared__ Four sb[STEP * (T + 4) / 4]; \
		VIEW(c); VIEW(a); VIEW(b); VIEW(bias); \
		Block w = block_of<T>(rows, cols, depth, splits, each); \
		Result r = {c, bias, w.batch, alpha, beta}; \
		multiply<T>(matrix(a, w.batch, a.stride[1], a.stride[0]), matrix(b, w.batch, b.stride[0], b.stride[1]), r, w, rows, cols, splits, \
			(float *)sa, (float *)sb); \
	}
GEMM_KERNEL(64)
GEMM_KERNEL(128)

extern "C" __global__ void __launch_bounds__(256) gemm_finish(float alpha, float beta, i64 batches, i64 rows, i64 cols, i64 splits, TENSOR(c), TENSOR(bias)) {
	VIEW(c); VIEW(bias);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= batches * rows * cols) return;
	Result r = {c, bias, i / (rows * cols), alpha, beta};
	finish(r, r.batch, i % (rows * cols), rows, cols, splits);
}
