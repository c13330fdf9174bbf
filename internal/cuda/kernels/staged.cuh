// Products of matrices in half precision as GPUs since compute capability 8.0 do them
// fastest: panels come to shared memory by copies that need no registers, STAGES-1 of
// them ahead, and a warp loads what it multiplies next while it multiplies.
#pragma once

// Cells of a panel lie as they do in memory, in lines of neighbours in k (by_k) or of
// neighbouring rows. Which of the groups of a line is where depends on the line: eight
// that ldmatrix reads at once, of eight lines, are in different banks.
template <int T, int K> struct SwizzledPanel {
	enum { ROWS = T, STEP = K, CELLS = T * K, BY_K = K / 8, BY_ROW = T / 8 };
	INLINE int groups(bool by_k) { return by_k ? K / 8 : T / 8; }
	INLINE int at(bool by_k, int row, int k) {
		int line = by_k ? row : k, group = by_k ? k / 8 : row / 8;
		int turn = by_k && K == 32 ? line / 2 % 4 : line % 8; // lines of 64 bytes lie in pairs
		return (line * groups(by_k) + (group ^ turn)) * 8;
	}
};

// A Stager copies a panel of a matrix after the other: a thread has COPIES groups of
// each, PASS lines apart.
template <class P, bool by_k> struct Stager {
	enum { GROUPS = by_k ? P::STEP / 8 : P::ROWS / 8, PASS = 256 / GROUPS, COPIES = P::CELLS / 8 / 256 };
	const char *from;
	i64 line, panel; // bytes from a pass to the next one, and from a panel
	int lines, along; // how many lines there are from the thread's first on, and elements from its group on
	int cell;

	INLINE_MEMBER Stager(const Matrix &m, int first, int rows, int k0, int end) {
		int l = TID / GROUPS, g = TID % GROUPS * 8;
		int row = by_k ? l : g, k = by_k ? g : l;
		i64 row_stride = by_k ? m.row_stride : 1, k_stride = by_k ? 1 : m.k_stride;
		from = m.memory + ((first + row) * row_stride + (k0 + k) * k_stride) * 2;
		line = PASS * (by_k ? row_stride : k_stride) * 2;
		panel = P::STEP * k_stride * 2;
		lines = by_k ? rows - first - l : end - k0 - l;
		along = by_k ? end - k0 - g : rows - first - g;
		cell = P::at(by_k, row, k);
	}
	INLINE_MEMBER void next(unsigned short *to) {
		const char *at = from;
#pragma unroll
		for (int c = 0; c < COPIES; c++, at += line) copy_16(to + cell + c * PASS * GROUPS * 8, at, along > 0 && lines > c * PASS);
		from += panel;
		(by_k ? along : lines) -= P::STEP;
	}
};

