// Attention without a matrix of scores: a block holds R queries (or keys) and goes
// over the others R at a time, with the maximum and the sum of each row corrected
// on the way (Dao et al., FlashAttention, 2022). D is the largest size of a head;
// sizes below it are filled up with zeros in shared memory. The gradients are
// computed twice over, once for each query and once for each key, so that no two
// blocks add to one place.
#pragma once

struct Heads {
	i64 heads, shared, queries, keys, e, ev; // shared: heads of queries for one of keys
	float scale, keep;                       // keep: 1/(1-p)
	i64 causal, seed, threshold;
};

#define HEADS i64 heads, i64 shared, i64 queries, i64 keys, i64 e, i64 ev, float scale, float keep, i64 causal, i64 seed, i64 threshold
#define HEADS_OF(h) Heads h = {heads, shared, queries, keys, e, ev, scale, keep, causal, seed, threshold}

// Strides are of [batch, head, row, column], from the innermost.
INLINE i64 head_of(const View &v, const Heads &h, i64 bh) { return bh / h.heads * v.stride[3] + bh % h.heads * v.stride[2]; }
INLINE i64 key_head_of(const View &v, const Heads &h, i64 bh) { return bh / h.heads * v.stride[3] + bh % h.heads / h.shared * v.stride[2]; }

// fetch reads rows first.. of a head into R lines of D+1 floats.
template <int D, int R> INLINE void fetch(float *to, const View &v, i64 head, i64 first, i64 rows, i64 cols) {
	for (int i = TID; i < R * D; i += 256) {
		int r = i / D, c = i % D;
		to[r * (D + 1) + c] = first + r < rows && c < cols ? get(v, head + (first + r) * v.stride[1] + c * v.stride[0]) : 0;
	}
}

// hidden reports what query i may not see; masked is the score of what it may, of
// the product with key j.
INLINE bool hidden(const Heads &h, i64 i, i64 j) { return i >= h.queries || j >= h.keys || (h.causal && j > i); }
INLINE float masked(float s, const View &mask, const Heads &h, i64 bh, i64 i, i64 j) {
	s *= h.scale;
	if (!mask.at) return s;
	i64 o = head_of(mask, h, bh) + i * mask.stride[1] + j * mask.stride[0];
	if (mask.type == BOOL) return ((const unsigned char *)mask.at)[o] ? s : -infinity();
	return s + get(mask, o);
}

// score is what the weight of key j for query i is the exponential of; minus
// infinity where it may not look.
template <int D> INLINE float score(const float *q, const float *k, const View &mask, const Heads &h, i64 bh, i64 i, i64 j) {
	if (hidden(h, i, j)) return -infinity();
	float s = 0;
#pragma unroll 8
	for (int c = 0; c < D; c++) s = fused(q[c], k[c], s);
	return masked(s, mask, h, bh, i, j);
}

// dropped is what dropout multiplies a weight by.
INLINE float dropped(const Heads &h, i64 bh, i64 i, i64 j) {
	if (h.threshold == 0) return 1.0f;
	return kept((u64)h.seed, (bh * h.queries + i) * h.keys + j, h.threshold) ? h.keep : 0;
}

