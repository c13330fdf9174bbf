// Reductions: y has stride 0 in the dimensions that are reduced. The sizes come in
// two parts: those that are kept (KEPT) and those that are reduced (SIZES), and
// each operand has its strides over both.
#pragma once

#define KEPT i64 kept_rank, i64 kept_numel, i64 kept_0, i64 kept_1, i64 kept_2, i64 kept_3, i64 kept_4, i64 kept_5, i64 kept_6, i64 kept_7
#define KEPT_OF(s) \
	Sizes s = {(int)kept_rank, kept_numel, {kept_0, kept_1, kept_2, kept_3, kept_4, kept_5, kept_6, kept_7}}

template <class C> INLINE C term(int op, C a, C) { return op == OP_norm ? a * a : a; }
template <> __device__ inline float term<float>(int op, float a, float b) {
	switch (op) {
	case OP_norm: return a * a;
	case OP_mse: return (a - b) * (a - b);
	case OP_l1: return a < b ? b - a : a - b;
	case OP_bce: return -b * larger(log_(a), -100.0f) - (1.0f - b) * larger(log1p_(-a), -100.0f);
	case OP_bce_logits: return larger(a, 0) - a * b + log1p_(exp_(-(a < 0 ? -a : a)));
	}
	return a;
}

// What a result is of the whole sum.
template <class C> INLINE C whole(int, C v, double scale) { return v * (C)scale; }
template <> __device__ inline float whole<float>(int op, float v, double scale) { return op == OP_norm ? square_root(v) : v * (float)scale; }

template <class C> INLINE C *partial();
template <> __device__ inline float *partial<float>() { return scratch; }
template <> __device__ inline i64 *partial<i64>() { return scratch_int; }

// rows reduces with one block for each result and each of its parts: parts of
// length `each` of what is reduced. With one part the result is written, else what
// came out goes to scratch.
template <class C, class Op>
INLINE void rows(int op, C none, double scale, i64 parts, i64 each, const Sizes &kept, const Sizes &s, const View &y, const View &ka, const View &kb,
                 const View &a, const View &b, C *cells) {
	i64 out = BLOCK_X, part = BLOCK_Y, end = (part + 1) * each;
	if (end > s.numel) end = s.numel;
	Place at = place(kept, out);
	i64 base_a = offset(ka, at, kept.rank), base_b = kb.at ? offset(kb, at, kept.rank) : 0;
	C v = none;
	for (i64 i = part * each + TID; i < end; i += 256) {
		i64 oa, ob;
		if (s.rank <= 1) { oa = i * a.stride[0]; ob = i * b.stride[0]; }
		else { Place r = place(s, i); oa = offset(a, r, s.rank); ob = offset(b, r, s.rank); }
		C x = load<C>(a.at, a.type, base_a + oa), z = b.at ? load<C>(b.at, b.type, base_b + ob) : (C)0;
		v = Op::of(v, term<C>(op, x, z));
	}
	v = reduce<Op, 256>(v, cells);
	if (TID) return;
	if (parts == 1) store<C>(y.at, y.type, offset(y, at, kept.rank), whole<C>(op, v, scale));
	else partial<C>()[out * parts + part] = v;
}

// columns is for results that lie next to each other where what is reduced does
// not: 32 results for each block, by 8 threads each.
template <class C, class Op>
INLINE void columns(int op, C none, double scale, i64 parts, i64 each, const Sizes &kept, const Sizes &s, const View &y, const View &ka, const View &kb,
                    const View &a, const View &b, C *cells) {
	i64 out = BLOCK_X * 32 + TID % 32, part = BLOCK_Y, end = (part + 1) * each;
	if (end > s.numel) end = s.numel;
	bool live = out < kept.numel;
	Place at = place(kept, live ? out : 0);
	i64 base_a = offset(ka, at, kept.rank), base_b = kb.at ? offset(kb, at, kept.rank) : 0;
	C v = none;
	for (i64 i = part * each + TID / 32; live && i < end; i += 8) {
		i64 oa, ob;
		if (s.rank <= 1) { oa = i * a.stride[0]; ob = i * b.stride[0]; }
		else { Place r = place(s, i); oa = offset(a, r, s.rank); ob = offset(b, r, s.rank); }
		C x = load<C>(a.at, a.type, base_a + oa), z = b.at ? load<C>(b.at, b.type, base_b + ob) : (C)0;
		v = Op::of(v, term<C>(op, x, z));
	}
	cells[TID] = v;
	SYNC();
	if (TID >= 32 || !live) return;
	for (int k = 1; k < 8; k++) v = Op::of(v, cells[TID + 32 * k]);
	if (parts == 1) store<C>(y.at, y.type, offset(y, at, kept.rank), whole<C>(op, v, scale));
	else partial<C>()[out * parts + part] = v;
}

// The second pass: one block for each result.
template <class C, class Op> INLINE void combine(int op, C none, double scale, i64 parts, const Sizes &kept, const View &y, C *cells) {
	C v = none;
	for (i64 i = TID; i < parts; i += 256) v = Op::of(v, partial<C>()[BLOCK_X * parts + i]);
	v = reduce<Op, 256>(v, cells);
	if (TID == 0) store<C>(y.at, y.type, offset(y, place(kept, BLOCK_X), kept.rank), whole<C>(op, v, scale));
}

#define REDUCTION(name, C, Op, none) \
	extern "C" __global__ void __launch_bounds__(256) name##_rows(i64 op, double scale, i64 parts, i64 each, KEPT, SIZES, TENSOR(y), \
		TENSOR(ka), TENSOR(kb), TENSOR(a), TENSOR(b)) { \
		__shared__ C cells[256]; \
		KEPT_OF(kept); SIZES_OF(s); \
		VIEW(y); VIEW(ka); VIEW(kb); VIEW(a); VIEW(b); \
		rows<C, Op>((int)op, none, scale, parts, each, kept, s, y, ka, kb, a, b, cells); \
	} \
	extern "C" __global__ void __launch_bounds__(256) name##_columns(i64 op, double scale, i64 parts, i64 each, KEPT, SIZES, TENSOR(y), \
		TENSOR(ka), TENSOR(kb), TENSOR(a), TENSOR(b)) { \
		__shared__ C cells[256]; \
		KEPT_OF(kept); SIZES_OF(s); \
		VIEW(y); VIEW(ka); VIEW(kb); VIEW(a); VIEW(b); \
		columns<C, Op>((int)op, none, scale, parts, each, kept, s, y, ka, kb, a, b, cells); \
	} \
	extern "C" __global__ void __launch_bounds__(256) name##_combine(i64 op, double scale, i64 parts, KEPT, TENSOR(y)) { \
		__shared__ C cells[256]; \
		KEPT_OF(kept); \
		VIEW(y); \
		combine<C, Op>((int)op, none, scale, parts, kept, y, cells); \
	}
REDUCTION(sum_float, float, Plus, 0.0f)
REDUCTION(max_float, float, Larger, -infinity())
REDUCTION(sum_int, i64, Plus, (i64)0)
REDUCTION(min_float, float, Smaller, infinity())
REDUCTION(min_int, i64, Smaller, 0x7fffffffffffffffll)
REDUCTION(max_int, i64, Larger, -0x7fffffffffffffffll - 1)
