// Products of matrices with strides, in batches.
#pragma once

#ifdef MODULE_80
// Four neighbours of a row that begin at a multiple of four.
INLINE bool in_fours(const View &v) { return v.stride[0] == 1 && v.stride[1] % 4 == 0 && v.stride[2] % 4 == 0 && (u64)v.at % (v.type == F32 ? 16 : 8) == 0; }
INLINE Four get_four(const View &v, i64 i) {
	if (v.type == F32) return *(const Four *)(v.at + 4 * i);
	u64 bits = *(const u64 *)(v.at + 2 * i);
	Four f;
#pragma unroll
	for (int x = 0; x < 4; x++) f[x] = decoded(v.type, (u32)(bits >> 16 * x) & 0xffff);
	return f;
}
INLINE void put_four(const View &v, i64 i, const Four &f) {
	if (v.type == F32) *(Four *)(v.at + 4 * i) = f;
	else *(u64 *)(v.at + 2 * i) = two_halves(v.type, f[0], f[1]) | (u64)two_halves(v.type, f[2], f[3]) << 32;
}
#endif

struct Product {
	View c, bias;
	i64 batch;
	float alpha, beta;
	INLINE_MEMBER i64 column(int n) const { return n * c.stride[0]; }
	INLINE_MEMBER void put(int m, int n, i64 column, float v) const {
		v *= alpha;
		if (bias.at) v = fused(beta, get(bias, batch * bias.stride[2] + m * bias.stride[1] + n * bias.stride[0]), v);
		::put(c, batch * c.stride[2] + m * c.stride[1] + column, v);
	}
#ifdef MODULE_80
	INLINE_MEMBER bool fours() const { return in_fours(c); }
	INLINE_MEMBER void put_four(int m, int n, Four v) const {
		v *= alpha;
		if (bias.at) {
			i64 at = batch * bias.stride[2] + m * bias.stride[1] + n * bias.stride[0];
			Four b = in_fours(bias) ? get_four(bias, at) : Four{get(bias, at), get(bias, at + bias.stride[0]), get(bias, at + 2 * bias.stride[0]), get(bias, at + 3 * bias.stride[0])};
#pragma unroll
			for (int i = 0; i < 4; i++) v[i] = fused(beta, b[i], v[i]);
		}
		::put_four(c, batch * c.stride[2] + m * c.stride[1] + n, v);
	}
#endif
};

INLINE const char *of_batch(const View &v, i64 batch) { return v.at + batch * v.stride[2] * (v.type == F32 ? 4 : 2); }
INLINE Matrix grouped(const View &v, i64 batch, i64 row_stride, i64 k_stride) {
	Matrix m = {of_batch(v, batch), k_stride == 1, row_stride, k_stride};
	return m;
}
INLINE Strided strided(const View &v, i64 batch, i64 row_stride, i64 k_stride) {
	Strided m = {of_batch(v, batch), v.type, k_stride == 1 || (row_stride != 1 && k_stride < row_stride), row_stride, k_stride};
	return m;
}

// by_k says what is known of a matrix, for the compiler.
template <bool by_k> INLINE Matrix lying(Matrix m) {
	m.by_k = by_k;
	return m;
}

#define GEMM_PARAMETERS float alpha, float beta, i64 rows, i64 cols, i64 depth, i64 splits, i64 each, TENSOR(c), TENSOR(a), TENSOR(b), TENSOR(bias)
#define GEMM_OPERANDS(TM, TN, kind) \
	VIEW(c); VIEW(a); VIEW(b); VIEW(bias); \
	Block w = block_of(TM, TN, rows, cols, depth, splits, each); \
	Product p = {c, bias, w.batch, alpha, beta}; \
	auto ma = kind(a, w.batch, a.stride[1], a.stride[0]), mb = kind(b, w.batch, b.stride[0], b.stride[1])

// TM×TN elements by a block, K of k at a time.
#define GEMM_FUSED(name, TM, TN, K, BLOCKS) \
	extern "C" __global__ void __launch_bounds__(256, BLOCKS) name(GEMM_PARAMETERS) { \
		typedef Fused<TM, TN, K> Core; \
		__shared__ Shared<Core, Matrix, Matrix> s; \
		GEMM_OPERANDS(TM, TN, grouped); \
		Core core; \
		core.clear(); \
		accumulate<true, true>(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, splits, s); \
	}