template <int D, int R>
INLINE void attend(const Heads &h, const View &y, const View &lse, const View &q, const View &k, const View &v, const View &mask,
                   float *sq, float *skv, float *sp, float *sm, float *sl, float *sf) {
	enum { ACC = R * D / 256, S = R * R };
	i64 tiles = ceil_div(h.queries, R), first = BLOCK_X % tiles * R, bh = BLOCK_X / tiles;
	fetch<D, R>(sq, q, head_of(q, h, bh), first, h.queries, h.e);
	if (TID < R) { sm[TID] = -infinity(); sl[TID] = 0; }
	float acc[ACC] = {};
	i64 end = h.causal && first + R < h.keys ? first + R : h.keys;
	for (i64 j0 = 0; j0 < end; j0 += R) {
		SYNC(); // the last round's values have been read
		fetch<D, R>(skv, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		SYNC();
		for (int x = TID; x < S; x += 256) {
			int i = x / R, j = x % R;
			sp[i * (R + 1) + j] = score<D>(sq + i * (D + 1), skv + j * (D + 1), mask, h, bh, first + i, j0 + j);
		}
		SYNC();
		if (TID < R) {
			float m = sm[TID];
			for (int j = 0; j < R; j++) m = larger(sp[TID * (R + 1) + j], m);
			sf[TID] = m == -infinity() ? 1.0f : exp_(sm[TID] - m);
			sm[TID] = m;
		}
		SYNC();
		for (int x = TID; x < S; x += 256) {
			int i = x / R, j = x % R;
			float s = sp[i * (R + 1) + j];
			sp[i * (R + 1) + j] = s == -infinity() ? 0 : exp_(s - sm[i]);
		}
		fetch<D, R>(skv, v, key_head_of(v, h, bh), j0, h.keys, h.ev);
		SYNC();
		if (TID < R) {
			float l = 0;
			for (int j = 0; j < R; j++) l += sp[TID * (R + 1) + j];
			sl[TID] = fused(sl[TID], sf[TID], l);
		}
		if (h.threshold != 0) {
			SYNC(); // the sum is of the weights before dropout
			for (int x = TID; x < S; x += 256) {
				int i = x / R, j = x % R;
				sp[i * (R + 1) + j] *= dropped(h, bh, first + i, j0 + j);
			}
			SYNC();
		}
#pragma unroll
		for (int x = 0; x < ACC; x++) acc[x] *= sf[(TID + 256 * x) / D];
		for (int j = 0; j < R; j++)
#pragma unroll
			for (int x = 0; x < ACC; x++) {
				int i = TID + 256 * x;
				acc[x] = fused(sp[i / D * (R + 1) + j], skv[j * (D + 1) + i % D], acc[x]);
			}
	}
	SYNC();
#pragma unroll
	for (int x = 0; x < ACC; x++) {
		int i = TID + 256 * x, r = i / D, c = i % D;
		if (first + r < h.queries && c < h.ev)
			put(y, head_of(y, h, bh) + (first + r) * y.stride[1] + c * y.stride[0], sl[r] > 0 || sl[r] != sl[r] ? acc[x] / sl[r] : 0);
	}
	if (lse.at && TID < R && first + TID < h.queries)
		put(lse, bh / h.heads * lse.stride[2] + bh % h.heads * lse.stride[1] + (first + TID) * lse.stride[0],
		    sm[TID] == -infinity() ? infinity() : sm[TID] + log_(sl[TID])); // of nothing: so that all weights are 0 in the backward pass
}

// agreement is Σ g*y of each of R queries, the gradient that is common to its row.
template <int D, int R> INLINE void agreement(float *to, const View &g, const View &y, const Heads &h, i64 bh, i64 first, float *cells) {
	enum { PER = 256 / R };
	int r = TID / PER;
	i64 row = first + r;
	float s = 0;
	if (row < h.queries)
		for (i64 c = TID % PER; c < h.ev; c += PER)
			s = fused(get(g, head_of(g, h, bh) + row * g.stride[1] + c * g.stride[0]), get(y, head_of(y, h, bh) + row * y.stride[1] + c * y.stride[0]), s);
	cells[TID] = s;
	SYNC();
	if (TID < R) {
		s = 0;
		for (int i = 0; i < PER; i++) s += cells[TID * PER + i];
		to[TID] = s;
	}
}

INLINE float weight_of(float s, float lse) { return s == -infinity() ? 0 : exp_(s - lse); }
INLINE float sum_of(const View &lse, const Heads &h, i64 bh, i64 i) {
	return i < h.queries ? get(lse, bh / h.heads * lse.stride[2] + bh % h.heads * lse.stride[1] + i * lse.stride[0]) : 0;
}

// The gradient of R queries.
template <int D, int R>
INLINE void attend_queries(const Heads &h, const View &gq, const View &g, const View &y, const View &lse, const View &q, const View &k, const View &v,
                           const View &mask, float *sq, float *sg, float *sk, float *sv, float *sp, float *sd, float *cells) {
	enum { ACC = R * D / 256, S = R * R };
	i64 tiles = ceil_div(h.queries, R), first = BLOCK_X % tiles * R, bh = BLOCK_X / tiles;
	fetch<D, R>(sq, q, head_of(q, h, bh), first, h.queries, h.e);
	fetch<D, R>(sg, g, head_of(g, h, bh), first, h.queries, h.ev);
	agreement<D, R>(sd, g, y, h, bh, first, cells);
	float acc[ACC] = {};
	i64 end = h.causal && first + R < h.keys ? first + R : h.keys;
	for (i64 j0 = 0; j0 < end; j0 += R) {
		SYNC();
		fetch<D, R>(sk, k, key_head_of(k, h, bh), j0, h.keys, h.e);
		fetch<D, R>(sv, v, key_head_of(v, h, bh), j0, h.keys, h.ev);
		SYNC();
		for (int x = TID; x < S; x += 256) {
			int i = x / R, j = x % R;
			float w = weight_of(score<D>(sq + i * (D + 1), sk + j * (D + 1), mask, h, bh, first + i, j0 + j), sum_of(lse, h, bh, first + i)), d = 0;
#pragma unroll 8
			for (int c = 0; c < D; c++) d = fused(sg[i * (D + 1) + c], sv[j * (D + 1) + c], d);
			sp[i * (R + 1) + j] = w == 0 ? 0 : w * (d * dropped(h, bh, first + i, j0 + j) - sd[i]);
		}
		SYNC();
		for (int j = 0; j < R; j++)
#pragma unroll
			for (int x = 0; x < ACC; x++) {
				int i = TID + 256 * x;
				acc[x] = fused(sp[i / D * (R + 1) + j], sk[j * (D + 1) + i % D], acc[x]);
			}
	}
#pragma unroll
	for (int x = 0; x < ACC; x++) {
		int i = TID + 256 * x, r = i / D, c = i % D;
		if (first + r < h.queries && c < h.e) put(gq, head_of(gq, h, bh) + (first + r) * gq.stride[1] + c * gq.stride[0], acc[x] * h.scale);
	}
}

// The gradients of R keys and their values.
template <int D, int R>
INLINE void attend_keys(const Heads &h, const View &gk, const View &gv, const View &g, const View &y, const View &lse, const View &q, const View &k,
                        const View &v, const View &mask, float *sq, float *sg, float *sk, float *sv, float *sp, float *sw, float *sd, float *cells) {
	enum { ACC = R * D / 256, S = R * R };
	i64 tiles = ceil_div(h.keys, R), first = BLOCK_X % tiles * R, own = BLOCK_X / tiles * h.shared; // the first of the heads of queries that share the keys
	fetch<D, R>(sk, k, key_head_of(k, h, own), first, h.keys, h.e);
	fetch<D, R>(sv, v, key_head_of(v, h, own), first, h.keys, h.ev);
	float ak[ACC] = {}, av[ACC] = {};
	i64 start = h.causal ? first : 0; // with causal set, earlier queries do not see these keys
	int steps = h.queries > start ? (int)ceil_div(h.queries - start, R) : 0, all = steps * (int)h.shared;
	for (int step = 0; step < all; step++) {
		i64 bh = own + step / steps, i0 = start + step % steps * R;
		SYNC();
		fetch<D, R>(sq, q, head_of(q, h, bh), i0, h.queries, h.e);
		fetch<D, R>(sg, g, head_of(g, h, bh), i0, h.queries, h.ev);
		agreement<D, R>(sd, g, y, h, bh, i0, cells);
		SYNC();
		for (int x = TID; x < S; x += 256) {
			int i = x / R, j = x % R;
			float w = weight_of(score<D>(sq + i * (D + 1), sk + j * (D + 1), mask, h, bh, i0 + i, first + j), sum_of(lse, h, bh, i0 + i)), d = 0;
#pragma unroll 8
			for (int c = 0; c < D; c++) d = fused(sg[i * (D + 1) + c], sv[j * (D + 1) + c], d);
			float drop = w == 0 ? 0 : dropped(h, bh, i0 + i, first + j);
			sw[i * (R + 1) + j] = w * drop;
			sp[i * (R + 1) + j] = w == 0 ? 0 : w * (d * drop - sd[i]);
		}
		SYNC();
		for (int i = 0; i < R; i++)
#pragma unroll
			for (int x = 0; x < ACC; x++) {
				int n = TID + 256 * x, j = n / D, c = n % D;
				ak[x] = fused(sp[i * (R + 1) + j], sq[i * (D + 1) + c], ak[x]);
				av[x] = fused(sw[i * (R + 1) + j], sg[i * (D + 1) + c], av[x]);
			}
	}
#pragma unroll
	for (int x = 0; x < ACC; x++) {
		int n = TID + 256 * x, j = n / D, c = n % D;
		if (first + j >= h.keys) continue;
		if (c < h.e) put(gk, key_head_of(gk, h, own) + (first + j) * gk.stride[1] + c * gk.stride[0], ak[x] * h.scale);
		if (c < h.ev) put(gv, key_head_of(gv, h, own) + (first + j) * gv.stride[1] + c * gv.stride[0], av[x]);
	}
}

#ifdef MODULE_70
// The gradient of a mask: a block for each query, and a thread for each of its keys.
extern "C" __global__ void __launch_bounds__(256) attention_mask_grad(HEADS, TENSOR(gmask), TENSOR(g), TENSOR(y), TENSOR(lse), TENSOR(q), TENSOR(k), TENSOR(v),
	TENSOR(mask)) {
	__shared__ float sq[512];
	__shared__ float sg[512];
	__shared__ float cells[256];
	VIEW(gmask); VIEW(g); VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask);
	HEADS_OF(h);
	i64 i = BLOCK_X % h.queries, bh = BLOCK_X / h.queries;
	for (i64 c = TID; c < h.e; c += 256) sq[c] = get(q, head_of(q, h, bh) + i * q.stride[1] + c * q.stride[0]);
	float common = 0;
	for (i64 c = TID; c < h.ev; c += 256) {
		float d = get(g, head_of(g, h, bh) + i * g.stride[1] + c * g.stride[0]);
		sg[c] = d;
		common = fused(d, get(y, head_of(y, h, bh) + i * y.stride[1] + c * y.stride[0]), common);
	}
	common = reduce<Plus, 256>(common, cells);
	float sum = sum_of(lse, h, bh, i);
	for (i64 j = TID; j < h.keys; j += 256) {
		float s = 0, d = 0;
		i64 of_k = key_head_of(k, h, bh) + j * k.stride[1], of_v = key_head_of(v, h, bh) + j * v.stride[1];
		for (i64 c = 0; c < h.e; c++) s = fused(sq[c], get(k, of_k + c * k.stride[0]), s);
		for (i64 c = 0; c < h.ev; c++) d = fused(sg[c], get(v, of_v + c * v.stride[0]), d);
		float w = hidden(h, i, j) ? 0 : weight_of(masked(s, mask, h, bh, i, j), sum);
		put(gmask, head_of(gmask, h, bh) + i * gmask.stride[1] + j * gmask.stride[0], w == 0 ? 0 : w * (d * dropped(h, bh, i, j) - common));
	}
}
#endif

