// Matrix products c[m,n] = Σ_k a[m,k]*b[n,k]. A block computes TM×TN elements: while
// it works on one pair of panels in shared memory, the next one is on its way
// through registers to the other. A core is what multiplies two panels.
#pragma once

// Fused multiplies in float32: each of 256 threads has (TM/16)×(TN/16) sums, in
// squares of 4×4 that lie 64 apart. A warp has 4×8 threads, numbered so that the 8
// that read shared memory at once want two groups of a and four of b.
template <int TM, int TN, int K> struct Fused {
	typedef FloatPanel<TM, K> PanelA;
	typedef FloatPanel<TN, K> PanelB;
	enum { PM = TM / 16, PN = TN / 16, LINE = TN + 4, PATCH = 16 * LINE, AT_ONCE = PM * PN > 64 ? 4 : 2 };
	float sum[PM][PN];

	INLINE int row(int i) { return i / 4 * 64 + (TID / 64 * 4 + TID / 16 % 2 * 2 + TID % 2) * 4 + i % 4; }
	INLINE int col(int j) { return j / 4 * 64 + (TID / 32 % 2 * 8 + TID % 16 / 2) * 4 + j % 4; }
	INLINE_MEMBER void clear() {
#pragma unroll
		for (int i = 0; i < PM; i++)
#pragma unroll
			for (int j = 0; j < PN; j++) sum[i][j] = 0;
	}
	template <bool, bool> INLINE_MEMBER void step(const float *a, const float *b) {
#pragma unroll AT_ONCE
		for (int k = 0; k < K; k++) {
			float va[PM], vb[PN];
#pragma unroll
			for (int i = 0; i < PM; i += 4) {
				Four f = *(const Four *)&a[PanelA::at(false, row(i), k)];
#pragma unroll
				for (int x = 0; x < 4; x++) va[i + x] = f[x];
			}
#pragma unroll
			for (int j = 0; j < PN; j += 4) {
				Four f = *(const Four *)&b[PanelB::at(false, col(j), k)];
#pragma unroll
				for (int x = 0; x < 4; x++) vb[j + x] = f[x];
			}
#pragma unroll
			for (int i = 0; i < PM; i++)
#pragma unroll
				for (int j = 0; j < PN; j++) sum[i][j] = fused(va[i], vb[j], sum[i][j]);
		}
	}
	// Results go by a patch of shared memory, so that threads that are neighbours
	// write neighbours: at a time one of the PM rows that a thread has.
	template <class C> INLINE_MEMBER void put(const C &c, int m0, int n0, int rows, int cols, float *patch) const {
		int x = TID % TN, n = n0 + x;
		i64 at = n < cols ? c.column(n) : 0;
#pragma unroll
		for (int i = 0; i < PM; i++) {
			SYNC();
#pragma unroll
			for (int j = 0; j < PN; j += 4) {
				Four f = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
				*(Four *)&patch[row(0) / 4 * LINE + col(j)] = f;
			}
			SYNC();
#pragma unroll 1
			for (int y = TID / TN; y < 16; y += 256 / TN) {
				int m = m0 + i / 4 * 64 + y * 4 + i % 4;
				if (m < rows && n < cols) c.put(m, n, at, patch[y * LINE + x]);
			}
		}
	}
};

// Tensor multiplies half precision H by tensor cores, with sums in float32: each of
// 8 warps, two by four, has FM×FN squares of 16×16.
template <class H, int TM, int TN, int K> struct Tensor {
	typedef HalfPanel<TM, K> PanelA;
	typedef HalfPanel<TN, K> PanelB;
	enum { FM = TM / 32, FN = TN / 64, COLS = 16 * FN, LINE = COLS + 4, PATCH = 8 * 16 * LINE };
	typename H::Sum sum[FM][FN];

	INLINE_MEMBER void clear() {
#pragma unroll
		for (int i = 0; i < FM; i++)
#pragma unroll
			for (int j = 0; j < FN; j++) H::clear(sum[i][j]);
	}
	template <bool AK, bool BK> INLINE_MEMBER void step(const unsigned short *a, const unsigned short *b) {
		int m = TID / 128 * (TM / 2), n = TID / 32 % 4 * COLS;
#pragma unroll
		for (int k = 0; k < K; k += 16) {
			typename H::B fb[FN];
#pragma unroll
			for (int j = 0; j < FN; j++) H::template load_b<BK>(fb[j], b + PanelB::at(BK, n + 16 * j, k), PanelB::line(BK));
#pragma unroll
			for (int i = 0; i < FM; i++) {
				typename H::A fa;
				H::template load_a<AK>(fa, a + PanelA::at(AK, m + 16 * i, k), PanelA::line(AK));
#pragma unroll
				for (int j = 0; j < FN; j++) H::template multiply<AK, BK>(sum[i][j], fa, fb[j]);
			}
		}
	}
	// Which thread has which element of a sum is the hardware's matter: they go by
	// a patch of shared memory that is the warp's own.
	template <class C> INLINE_MEMBER void put(const C &c, int m0, int n0, int rows, int cols, float *patches) const {
		float *patch = patches + TID / 32 * 16 * LINE;
		int x = TID % COLS, n = n0 + TID / 32 % 4 * COLS + x;
		i64 at = n < cols ? c.column(n) : 0;
#pragma unroll
		for (int i = 0; i < FM; i++) {
			WARP_SYNC();
#pragma unroll
			for (int j = 0; j < FN; j++) H::store(patch + 16 * j, sum[i][j], LINE);
			WARP_SYNC();
#pragma unroll 1
			for (int y = TID % 32 / COLS; y < 16; y += 32 / COLS) {
				int m = m0 + TID / 128 * (TM / 2) + 16 * i + y;
				if (m < rows && n < cols) c.put(m, n, at, patch[y * LINE + x]);
			}
		}
	}
};