// The four ways in which the operands can lie are four loops.
template <class Core, class S> INLINE void accumulate_lying(Core &core, const Matrix &a, const Matrix &b, const Block &w, i64 rows, i64 cols, S &s) {
	if (a.by_k && b.by_k) accumulate<true, true>(core, lying<true>(a), lying<true>(b), w, rows, cols, s);
	else if (a.by_k) accumulate<true, false>(core, lying<true>(a), lying<false>(b), w, rows, cols, s);
	else if (b.by_k) accumulate<false, true>(core, lying<false>(a), lying<true>(b), w, rows, cols, s);
	else accumulate<false, false>(core, lying<false>(a), lying<false>(b), w, rows, cols, s);
}

#define GEMM_TENSOR(name, H, T, K) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(GEMM_PARAMETERS) { \
		typedef Tensor<H, T, T, K> Core; \
		__shared__ Shared<Core, Matrix, Matrix> s; \
		GEMM_OPERANDS(T, T, grouped); \
		Core core; \
		core.clear(); \
		accumulate_lying(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, splits, s); \
	}

// TM×TN elements by a block, of which a multiprocessor has BLOCKS at a time.
#define GEMM_STAGED(name, type, TM, TN, K, STAGES, AHEAD, BLOCKS) \
	extern "C" __global__ void __launch_bounds__(256, BLOCKS) name(GEMM_PARAMETERS) { \
		typedef Staged<type, TM, TN, K, STAGES, AHEAD> Core; \
		DYNAMIC_SHARED(Core::Memory, s); \
		VIEW(c); VIEW(a); VIEW(b); VIEW(bias); \
		Block w = banded_block_of(TM, TN, rows, cols, depth, splits, each); \
		Product p = {c, bias, w.batch, alpha, beta}; \
		Matrix ma = grouped(a, w.batch, a.stride[1], a.stride[0]), mb = grouped(b, w.batch, b.stride[0], b.stride[1]); \
		Core core; \
		if (ma.by_k && mb.by_k) core.accumulate<true, true>(s, ma, mb, w, rows, cols); \
		else if (ma.by_k) core.accumulate<true, false>(s, ma, mb, w, rows, cols); \
		else if (mb.by_k) core.accumulate<false, true>(s, ma, mb, w, rows, cols); \
		else core.accumulate<false, false>(s, ma, mb, w, rows, cols); \
		Divided<Product> d = {p, part_of(w, rows, cols, splits), cols}; \
		core.put(d, w.m0, w.n0, (int)rows, (int)cols, s.patches); \
	}

// 64×128 elements by a block, of any matrices.
#define GEMM_ANY(name, CORE) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(GEMM_PARAMETERS) { \
		__shared__ Shared<CORE, Strided, Strided> s; \
		GEMM_OPERANDS(64, 128, strided); \
		CORE core; \
		core.clear(); \
		accumulate<true, true>(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, splits, s); \
	}

// Products of parts, which end where offs says: of rows (divided 0), of columns (1) or of k
// (2). There are as many tiles as parts can have; those that they have not return.
enum { PARTS = 1024 };
#define GROUPED_PARAMETERS i64 divided, i64 groups, i64 rows, i64 cols, i64 depth, TENSOR(c), TENSOR(a), TENSOR(b), TENSOR(offs)

INLINE bool part_of(int tm, int tn, i64 divided, i64 groups, i64 &rows, i64 &cols, i64 depth, const View &offs, int *ends, Block &w) {
	for (int i = TID; i < groups; i += 256) ends[i] = ((const int *)offs.at)[i * offs.stride[0]];
	SYNC();
	i64 limit = divided == 0 ? rows : divided == 1 ? cols : depth;
	i64 ms = ceil_div(rows, tm) + (divided == 0 ? groups : 0), ns = ceil_div(cols, tn) + (divided == 1 ? groups : 0);
	i64 m = BLOCK_X % ms, n = BLOCK_X / ms % ns, group = BLOCK_X / ms / ns, tile = divided == 0 ? m : n, start = 0, end = 0, g = 0;
	int size = divided == 0 ? tm : tn;
	for (; g < groups; g++) {
		end = ends[g];
		if (end > limit) end = limit;
		if (end < start) end = start;
		if (divided == 2) {
			if (g == group) break;
		} else {
			i64 tiles = ceil_div(end - start, size);
			if (tile < tiles) break;
			tile -= tiles;
		}
		start = end;
	}
	if (g == groups) return false;
	w.batch = g;
	w.split = 0;
	w.m0 = (int)(divided == 0 ? start + tile * tm : m * tm);
	w.n0 = (int)(divided == 1 ? start + tile * tn : n * tn);
	w.k0 = (int)(divided == 2 ? start : 0);
	w.k1 = (int)(divided == 2 ? end : depth);
	if (divided == 0) rows = end;
	if (divided == 1) cols = end;
	return true;
}

