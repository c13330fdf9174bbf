// Operands of products Σ_k a[m,k]*b[n,k], and how a block brings them into shared
// memory: rows by k, of anything that has rows and a k.
#pragma once

// 16 bytes, which are read and written at once.
typedef float Four __attribute__((vector_size(16)));
typedef u32 Words __attribute__((vector_size(16)));

// A panel is what a block holds of an operand at a time: ROWS of them, STEP of k. A
// group is 16 bytes of neighbours, which a matrix is read by.
//
// Cells of float32 lie k by k, as fused multiplication reads them: some neighbouring
// rows at one k. The lines are longer by 16 bytes, so that threads that have one row
// and store four k do not meet in one bank.
template <int T, int K> struct FloatPanel {
	typedef float Cell;
	enum { ROWS = T, STEP = K, GROUP = 4, LINE = T + 4, CELLS = K * LINE };
	INLINE int at(bool, int row, int k) { return k * LINE + row; }
	INLINE int group_row(int i) { return i / 2 % T; }
	INLINE int group_k(int i) { return i % 2 * 4 + i / (2 * T) * 8; }
	INLINE float cell(int type, u32 bits) { return decoded(type, bits); }
	INLINE void store(float *to, bool by_k, const Words &w) {
		if (!by_k) *(Words *)to = w;
		else
#pragma unroll
			for (int i = 0; i < 4; i++) to[i * LINE] = as_float(w[i]);
	}
};

// Cells of half precision lie as they do in memory, row by row (by_k) or k by k,
// since tensor cores read both. The lines are longer by 16 bytes here, too: eight
// rows of 16 bytes that are read at once are in different banks.
template <int T, int K> struct HalfPanel {
	typedef unsigned short Cell;
	enum { ROWS = T, STEP = K, GROUP = 8, ROW_LINE = K + 8, K_LINE = T + 8, BY_ROW = T * ROW_LINE, BY_K = K * K_LINE, CELLS = BY_ROW > BY_K ? BY_ROW : BY_K };
	INLINE int line(bool by_k) { return by_k ? ROW_LINE : K_LINE; }
	INLINE int at(bool by_k, int row, int k) { return by_k ? row * ROW_LINE + k : k * K_LINE + row; }
	INLINE int group_row(int i) { return i / (K / 8); }
	INLINE int group_k(int i) { return i % (K / 8) * 8; }
	INLINE unsigned short cell(int, u32 bits) { return (unsigned short)bits; }
	INLINE void store(unsigned short *to, bool, const Words &w) { *(Words *)to = w; }
};

// A Loader has those elements of a panel on their way that a thread brings: fetch
// starts the loads, store puts what they gave into shared memory. note is called
// two panels ahead, with what is to be known of k; TABLES says that it does
// something, and that a barrier is needed between it and fetch. Rows are from first
// on, below rows; k is below end.
template <class P, class O> struct Loader;

// A matrix that is read by groups: neighbours in k, or neighbouring rows, lie
// together, all groups are whole and lie at multiples of 16 bytes (cuda.grouped).
struct Matrix {
	const char *memory;
	bool by_k;
	i64 row_stride, k_stride;
};

template <class P> struct Loader<P, Matrix> {
	enum { TABLES = false, GROUPS = P::ROWS * P::STEP / P::GROUP / 256 };
	struct Table {};
	const Matrix &m;
	const char *place[GROUPS];
	int end[GROUPS]; // panels that begin there have nothing for this thread
	int cell[GROUPS]; // where its groups are in a panel
	Words words[GROUPS];

	INLINE_MEMBER Loader(const Matrix &m, Table &, int first, int rows, int last) : m(m) {
#pragma unroll
		for (int g = 0; g < GROUPS; g++) {
			int r = first + row(g);
			place[g] = m.memory + (r * m.row_stride + k(g) * m.k_stride) * (16 / P::GROUP);
			end[g] = r < rows ? last - k(g) : 0;
			cell[g] = P::at(m.by_k, row(g), k(g));
		}
	}
	INLINE_MEMBER int row(int g) const { return m.by_k ? P::group_row(TID + 256 * g) : (TID + 256 * g) % (P::ROWS / P::GROUP) * P::GROUP; }
	INLINE_MEMBER int k(int g) const { return m.by_k ? P::group_k(TID + 256 * g) : (TID + 256 * g) / (P::ROWS / P::GROUP); }
	INLINE_MEMBER void note(int, int, int) {}
	INLINE_MEMBER void fetch(int k0, int) {
#pragma unroll
		for (int g = 0; g < GROUPS; g++) {
			Words w = {};
			if (k0 < end[g]) w = *(const Words *)(place[g] + k0 * m.k_stride * (16 / P::GROUP));
			words[g] = w;
		}
	}
	INLINE_MEMBER void store(typename P::Cell *to) const {
#pragma unroll
		for (int g = 0; g < GROUPS; g++) P::store(to + cell[g], m.by_k, words[g]);
	}
};