// The cores of operands that are not read by groups.
typedef Fused<64, 128, 16> WideFused;
template <class H> using WideTensor = Tensor<H, 64, 128, 16>;

// Shared memory of a block: when the last panels have been multiplied, patches of
// results lie in their place.
template <class Core, class A, class B> struct alignas(32) Shared {
	struct Panels {
		alignas(32) typename Core::PanelA::Cell a[2][Core::PanelA::CELLS];
		alignas(32) typename Core::PanelB::Cell b[2][Core::PanelB::CELLS];
	};
	union {
		Panels panels;
		float patches[Core::PATCH];
	};
	typename Loader<typename Core::PanelA, A>::Table ta;
	typename Loader<typename Core::PanelB, B>::Table tb;
};

// Divided is a result of which k may be divided: then sums go to scratch, from
// where finish takes them.
template <class C> struct Divided {
	const C &c;
	float *to; // null: it is not
	i64 cols;
	INLINE_MEMBER i64 column(int n) const { return to ? n : c.column(n); }
	INLINE_MEMBER void put(int m, int n, i64 column, float v) const {
		if (to) to[m * cols + n] = v;
		else c.put(m, n, column, v);
	}
	// Whether four neighbours can be put at once, where n is a multiple of four.
	INLINE_MEMBER bool fours() const { return cols % 4 == 0 && (to || c.fours()); }
	INLINE_MEMBER void put_four(int m, int n, const Four &v) const {
		if (to) *(Four *)&to[m * cols + n] = v;
		else c.put_four(m, n, v);
	}
};

// Block is the part of the work that a block has: the tile and the part of k. Sizes
// are some below 2^31 (cuda.mostRows), so that places are int.
struct Block {
	int m0, n0, k0, k1;
	i64 batch, split;
};

INLINE Block block_of(int tm, int tn, i64 rows, i64 cols, i64 depth, i64 splits, i64 each) {
	i64 ms = ceil_div(rows, tm), ns = ceil_div(cols, tn), i = BLOCK_X;
	Block b;
	b.m0 = (int)(i % ms * tm); i /= ms;
	b.n0 = (int)(i % ns * tn); i /= ns;
	b.split = i % splits;
	b.batch = i / splits;
	b.k0 = (int)(b.split * each);
	b.k1 = (int)(b.split * each + each < depth ? b.split * each + each : depth);
	return b;
}

// accumulate is the loop of tiled kernels. AK and BK say that panels lie row by row,
// as HalfPanel has it.
template <bool AK, bool BK, class Core, class A, class B>
INLINE void accumulate(Core &core, const A &a, const B &b, const Block &w, i64 rows, i64 cols, Shared<Core, A, B> &s) {
	typedef Loader<typename Core::PanelA, A> LoaderA;
	typedef Loader<typename Core::PanelB, B> LoaderB;
	enum { STEP = Core::PanelA::STEP };
	LoaderA la(a, s.ta, w.m0, (int)rows, w.k1);
	LoaderB lb(b, s.tb, w.n0, (int)cols, w.k1);
	int panel = 1, other = TID - 128; // others than those of la note what lb needs
	la.note(w.k0, 0, TID);
	lb.note(w.k0, 0, other);
	if (LoaderA::TABLES || LoaderB::TABLES) SYNC();
	for (int k = w.k0 - STEP; k < w.k1; k += STEP, panel ^= 1) {
		bool more = k + STEP < w.k1;
		if (more) {
			la.fetch(k + STEP, panel ^ 1);
			lb.fetch(k + STEP, panel ^ 1);
			la.note(k + 2 * STEP, panel, TID);
			lb.note(k + 2 * STEP, panel, other);
		}
		if (k >= w.k0) core.template step<AK, BK>(s.panels.a[panel], s.panels.b[panel]);
		if (more) {
			la.store(s.panels.a[panel ^ 1]);
			lb.store(s.panels.b[panel ^ 1]);
		}
		SYNC();
	}
}

// write gives results away. With splits above 1 each of them had a part of k, and
// finish adds up what they wrote.
INLINE float *part_of(const Block &w, i64 rows, i64 cols, i64 splits) { return splits > 1 ? scratch + (w.batch * splits + w.split) * rows * cols : nullptr; }
template <class Core, class A, class B, class C>
INLINE void write(const Core &core, const C &c, const Block &w, i64 rows, i64 cols, i64 splits, Shared<Core, A, B> &s) {
	Divided<C> d = {c, part_of(w, rows, cols, splits), cols};
	core.put(d, w.m0, w.n0, (int)rows, (int)cols, s.patches);
}

template <class C> INLINE void finish(const C &c, i64 batch, i64 i, i64 rows, i64 cols, i64 splits) {
	float v = 0;
	for (i64 s = 0; s < splits; s++) v += scratch[(batch * splits + s) * rows * cols + i];
	int n = (int)(i % cols);
	c.put((int)(i / cols), n, c.column(n), v);
}
