// What goes along one dimension. SIZES are those of the result, or of the lines, over
// which operands have strides, but 0 along the dimension: their step there comes besides.
#pragma once

// A thread for each element of y. An index counts from the end below 0.
extern "C" __global__ void __launch_bounds__(256)
gather_along(i64 limit, i64 bytes, SIZES, TENSOR(y), TENSOR(x), i64 x_step, TENSOR(index)) {
	SIZES_OF(s);
	VIEW(y); VIEW(x); VIEW(index);
	i64 n = BLOCK_X * 256 + TID;
	if (n >= s.numel) return;
	Place p = place(s, n);
	i64 i = whole_at(index, offset(index, p, s.rank));
	if (i < 0) i += limit;
	copy_bytes(bytes, y.at, offset(y, p, s.rank), x.at, offset(x, p, s.rank) + i * x_step, i >= 0 && i < limit);
}

// Where the elements of an index are that lie along a line of y, whose element at the
// dimension dim is at p.at[dim]: none beside it, where the index is smaller in others.
struct Line {
	i64 index, src, count, at;
};

INLINE Line line_of(const Place &p, const Sizes &s, const Sizes &smaller, i64 dim, const View &index, const View &src) {
	Line l = {0, 0, 0, 0};
	bool inside = true;
#pragma unroll
	for (int d = 0; d < RANK; d++) {
		if (d >= s.rank) continue;
		if (d == dim) {
			l.count = smaller.n[d];
			l.at = p.at[d];
			continue;
		}
		if (p.at[d] >= smaller.n[d]) inside = false;
		l.index += p.at[d] * index.stride[d];
		l.src += p.at[d] * src.stride[d];
	}
	if (!inside) l.count = 0;
	return l;
}

// A thread for each element of y looks through its line of the index: nothing depends on
// timing. KEPT are the sizes of the index.
extern "C" __global__ void __launch_bounds__(256)
scatter_along(i64 dim, i64 limit, i64 bytes, double value, KEPT, SIZES, TENSOR(y), TENSOR(x), TENSOR(index), i64 index_step, TENSOR(src), i64 src_step) {
	KEPT_OF(smaller); SIZES_OF(s);
	VIEW(y); VIEW(x); VIEW(index); VIEW(src);
	i64 n = BLOCK_X * 256 + TID;
	if (n >= s.numel) return;
	Place p = place(s, n);
	Line l = line_of(p, s, smaller, dim, index, src);
	i64 to = offset(y, p, s.rank), last = -1;
	for (i64 k = 0; k < l.count; k++) {
		i64 i = whole_at(index, l.index + k * index_step);
		if ((i < 0 ? i + limit : i) == l.at) last = k;
	}
	if (last < 0) copy_bytes(bytes, y.at, to, x.at, offset(x, p, s.rank), true);
	else if (src.at) copy_bytes(bytes, y.at, to, src.at, l.src + last * src_step, true);
	else store<double>(y.at, y.type, to, value);
}

extern "C" __global__ void __launch_bounds__(256)
scatter_add_along(i64 dim, i64 limit, KEPT, SIZES, TENSOR(y), TENSOR(x), TENSOR(index), i64 index_step, TENSOR(src), i64 src_step) {
	KEPT_OF(smaller); SIZES_OF(s);
	VIEW(y); VIEW(x); VIEW(index); VIEW(src);
	i64 n = BLOCK_X * 256 + TID;
	if (n >= s.numel) return;
	Place p = place(s, n);
	Line l = line_of(p, s, smaller, dim, index, src);
	float sum = x.at ? get(x, offset(x, p, s.rank)) : 0;
	for (i64 k = 0; k < l.count; k++) {
		i64 i = whole_at(index, l.index + k * index_step);
		if ((i < 0 ? i + limit : i) == l.at) sum += get(src, l.src + k * src_step);
	}
	put(y, offset(y, p, s.rank), sum);
}

// The running sum of a line by one block: of a part of it in each thread, then of what
// the threads before have.
template <class C>
INLINE void running(i64 reverse, i64 n, const View &y, i64 to, i64 y_step, const View &a, i64 from, i64 a_step, C *cells) {
	i64 each = ceil_div(n, 256), first = TID * each, end = first + each < n ? first + each : n;
	C sum = 0;
	for (i64 k = first; k < end; k++) sum += load<C>(a.at, a.type, from + (reverse ? n - 1 - k : k) * a_step);
	cells[TID] = sum;
	SYNC();
	for (int d = 1; d < 256; d <<= 1) {
		C v = TID >= d ? cells[TID - d] : (C)0;
		SYNC();
		cells[TID] += v;
		SYNC();
	}
	sum = TID > 0 ? cells[TID - 1] : (C)0;
	for (i64 k = first; k < end; k++) {
		i64 at = reverse ? n - 1 - k : k;
		sum += load<C>(a.at, a.type, from + at * a_step);
		store<C>(y.at, y.type, to + at * y_step, sum);
	}
}

#define CUMSUM(name, C) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 reverse, i64 n, SIZES, TENSOR(y), i64 y_step, TENSOR(a), i64 a_step) { \
		__shared__ C cells[256]; \
		SIZES_OF(s); \
		VIEW(y); VIEW(a); \
		Place p = place(s, BLOCK_X); \
		running<C>(reverse, n, y, offset(y, p, s.rank), y_step, a, offset(a, p, s.rank), a_step, cells); \
	}
