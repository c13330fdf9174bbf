// What blocks of attention_tensor.cuh have in shared memory, and the products of it.
#pragma once

template <class H, int D, int R, int C> struct Panels {
	typedef unsigned short Half;
	typedef typename H::Sum Sum;
	enum { LINE = D + 8, SCORES = C + 4, WEIGHTS = C + 8, PER = R * C / 256, SUMS = R * D / 16 / 16 / 8, PATCH = 20 };
	struct alignas(32) Memory {
		alignas(32) Half rows[R * LINE];
		alignas(32) Half more[R * LINE];
		alignas(32) Half cols[C * LINE];
		union { // weights take the place of the scores that they are made of
			alignas(32) float scores[R * SCORES];
			alignas(32) Half weights[R * WEIGHTS];
		};
		float sum[64], common[64]; // of queries: the logarithm of the sum of their weights; what is common to the gradients
	};

	// fetch reads N rows of a head from first on.
	template <int N> INLINE void fetch(Half *to, const View &v, i64 head, i64 first, i64 rows, i64 cols) {
		const Half *from = (const Half *)v.at + head;
		if (v.stride[0] == 1 && cols % 8 == 0 && ((u64)from | (u64)(v.stride[1] * 2)) % 16 == 0) {
#pragma unroll 2
			for (int x = TID; x < N * D / 8; x += 256) {
				int r = x / (D / 8), c = x % (D / 8) * 8;
				Words w = {};
				if (first + r < rows && c < cols) w = *(const Words *)(from + (first + r) * v.stride[1] + c);
				*(Words *)&to[r * LINE + c] = w;
			}
			return;
		}
#pragma unroll 1
		for (int x = TID; x < N * D; x += 256) {
			int r = x / D, c = x % D;
			to[r * LINE + c] = first + r < rows && c < cols ? from[(first + r) * v.stride[1] + c * v.stride[0]] : (Half)0;
		}
	}

	// scores are the products of all rows of a with all rows of b.
	INLINE void scores(float *to, const Half *a, const Half *b) {
#pragma unroll
		for (int f = 0; f < R / 16 * (C / 16); f += 8) {
			int row = (f + TID / 32) / (C / 16) * 16, col = (f + TID / 32) % (C / 16) * 16;
			Sum s;
			H::clear(s);
#pragma unroll
			for (int k = 0; k < D; k += 16) {
				typename H::A fa;
				typename H::B fb;
				H::template load_a<true>(fa, a + row * LINE + k, LINE);
				H::template load_b<true>(fb, b + col * LINE + k, LINE);
				H::template multiply<true, true>(s, fa, fb);
			}
			H::store(to + row * SCORES + col, s, SCORES);
		}
	}

	// Of sum i of a warp: the first row and column.
	INLINE int sum_row(int i) { return (8 * i + TID / 32) / (D / 16) * 16; }
	INLINE int sum_col(int i) { return (8 * i + TID / 32) % (D / 16) * 16; }

	// weigh adds weights times the rows of b.
	INLINE void weigh(Sum *sums, const Half *weights, const Half *b) {
#pragma unroll
		for (int i = 0; i < SUMS; i++)
#pragma unroll
			for (int k = 0; k < C; k += 16) {
				typename H::A fa;
				typename H::B fb;
				H::template load_a<true>(fa, weights + sum_row(i) * WEIGHTS + k, WEIGHTS);
				H::template load_b<false>(fb, b + k * LINE + sum_col(i), LINE);
				H::template multiply<true, false>(sums[i], fa, fb);
			}
	}

	// Element x of those that a thread has: its row, and its column.
	INLINE int row(int x) { return (TID + 256 * x) / C; }
	INLINE int col(int x) { return (TID + 256 * x) % C; }
	INLINE int score_of(int x) { return row(x) * SCORES + col(x); }

	// weights makes of scores the weights of keys for queries, negative where they
	// are dropped. Rows are keys, and columns queries, if swapped; first is the row,
	// and other the column, that the panel begins with.
	template <bool swapped>
	INLINE void weights(float *w, float *scores, const float *sum, const Heads &h, const View &mask, i64 bh, i64 first, i64 other) {
#pragma unroll 1
		for (int x = 0; x < PER; x++) {
			int query = swapped ? col(x) : row(x);
			i64 i = (swapped ? other : first) + query, j = swapped ? first + row(x) : other + col(x);
			float v = hidden(h, i, j) ? 0 : weight_of(masked(scores[score_of(x)], mask, h, bh, i, j), sum[query]);
			scores[score_of(x)] = v != 0 && dropped(h, bh, i, j) == 0 ? -v : v;
		}
#pragma unroll
		for (int x = 0; x < PER; x++) w[x] = scores[score_of(x)];
	}
	INLINE float kept_weight(const Heads &h, float w) { return w < 0 ? 0 : w * h.keep; }

	// set writes what is to be multiplied.
	INLINE void set(Half *to, int x, float v, int type) { to[row(x) * WEIGHTS + col(x)] = (Half)(type == BF16 ? to_bfloat(v) : to_half(v)); }

	// put writes sums, by patches of shared memory that nobody reads any more.
	INLINE void put(const View &y, i64 head, i64 first, i64 rows, i64 cols, const Sum *sums, float by, float *patches) {
		float *patch = patches + TID / 32 * 16 * PATCH;
#pragma unroll
		for (int i = 0; i < SUMS; i++) {
			WARP_SYNC();
			H::store(patch, sums[i], PATCH);
			WARP_SYNC();
			int c = sum_col(i) + TID % 16;
			for (int r = TID % 32 / 16; r < 16; r += 2) {
				i64 at = first + sum_row(i) + r;
				if (at < rows && c < cols) ::put(y, head + at * y.stride[1] + c * y.stride[0], patch[r * PATCH + TID % 16] * by);
			}
		}
	}
};