// A spot is what is known of a row, or of a k, of an operand that is read from
// images: the sum of those of a row and of a k says where an element is, and, by
// coordinates that must be from 0 to before a limit, whether it is there. One that
// is outside lies at OUTSIDE, far below 0.
enum { OUTSIDE = -(1 << 30) };

struct Spot {
	i64 offset;
	int at[3];
};

// Other operands O have row(i) and depth(k), which give spots, and bits(row, depth)
// of an element. BY_K says how they lie in a panel, along_k whether threads that are
// neighbours read along k.
template <class P, class O> struct Loader {
	enum { TABLES = true, PER = P::ROWS * P::STEP / 256 };
	struct Table {
		Spot row[P::ROWS], k[2][P::STEP];
	};
	const O &o;
	Table &t;
	int end;
	u32 bits[PER];

	INLINE_MEMBER Loader(const O &o, Table &t, int first, int rows, int end) : o(o), t(t), end(end) {
		for (int i = TID; i < P::ROWS; i += 256) {
			Spot s = o.row(first + i < rows ? first + i : 0);
			if (first + i >= rows) s.at[0] = OUTSIDE;
			t.row[i] = s;
		}
	}
	INLINE_MEMBER int row(int i) const { return o.along_k ? TID / P::STEP + 256 / P::STEP * i : TID % P::ROWS; }
	INLINE_MEMBER int k(int i) const { return o.along_k ? TID % P::STEP : TID / P::ROWS + 256 / P::ROWS * i; }
	// note is for the panel from k0 on, by STEP threads of which thread is one.
	INLINE_MEMBER void note(int k0, int panel, int thread) {
		if (thread < 0 || thread >= P::STEP) return;
		Spot s = o.depth(k0 + thread < end ? k0 + thread : 0);
		if (k0 + thread >= end) s.at[0] = OUTSIDE;
		t.k[panel & 1][thread] = s;
	}
	INLINE_MEMBER void fetch(int, int panel) {
		Spot r = t.row[row(0)], d = t.k[panel & 1][k(0)];
#pragma unroll
		for (int i = 0; i < PER; i++) {
			if (o.along_k) r = t.row[row(i)];
			else d = t.k[panel & 1][k(i)];
			bits[i] = o.bits(r, d);
		}
	}
	INLINE_MEMBER void store(typename P::Cell *to) const {
#pragma unroll
		for (int i = 0; i < PER; i++) to[P::at(O::BY_K, row(i), k(i))] = P::cell(o.type, bits[i]);
	}
};

// Elements of operands without a border are there unless their row or k is not.
INLINE u32 bits_of(const char *at, int type, const Spot &row, const Spot &depth) {
	return row.at[0] + depth.at[0] < 0 ? 0 : bits_at(at, type, row.offset + depth.offset);
}

// A matrix with any strides.
struct Strided {
	enum { BY_K = true };
	const char *memory;
	int type;
	bool along_k;
	i64 row_stride, k_stride;
	INLINE_MEMBER Spot row(int i) const {
		Spot s = {i * row_stride, {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER Spot depth(int k) const {
		Spot s = {k * k_stride, {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER u32 bits(const Spot &row, const Spot &depth) const { return bits_of(memory, type, row, depth); }
};