CUMSUM(cumsum_float, float)
CUMSUM(cumsum_int, i64)

// before reports whether a comes before b: a NaN is larger than all others.
template <class C> INLINE bool before(C a, C b, bool descending) {
	if (a != a) return b == b && descending;
	if (b != b) return !descending;
	return descending ? a > b : a < b;
}

// The place of an element in the order of its line is how many come before it. A block has
// 256 elements of a line, and goes over all of it.
template <class C>
INLINE void order(i64 descending, i64 bytes, i64 n, i64 k, const Sizes &s, const View &y, i64 y_step, const View &index, i64 index_step, const View &a, i64 a_step,
                  C *cells) {
	i64 tiles = ceil_div(n, 256), own = BLOCK_X % tiles * 256 + TID;
	Place p = place(s, BLOCK_X / tiles);
	i64 from = offset(a, p, s.rank), rank = 0;
	C mine = own < n ? load<C>(a.at, a.type, from + own * a_step) : (C)0;
	for (i64 k0 = 0; k0 < n; k0 += 256) {
		SYNC();
		cells[TID] = k0 + TID < n ? load<C>(a.at, a.type, from + (k0 + TID) * a_step) : (C)0;
		SYNC();
		i64 end = n - k0 < 256 ? n - k0 : 256;
		for (int x = 0; x < end; x++) {
			C other = cells[x];
			if (before<C>(other, mine, descending != 0) || (k0 + x < own && !before<C>(mine, other, descending != 0))) rank++;
		}
	}
	if (own >= n || rank >= k) return;
	copy_bytes(bytes, y.at, offset(y, p, s.rank) + rank * y_step, a.at, from + own * a_step, true);
	((i64 *)index.at)[offset(index, p, s.rank) + rank * index_step] = own;
}

#define ORDER(name, C) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 descending, i64 bytes, i64 n, i64 k, SIZES, TENSOR(y), i64 y_step, TENSOR(index), i64 index_step, \
		TENSOR(a), i64 a_step) { \
		__shared__ C cells[256]; \
		SIZES_OF(s); \
		VIEW(y); VIEW(index); VIEW(a); \
		order<C>(descending, bytes, n, k, s, y, y_step, index, index_step, a, a_step, cells); \
	}
ORDER(sort_float, float)
ORDER(sort_int, i64)

// Which of two elements is the extreme one of a line: a NaN is, and the first of equals.
template <class C> INLINE bool beats(C a, i64 i, C b, i64 j, bool largest) {
	if (j < 0) return i >= 0;
	if (i < 0) return false;
	if (a != a || b != b) return a != a && (b == b || i < j);
	if (a == b) return i < j;
	return largest ? a > b : a < b;
}

template <class C>
INLINE void extreme_of(i64 largest, i64 bytes, i64 n, const Sizes &s, const View &y, const View &index, const View &a, i64 a_step, C *cells, i64 *places) {
	Place p = place(s, BLOCK_X);
	i64 from = offset(a, p, s.rank), best = -1;
	C v = 0;
	for (i64 i = TID; i < n; i += 256) {
		C x = load<C>(a.at, a.type, from + i * a_step);
		if (beats<C>(x, i, v, best, largest != 0)) { v = x; best = i; }
	}
	cells[TID] = v;
	places[TID] = best;
	SYNC();
	for (int k = 128; k > 0; k >>= 1) {
		if (TID < k && beats<C>(cells[TID + k], places[TID + k], cells[TID], places[TID], largest != 0)) {
			cells[TID] = cells[TID + k];
			places[TID] = places[TID + k];
		}
		SYNC();
	}
	if (TID) return;
	if (y.at) copy_bytes(bytes, y.at, offset(y, p, s.rank), a.at, from + places[0] * a_step, true);
	((i64 *)index.at)[offset(index, p, s.rank)] = places[0];
}

#define EXTREME(name, C) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 largest, i64 bytes, i64 n, SIZES, TENSOR(y), TENSOR(index), TENSOR(a), i64 a_step) { \
		__shared__ C cells[256]; \
		__shared__ i64 places[256]; \
		SIZES_OF(s); \
		VIEW(y); VIEW(index); VIEW(a); \
		extreme_of<C>(largest, bytes, n, s, y, index, a, a_step, cells, places); \
	}
EXTREME(extreme_float, float)
EXTREME(extreme_int, i64)

// A block for each part counts what is in it.
extern "C" __global__ void __launch_bounds__(256) histogram(i64 bins, double low, double high, i64 n, TENSOR(y), TENSOR(a)) {
	__shared__ i64 cells[256];
	VIEW(y); VIEW(a);
	i64 count = 0;
	for (i64 i = TID; i < n; i += 256) {
		double v = load<double>(a.at, a.type, i * a.stride[0]);
		if (!(v >= low && v <= high)) continue;
		i64 bin = (i64)((v - low) / (high - low) * (double)bins);
		if ((bin < bins ? bin : bins - 1) == BLOCK_X) count++;
	}
	count = reduce<Plus, 256>(count, cells);
	if (TID == 0) store<i64>(y.at, y.type, BLOCK_X * y.stride[0], count);
}