// Staged multiplies panels of TM×K by TN×K: each of 8 warps, two by four, has
// FM×FN squares of 16×16. With AHEAD it has two sets of them in registers.
template <int type, int TM, int TN, int K, int STAGES, bool AHEAD> struct Staged {
	typedef SwizzledPanel<TM, K> PanelA;
	typedef SwizzledPanel<TN, K> PanelB;
	enum { FM = TM / 32, FN = TN / 64, COLS = 16 * FN, LINE = COLS + 8, SETS = AHEAD ? 2 : 1, STEPS = K / 16 };
	struct Stage {
		unsigned short a[PanelA::CELLS], b[PanelB::CELLS];
	};
	struct Memory {
		union {
			Stage stages[STAGES];
			float patches[8 * 16 * LINE];
		};
	};
	float sum[FM][2 * FN][4];

	INLINE_MEMBER Staged() {
#pragma unroll
		for (int i = 0; i < FM; i++)
#pragma unroll
			for (int j = 0; j < 2 * FN; j++)
#pragma unroll
				for (int x = 0; x < 4; x++) sum[i][j][x] = 0;
	}
	INLINE int first_row() { return TID / 128 * (TM / 2); }
	INLINE int first_col() { return TID / 32 % 4 * COLS; }

	// The squares of a warp at step s of a panel. Of A they are, in the order that mma
	// wants, rows 0 to 7 and 8 to 15 with the first half of k, then with the second; of
	// B both halves of k with columns 0 to 7, then with 8 to 15.
	template <bool AK, bool BK> INLINE_MEMBER void load(Quad (&a)[FM], Quad (&b)[FN], const Stage &stage, int s) const {
		int m = first_row(), n = first_col(), k = 16 * s;
#pragma unroll
		for (int i = 0; i < FM; i++)
			load_squares<!AK>(a[i], [&](int lane) {
				int half = AK ? lane / 16 : lane / 8 % 2, of = AK ? lane % 16 : lane % 8 + lane / 16 * 8;
				return AK ? &stage.a[PanelA::at(true, m + 16 * i + of, k + 8 * half)] : &stage.a[PanelA::at(false, m + 16 * i + 8 * half, k + of)];
			});
#pragma unroll
		for (int j = 0; j < FN; j++)
			load_squares<!BK>(b[j], [&](int lane) {
				int half = BK ? lane / 8 % 2 : lane / 16, of = BK ? lane % 8 + lane / 16 * 8 : lane % 16;
				return BK ? &stage.b[PanelB::at(true, n + 16 * j + of, k + 8 * half)] : &stage.b[PanelB::at(false, n + 16 * j + 8 * half, k + of)];
			});
	}

	// accumulate multiplies a part of k. When a panel is begun, the one before it has
	// been left by all warps, and its stage is given to the one STAGES-1 ahead. A panel
	// beyond the last one is zeros, and is not multiplied.
	template <bool AK, bool BK> INLINE_MEMBER void accumulate(Memory &memory, const Matrix &ma, const Matrix &mb, const Block &w, i64 rows, i64 cols) {
		Stager<PanelA, AK> sa(ma, w.m0, (int)rows, w.k0, w.k1);
		Stager<PanelB, BK> sb(mb, w.n0, (int)cols, w.k0, w.k1);
#pragma unroll
		for (int s = 0; s < STAGES - 1; s++) {
			sa.next(memory.stages[s].a);
			sb.next(memory.stages[s].b);
			copies_end();
		}
		Quad a[SETS][FM], b[SETS][FN];
		int now = 0, free = STAGES - 1;
		copies_wait<STAGES - 2>();
		SYNC();
		if (AHEAD) load<AK, BK>(a[0], b[0], memory.stages[0], 0);
#pragma unroll 1
		for (int k = w.k0; k < w.k1; k += K) {
#pragma unroll
			for (int s = 0; s < STEPS; s++) {
				if (!AHEAD) load<AK, BK>(a[0], b[0], memory.stages[now], s);
				if (s == STEPS - 1) {
					copies_wait<STAGES - 2>();
					SYNC();
					now = now + 1 < STAGES ? now + 1 : 0;
				}
				if (AHEAD) load<AK, BK>(a[(s + 1) % SETS], b[(s + 1) % SETS], memory.stages[now], (s + 1) % STEPS);
				if (s == 0) {
					sa.next(memory.stages[free].a);
					sb.next(memory.stages[free].b);
					copies_end();
					free = free + 1 < STAGES ? free + 1 : 0;
				}
				multiply_squares<type>(sum, a[s % SETS], b[s % SETS]);
			}
		}
		copies_wait<0>();
		SYNC();
	}

	// Results go by a patch of shared memory that is the warp's own, so that threads
	// that are neighbours write neighbours: four at once where C can.
	template <class C> INLINE_MEMBER void put(const C &c, int m0, int n0, int rows, int cols, float *patches) const {
		float *patch = patches + TID / 32 * 16 * LINE;
		int lane = TID % 32;
		bool fours = c.fours();
#pragma unroll
		for (int i = 0; i < FM; i++) {
			WARP_SYNC();
#pragma unroll
			for (int j = 0; j < 2 * FN; j++)
#pragma unroll
				for (int x = 0; x < 4; x += 2) {
					float *to = patch + (lane / 4 + 4 * x) * LINE + 8 * j + lane % 4 * 2;
					to[0] = sum[i][j][x];
					to[1] = sum[i][j][x + 1];
				}
			WARP_SYNC();
			int first = m0 + first_row() + 16 * i;
			if (fours) {
				int x = lane % (COLS / 4) * 4, n = n0 + first_col() + x;
#pragma unroll 2
				for (int r = 0; r < 16; r += 128 / COLS) {
					int y = r + lane / (COLS / 4);
					if (first + y < rows && n < cols) c.put_four(first + y, n, *(const Four *)&patch[y * LINE + x]);
				}
			} else {
				enum { WIDE = COLS < 32 ? COLS : 32 };
#pragma unroll 1
				for (int x = lane % WIDE; x < COLS; x += WIDE) {
					int n = n0 + first_col() + x;
					i64 at = n < cols ? c.column(n) : 0;
#pragma unroll 1
					for (int y = lane / WIDE; y < 16; y += 32 / WIDE)
						if (first + y < rows && n < cols) c.put(first + y, n, at, patch[y * LINE + x]);
				}
			}
		}
	}
};

// Blocks that run at one time should have rows and columns in common, which are then
// read from memory once: they go down BAND tiles, then on to the next column.
enum { BAND = 16 };

INLINE Block banded_block_of(int tm, int tn, i64 rows, i64 cols, i64 depth, i64 splits, i64 each) {
	u32 ms = ((u32)rows + tm - 1) / tm, ns = ((u32)cols + tn - 1) / tn, i = (u32)BLOCK_X;
	u32 in = i % (ms * ns), part = i / (ms * ns), band = in / (BAND * ns), high = ms - band * BAND < BAND ? ms - band * BAND : BAND;
	in -= band * BAND * ns;
	Block b;
	b.m0 = (int)((band * BAND + in % high) * tm);
	b.n0 = (int)(in / high * tn);
	b.split = part % (u32)splits;
	b.batch = part / (u32)splits;
	b.k0 = (int)(b.split * each);
	b.k1 = (int)(b.split * each + each < depth ? b.split * each + each : depth);
	return b;
}
