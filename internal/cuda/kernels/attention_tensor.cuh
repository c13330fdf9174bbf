// Attention of half precision by tensor cores. As in attention.cuh a block has R
// queries, or keys, and goes over C of the others at a time; the products of two
// panels of rows go to shared memory, and what becomes of them there is multiplied
// again. Which thread has which element of a sum is not known, so sums cannot be
// corrected on the way: the forward pass goes over the keys twice, first for the
// sums of the rows. Weights and their gradients are rounded to half precision
// before they are multiplied, as FlashAttention does it.
#pragma once

template <class H, int D, int R, int C, class Memory>
INLINE void attend_by_tensor(Memory &s, const Heads &h, const View &y, const View &lse, const View &q, const View &k, const View &v, const View &mask) {
	typedef Panels<H, D, R, C> P;
	enum { THREADS = 256 / R };
	i64 tiles = ceil_div(h.queries, R), first = BLOCK_X % tiles * R, bh = BLOCK_X / tiles;
	i64 end = h.causal && first + R < h.keys ? first + R : h.keys;
	P::template fetch<R>(s.rows, q, head_of(q, h, bh), first, h.queries, h.e);
	// THREADS threads have a row: its maximum, and the sum of its weights.
	int i = TID / THREADS;
	float m = -infinity(), l = 0;
	for (i64 j0 = 0; j0 < end; j0 += C) {
		SYNC();
		P::template fetch<C>(s.cols, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		SYNC();
		P::scores(s.scores, s.rows, s.cols);
		SYNC();
		float before = m;
#pragma unroll 1
		for (int j = TID % THREADS; j < C; j += THREADS) {
			float &seen = s.scores[i * P::SCORES + j];
			seen = hidden(h, first + i, j0 + j) ? -infinity() : masked(seen, mask, h, bh, first + i, j0 + j);
			m = larger(seen, m);
		}
		if (m != -infinity()) {
			l *= exp_(before - m);
#pragma unroll 4
			for (int j = TID % THREADS; j < C; j += THREADS) l += exp_(s.scores[i * P::SCORES + j] - m);
		}
	}
	SYNC();
	s.scores[2 * TID] = m;
	s.scores[2 * TID + 1] = l;
	SYNC();
	if (TID < R) {
		const float *of = s.scores + 2 * THREADS * TID;
		m = -infinity();
		for (int x = 0; x < THREADS; x++) m = larger(of[2 * x], m);
		l = 0;
		for (int x = 0; x < THREADS; x++) l += of[2 * x] == -infinity() ? 0 : of[2 * x + 1] * exp_(of[2 * x] - m);
		float sum = m == -infinity() ? infinity() : m + log_(l); // of nothing: so that all weights are 0
		s.sum[TID] = sum;
		if (lse.at && first + TID < h.queries) ::put(lse, bh / h.heads * lse.stride[2] + bh % h.heads * lse.stride[1] + (first + TID) * lse.stride[0], sum);
	}
	typename H::Sum sums[P::SUMS];
#pragma unroll
	for (int x = 0; x < P::SUMS; x++) H::clear(sums[x]);
	for (i64 j0 = 0; j0 < end; j0 += C) {
		SYNC();
		P::template fetch<C>(s.cols, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		SYNC();
		P::scores(s.scores, s.rows, s.cols);
		SYNC();
		float w[P::PER];
		P::template weights<false>(w, s.scores, s.sum, h, mask, bh, first, j0);
		SYNC();
#pragma unroll
		for (int x = 0; x < P::PER; x++) P::set(s.weights, x, P::kept_weight(h, w[x]), q.type);
		P::template fetch<C>(s.cols, v, key_head_of(v, h, bh), j0, h.keys, h.ev);
		SYNC();
		P::weigh(sums, s.weights, s.cols);
	}
	SYNC();
	P::put(y, head_of(y, h, bh), first, h.queries, h.ev, sums, 1.0f, (float *)&s);
}

template <class H, int D, int R, int C, class Memory>
INLINE void attend_queries_by_tensor(Memory &s, const Heads &h, const View &gq, const View &g, const View &y, const View &lse, const View &q, const View &k,
                                     const View &v, const View &mask) {
	typedef Panels<H, D, R, C> P;
	i64 tiles = ceil_div(h.queries, R), first = BLOCK_X % tiles * R, bh = BLOCK_X / tiles;
	i64 end = h.causal && first + R < h.keys ? first + R : h.keys;
	P::template fetch<R>(s.rows, q, head_of(q, h, bh), first, h.queries, h.e);
	P::template fetch<R>(s.more, g, head_of(g, h, bh), first, h.queries, h.ev);
	agreement<D, R>(s.common, g, y, h, bh, first, s.scores);
	if (TID < R) s.sum[TID] = sum_of(lse, h, bh, first + TID);
	typename H::Sum sums[P::SUMS];
#pragma unroll
	for (int x = 0; x < P::SUMS; x++) H::clear(sums[x]);
	for (i64 j0 = 0; j0 < end; j0 += C) {
		SYNC();
		P::template fetch<C>(s.cols, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		SYNC();
		P::scores(s.scores, s.rows, s.cols);
		SYNC();
		float w[P::PER];
		P::template weights<false>(w, s.scores, s.sum, h, mask, bh, first, j0);
		P::template fetch<C>(s.cols, v, key_head_of(v, h, bh), j0, h.keys, h.ev);
		SYNC();
		P::scores(s.scores, s.more, s.cols);
		SYNC();
#pragma unroll
		for (int x = 0; x < P::PER; x++)
			if (w[x] != 0) w[x] = P::kept_weight(h, w[x]) * s.scores[P::score_of(x)] - absolute(w[x]) * s.common[P::row(x)];
		SYNC();
#pragma unroll
		for (int x = 0; x < P::PER; x++) P::set(s.weights, x, w[x], q.type);
		P::template fetch<C>(s.cols, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		SYNC();
		P::weigh(sums, s.weights, s.cols);
	}
	SYNC();
	P::put(gq, head_of(gq, h, bh), first, h.queries, h.e, sums, h.scale, (float *)&s);
}

// Rows are keys here, and columns are queries.
template <class H, int D, int R, int C, class Memory>
INLINE void attend_keys_by_tensor(Memory &s, const Heads &h, const View &gk, const View &gv, const View &g, const View &y, const View &lse, const View &q,
                                  const View &k, const View &v, const View &mask) {
	typedef Panels<H, D, R, C> P;
	i64 tiles = ceil_div(h.keys, R), first = BLOCK_X % tiles * R, own = BLOCK_X / tiles * h.shared; // the first of the heads of queries that share the keys
	P::template fetch<R>(s.rows, k, key_head_of(k, h, own), first, h.keys, h.e);
	P::template fetch<R>(s.more, v, key_head_of(v, h, own), first, h.keys, h.ev);
	typename H::Sum of_k[P::SUMS], of_v[P::SUMS];
#pragma unroll
	for (int x = 0; x < P::SUMS; x++) { H::clear(of_k[x]); H::clear(of_v[x]); }
	i64 start = h.causal ? first : 0; // with causal set, earlier queries do not see these keys
	int steps = h.queries > start ? (int)ceil_div(h.queries - start, C) : 0, all = steps * (int)h.shared;
	for (int step = 0; step < all; step++) {
		i64 bh = own + step / steps, i0 = start + step % steps * C;
		SYNC();
		P::template fetch<C>(s.cols, q, head_of(q, h, bh), i0, h.queries, h.e);
		agreement<D, C>(s.common, g, y, h, bh, i0, s.scores);
		if (TID < C) s.sum[TID] = sum_of(lse, h, bh, i0 + TID);
		SYNC();
		P::scores(s.scores, s.rows, s.cols);
		SYNC();
		float w[P::PER];
		P::template weights<true>(w, s.scores, s.sum, h, mask, bh, first, i0);
		SYNC();
		P::template fetch<C>(s.cols, g, head_of(g, h, bh), i0, h.queries, h.ev);
#pragma unroll
		for (int x = 0; x < P::PER; x++) P::set(s.weights, x, P::kept_weight(h, w[x]), q.type);
		SYNC();
		P::weigh(of_v, s.weights, s.cols);
		SYNC();
		P::scores(s.scores, s.more, s.cols);
		SYNC();
#pragma unroll
		for (int x = 0; x < P::PER; x++)
			if (w[x] != 0) w[x] = P::kept_weight(h, w[x]) * s.scores[P::score_of(x)] - absolute(w[x]) * s.common[P::col(x)];
		SYNC();
#pragma unroll
		for (int x = 0; x < P::PER; x++) P::set(s.weights, x, w[x], q.type);
		P::template fetch<C>(s.cols, q, head_of(q, h, bh), i0, h.queries, h.e);
		SYNC();
		P::weigh(of_k, s.weights, s.cols);
	}
	SYNC();
	P::put(gk, key_head_of(gk, h, own), first, h.keys, h.e, of_k, h.scale, (float *)&s);
	P::put(gv, key_head_of(gv, h, own), first, h.keys, h.ev, of_v, 1.0f, (float *)&s);
}

// R is chosen so that shared memory is below 48 KiB.
#define ATTENTION_TENSOR(suffix, H, D, R, GRAD) \
	extern "C" __global__ void __launch_bounds__(256, 1) attention_##D##suffix(HEADS, TENSOR(y), TENSOR(lse), TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(mask)) { \
		__shared__ Panels<H, D, R, 64>::Memory s; \
		VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend_by_tensor<H, D, R, 64>(s, h, y, lse, q, k, v, mask); \
	} \
	extern "C" __global__ void __launch_bounds__(256, 1) attention_queries_##D##suffix(HEADS, TENSOR(gq), TENSOR(g), TENSOR(y), TENSOR(lse), TENSOR(q), TENSOR(k), \
		TENSOR(v), TENSOR(mask)) { \
		__shared__ Panels<H, D, GRAD, 64>::Memory s; \
		VIEW(gq); VIEW(g); VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend_queries_by_tensor<H, D, GRAD, 64>(s, h, gq, g, y, lse, q, k, v, mask); \
	} \
	extern "C" __global__ void __launch_bounds__(256, 1) attention_keys_##D##suffix(HEADS, TENSOR(gk), TENSOR(gv), TENSOR(g), TENSOR(y), TENSOR(lse), TENSOR(q), \
		TENSOR(k), TENSOR(v), TENSOR(mask)) { \
		__shared__ Panels<H, D, GRAD, 64>::Memory s; \
		VIEW(gk); VIEW(gv); VIEW(g); VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend_keys_by_tensor<H, D, GRAD, 64>(s, h, gk, gv, g, y, lse, q, k, v, mask); \
	}
#ifdef MODULE_70
ATTENTION_TENSOR(_f16, Float16, 64, 64, 32)
ATTENTION_TENSOR(_f16, Float16, 128, 32, 32)
#endif
#ifdef MODULE_80
ATTENTION_TENSOR(_bf16, Bfloat16, 64, 64, 32)
ATTENTION_TENSOR(_bf16, Bfloat16, 128, 32, 32)
#endif