#define GROUPED_OPERANDS(TM, TN, kind) \
	__shared__ int ends[PARTS]; \
	VIEW(c); VIEW(a); VIEW(b); VIEW(offs); \
	Block w; \
	if (!part_of(TM, TN, divided, groups, rows, cols, depth, offs, ends, w)) return; \
	View none = {}; \
	Product p = {c, none, w.batch, 1.0f, 0.0f}; \
	auto ma = kind(a, w.batch, a.stride[1], a.stride[0]), mb = kind(b, w.batch, b.stride[0], b.stride[1])

#define GROUPED_FUSED(name, T, K) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(GROUPED_PARAMETERS) { \
		typedef Fused<T, T, K> Core; \
		__shared__ Shared<Core, Matrix, Matrix> s; \
		GROUPED_OPERANDS(T, T, grouped); \
		Core core; \
		core.clear(); \
		accumulate<true, true>(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, 1, s); \
	}

#define GROUPED_TENSOR(name, H, T, K) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(GROUPED_PARAMETERS) { \
		typedef Tensor<H, T, T, K> Core; \
		__shared__ Shared<Core, Matrix, Matrix> s; \
		GROUPED_OPERANDS(T, T, grouped); \
		Core core; \
		core.clear(); \
		accumulate_lying(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, 1, s); \
	}

#define GROUPED_ANY(name, CORE) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(GROUPED_PARAMETERS) { \
		__shared__ Shared<CORE, Strided, Strided> s; \
		GROUPED_OPERANDS(64, 128, strided); \
		CORE core; \
		core.clear(); \
		accumulate<true, true>(core, ma, mb, w, rows, cols, s); \
		write(core, p, w, rows, cols, 1, s); \
	}

#define GEMM_FINISH(name) \
	extern "C" __global__ void __launch_bounds__(256) name(float alpha, float beta, i64 batches, i64 rows, i64 cols, i64 splits, TENSOR(c), TENSOR(bias)) { \
		VIEW(c); VIEW(bias); \
		i64 i = BLOCK_X * 256 + TID; \
		if (i >= batches * rows * cols) return; \
		Product p = {c, bias, i / (rows * cols), alpha, beta}; \
		finish(p, p.batch, i % (rows * cols), rows, cols, splits); \
	}

#ifdef MODULE_70
GEMM_FUSED(gemm_64, 64, 64, 16, 2)
GEMM_FUSED(gemm_128, 128, 128, 8, 2)
GEMM_FUSED(gemm_256, 128, 256, 8, 1)
GEMM_ANY(gemm_any, WideFused)
GEMM_TENSOR(gemm_64_f16, Float16, 64, 32)
GEMM_TENSOR(gemm_128_f16, Float16, 128, 32)
GEMM_ANY(gemm_any_f16, WideTensor<Float16>)
GEMM_FINISH(gemm_finish)
GROUPED_FUSED(grouped_64, 64, 16)
GROUPED_ANY(grouped_any, WideFused)
GROUPED_TENSOR(grouped_64_f16, Float16, 64, 32)
GROUPED_ANY(grouped_any_f16, WideTensor<Float16>)
#endif
#ifdef MODULE_80
GEMM_STAGED(gemm_staged_64_bf16, BF16, 64, 64, 64, 3, true, 3)
GEMM_STAGED(gemm_staged_128_bf16, BF16, 128, 128, 32, 4, false, 2)
GEMM_STAGED(gemm_staged_256_bf16, BF16, 128, 256, 64, 3, true, 1)
GEMM_STAGED(gemm_staged_64_f16, F16, 64, 64, 64, 3, true, 3)
GEMM_STAGED(gemm_staged_128_f16, F16, 128, 128, 32, 4, false, 2)
GEMM_STAGED(gemm_staged_256_f16, F16, 128, 256, 64, 3, true, 1)
GEMM_ANY(gemm_any_bf16, WideTensor<Bfloat16>)
GEMM_FINISH(gemm_finish_bf16)
GROUPED_TENSOR(grouped_64_bf16, Bfloat16, 64, 32)
GROUPED_ANY(grouped_any_bf16, WideTensor<Bfloat16>)
#endif