// R is chosen so that shared memory is below 48 KiB.
#define ATTENTION_KERNELS(D, R, RB) \
	extern "C" __global__ void __launch_bounds__(256) attention_##D(HEADS, TENSOR(y), TENSOR(lse), TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(mask)) { \
		__shared__ float sq[R * (D + 1)]; \
		__shared__ float skv[R * (D + 1)]; \
		__shared__ float sp[R * (R + 1)]; \
		__shared__ float sm[R]; \
		__shared__ float sl[R]; \
		__shared__ float sf[R]; \
		VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend<D, R>(h, y, lse, q, k, v, mask, sq, skv, sp, sm, sl, sf); \
	} \
	extern "C" __global__ void __launch_bounds__(256) attention_queries_##D(HEADS, TENSOR(gq), TENSOR(g), TENSOR(y), TENSOR(lse), TENSOR(q), TENSOR(k), \
		TENSOR(v), TENSOR(mask)) { \
		__shared__ float sq[RB * (D + 1)]; \
		__shared__ float sg[RB * (D + 1)]; \
		__shared__ float sk[RB * (D + 1)]; \
		__shared__ float sv[RB * (D + 1)]; \
		__shared__ float sp[RB * (RB + 1)]; \
		__shared__ float sd[RB]; \
		__shared__ float cells[256]; \
		VIEW(gq); VIEW(g); VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend_queries<D, RB>(h, gq, g, y, lse, q, k, v, mask, sq, sg, sk, sv, sp, sd, cells); \
	} \
	extern "C" __global__ void __launch_bounds__(256) attention_keys_##D(HEADS, TENSOR(gk), TENSOR(gv), TENSOR(g), TENSOR(y), TENSOR(lse), TENSOR(q), \
		TENSOR(k), TENSOR(v), TENSOR(mask)) { \
		__shared__ float sq[RB * (D + 1)]; \
		__shared__ float sg[RB * (D + 1)]; \
		__shared__ float sk[RB * (D + 1)]; \
		__shared__ float sv[RB * (D + 1)]; \
		__shared__ float sp[RB * (RB + 1)]; \
		__shared__ float sw[RB * (RB + 1)]; \
		__shared__ float sd[RB]; \
		__shared__ float cells[256]; \
		VIEW(gk); VIEW(gv); VIEW(g); VIEW(y); VIEW(lse); VIEW(q); VIEW(k); VIEW(v); VIEW(mask); \
		HEADS_OF(h); \
		attend_keys<D, RB>(h, gk, gv, g, y, lse, q, k, v, mask, sq, sg, sk, sv, sp, sw, sd, cells); \
	}
#ifdef MODULE_70
ATTENTION_KERNELS(64, 32, 32)
ATTENTION_KERNELS(128, 32, 16)
ATTENTION_KERNELS(256, 16, 8)
ATTENTION_KERNELS(512, 8, 4)
#endif
