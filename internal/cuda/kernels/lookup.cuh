// Tables and losses that look up by an index.
#pragma once

INLINE i64 whole_at(const View &v, i64 i) { return ((const i64 *)v.at)[i]; }

// y [m, n, d], index [m, n]. An index outside of the table gives NaN.
extern "C" __global__ void __launch_bounds__(256) embedding(i64 rows, SIZES, TENSOR(y), TENSOR(weight), TENSOR(index)) {
	SIZES_OF(s);
	VIEW(y); VIEW(weight); VIEW(index);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 row = whole_at(index, p.at[2] * index.stride[1] + p.at[1] * index.stride[0]);
	float v = row < 0 || row >= rows ? nan_value() : get(weight, row * weight.stride[1] + p.at[0] * weight.stride[0]);
	put(y, offset(y, p, 3), v);
}

// Lines are added to a row of a table: those that are its own (of), which begin at
// start, each multiplied by its factor.

struct Rows { // of g [m, n, d], by index [m, n]
	const View &g, &index;
	u32 per; // n
	INLINE_MEMBER bool of(i64 row, u32 l) const { return whole_at(index, l / per * index.stride[1] + l % per * index.stride[0]) == row; }
	INLINE_MEMBER i64 start(u32 l) const { return l / per * g.stride[2] + l % per * g.stride[1]; }
	INLINE_MEMBER float factor(i64) const { return 1.0f; }
};

struct FromEnd { // of an image of g, by an index that counts from the end below 0
	const View &g, &index;
	i64 rows, image;
	INLINE_MEMBER bool of(i64 row, i64 l) const {
		i64 at = whole_at(index, l * index.stride[0]);
		return (at < 0 ? at + rows : at) == row;
	}
	INLINE_MEMBER i64 start(i64 l) const { return image + l * g.stride[1]; }
	INLINE_MEMBER float factor(i64) const { return 1.0f; }
};

struct Bags { // of g [b, d], by the bag of each
	const View &g, &index, &bag, &count, &scale;
	bool mean;
	INLINE_MEMBER bool of(i64 row, i64 l) const { return whole_at(index, l * index.stride[0]) == row; }
	INLINE_MEMBER i64 start(i64 l) const { return whole_at(bag, l * bag.stride[0]) * g.stride[1]; }
	INLINE_MEMBER float factor(i64 l) const {
		float f = scale.at ? get(scale, l * scale.stride[0]) : 1.0f;
		return mean ? f / (float)whole_at(count, whole_at(bag, l * bag.stride[0]) * count.stride[0]) : f;
	}
};

struct Pairs { // of g [n, d], by two indices of a matrix of rows
	const View &g, &first, &second;
	i64 rows, cols;
	INLINE_MEMBER bool of(i64 row, i64 l) const {
		i64 i = whole_at(first, l * first.stride[0]), j = whole_at(second, l * second.stride[0]);
		return (i < 0 ? i + rows : i) * cols + (j < 0 ? j + cols : j) == row;
	}
	INLINE_MEMBER i64 start(i64 l) const { return l * g.stride[1]; }
	INLINE_MEMBER float factor(i64) const { return 1.0f; }
};

// A block looks through all lines, 256 at a time, and adds those of its row in
// their order: sums never depend on timing. Without any, zeros are written.
template <class L>
INLINE void add_lines(const L &lines, i64 row, i64 n, i64 cols, const View &to, i64 base, unsigned char *own, int *found) {
	for (i64 c0 = 0; c0 < cols; c0 += 1024) {
		float sum[4] = {};
		if (TID < 2) found[TID] = 0;
		SYNC();
		int turn = 0;
		for (i64 l0 = 0; l0 < n; l0 += 256, turn ^= 1) {
			bool mine = l0 + TID < n && lines.of(row, (u32)(l0 + TID));
			own[TID] = mine;
			if (mine) found[turn] = 1; // all write the same
			SYNC();
			bool any = found[turn] != 0;
			if (TID == 0) found[turn ^ 1] = 0;
			for (int l = 0; any && l < 256; l++)
				if (own[l]) {
					i64 start = lines.start((u32)(l0 + l));
					float by = lines.factor(l0 + l);
#pragma unroll
					for (int x = 0; x < 4; x++) {
						i64 c = c0 + TID + 256 * x;
						if (c < cols) sum[x] += by * get(lines.g, start + c * lines.g.stride[0]);
					}
				}
			SYNC();
		}
#pragma unroll
		for (int x = 0; x < 4; x++) {
			i64 c = c0 + TID + 256 * x;
			if (c < cols) put(to, base + c * to.stride[0], sum[x]);
		}
	}
}

// One block for each row of the table.
extern "C" __global__ void __launch_bounds__(256) embedding_grad(i64 padding, i64 n, i64 per, i64 cols, TENSOR(gweight), TENSOR(g), TENSOR(index)) {
	__shared__ unsigned char own[256];
	__shared__ int found[2];
	VIEW(gweight); VIEW(g); VIEW(index);
	i64 row = BLOCK_X;
	Rows lines = {g, index, (u32)per};
	add_lines(lines, row, row == padding ? 0 : n, cols, gweight, row * gweight.stride[1], own, found);
}

extern "C" __global__ void __launch_bounds__(256)
embedding_bag_grad(i64 mean, i64 padding, i64 n, i64 cols, TENSOR(gweight), TENSOR(g), TENSOR(index), TENSOR(bag), TENSOR(count), TENSOR(scale)) {
	__shared__ unsigned char own[256];
	__shared__ int found[2];
	VIEW(gweight); VIEW(g); VIEW(index); VIEW(bag); VIEW(count); VIEW(scale);
	i64 row = BLOCK_X;
	Bags lines = {g, index, bag, count, scale, mean != 0};
	add_lines(lines, row, row == padding ? 0 : n, cols, gweight, row * gweight.stride[1], own, found);
}

// gx [o, v, d], g [o, n, d]: one block for each row of each image.
extern "C" __global__ void __launch_bounds__(256) index_grad(i64 rows, i64 n, i64 cols, TENSOR(gx), TENSOR(g), TENSOR(index)) {
	__shared__ unsigned char own[256];
	__shared__ int found[2];
	VIEW(gx); VIEW(g); VIEW(index);
	i64 image = (u32)BLOCK_X / (u32)rows, row = (u32)BLOCK_X % (u32)rows;
	FromEnd lines = {g, index, rows, image * g.stride[2]};
	add_lines(lines, row, n, cols, gx, image * gx.stride[2] + row * gx.stride[1], own, found);
}

// gx [u, v, d], g [n, d]: one block for each row.
extern "C" __global__ void __launch_bounds__(256)
index_pairs_grad(i64 u, i64 v, i64 n, i64 cols, TENSOR(gx), TENSOR(g), TENSOR(first), TENSOR(second)) {
	__shared__ unsigned char own[256];
	__shared__ int found[2];
	VIEW(gx); VIEW(g); VIEW(first); VIEW(second);
	i64 row = BLOCK_X;
	Pairs lines = {g, first, second, u, v};
	add_lines(lines, row, n, cols, gx, row / v * gx.stride[2] + row % v * gx.stride[1], own, found);
}

template <class T> INLINE void copy_element(char *y, i64 to, const char *x, i64 from, bool inside) {
	((T *)y)[to] = inside ? ((const T *)x)[from] : (T)-1;
}

INLINE void copy_bytes(i64 bytes, char *y, i64 to, const char *x, i64 from, bool inside) {
	switch (bytes) {
	case 1: copy_element<char>(y, to, x, from, inside); return;
	case 2: copy_element<short>(y, to, x, from, inside); return;
	case 4: copy_element<int>(y, to, x, from, inside); return;
	case 8: copy_element<i64>(y, to, x, from, inside); return;
	}
}

// y [o, n, d] of x [o, rows, d]: elements of so many bytes, as they are.
extern "C" __global__ void __launch_bounds__(256) index_rows(i64 rows, i64 bytes, SIZES, TENSOR(y), TENSOR(x), TENSOR(index)) {
	SIZES_OF(s);
	VIEW(y); VIEW(x); VIEW(index);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 to = offset(y, p, 3), row = whole_at(index, p.at[1] * index.stride[0]);
	if (row < 0) row += rows;
	bool inside = row >= 0 && row < rows;
	p.at[1] = row;
	i64 from = offset(x, p, 3);
	copy_bytes(bytes, y.at, to, x.at, from, inside);
}

// y [n, d] of x [u, v, d].
extern "C" __global__ void __launch_bounds__(256)
index_pairs(i64 u, i64 v, i64 bytes, SIZES, TENSOR(y), TENSOR(x), TENSOR(first), TENSOR(second)) {
	SIZES_OF(s);
	VIEW(y); VIEW(x); VIEW(first); VIEW(second);
	i64 n = BLOCK_X * 256 + TID;
	if (n >= s.numel) return;
	Place p = place(s, n);
	i64 i = whole_at(first, p.at[1] * first.stride[0]), j = whole_at(second, p.at[1] * second.stride[0]);
	if (i < 0) i += u;
	if (j < 0) j += v;
	copy_bytes(bytes, y.at, offset(y, p, 2), x.at, i * x.stride[2] + j * x.stride[1] + p.at[0] * x.stride[0], i >= 0 && i < u && j >= 0 && j < v);
}

// y [b, d]: a thread for each element goes through its bag; those of the first column
// write what is known of it.
extern "C" __global__ void __launch_bounds__(256)
embedding_bag(i64 mean, i64 padding, i64 rows, i64 n, SIZES, TENSOR(y), TENSOR(bag), TENSOR(count), TENSOR(weight), TENSOR(index), TENSOR(offsets), TENSOR(scale)) {
	SIZES_OF(s);
	VIEW(y); VIEW(bag); VIEW(count); VIEW(weight); VIEW(index); VIEW(offsets); VIEW(scale);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 k = p.at[1], col = p.at[0], from = whole_at(offsets, k * offsets.stride[0]), to = n, counted = 0;
	if (k + 1 < s.n[1]) to = whole_at(offsets, (k + 1) * offsets.stride[0]);
	float sum = from < 0 || to > n ? nan_value() : 0;
	if (from < 0) from = 0;
	if (to > n) to = n;
	for (i64 l = from; l < to; l++) {
		i64 row = whole_at(index, l * index.stride[0]);
		bool counts = row != padding;
		if (col == 0) ((i64 *)bag.at)[l * bag.stride[0]] = counts ? k : 0;
		if (!counts) continue;
		counted++;
		float v = row < 0 || row >= rows ? nan_value() : get(weight, row * weight.stride[1] + col * weight.stride[0]);
		sum += scale.at ? v * get(scale, l * scale.stride[0]) : v;
	}
	if (col == 0) ((i64 *)count.at)[k * count.stride[0]] = counted;
	put(y, offset(y, p, 2), mean && counted ? sum / (float)counted : sum);
}

INLINE float class_weight(const View &weight, i64 c) { return weight.at ? get(weight, c * weight.stride[0]) : 1.0f; }

// The loss of one target: 0 if it is ignored, NaN if there is no such class.
INLINE float loss_of(const View &x, const View &weight, i64 t, i64 ignore, i64 classes, i64 base, float *w) {
	*w = 0;
	if (t == ignore) return 0;
	if (t < 0 || t >= classes) return *w = nan_value();
	*w = class_weight(weight, t);
	return -*w * get(x, base + t * x.stride[1]);
}

// x [N, C, S], target [N, S]. mode is ReduceNone, ReduceMean or ReduceSum. One
// block, so that the sum has one order.
extern "C" __global__ void __launch_bounds__(256)
nll_loss(i64 mode, i64 ignore, i64 batch, i64 classes, i64 pixels, TENSOR(y), TENSOR(total), TENSOR(x), TENSOR(target), TENSOR(weight)) {
	__shared__ float cells[256];
	VIEW(y); VIEW(total); VIEW(x); VIEW(target); VIEW(weight);
	float sum = 0, all = 0;
	for (i64 i = TID; i < batch * pixels; i += 256) {
		i64 n = i / pixels, s = i % pixels;
		float w, l = loss_of(x, weight, whole_at(target, n * target.stride[1] + s * target.stride[0]), ignore, classes, n * x.stride[2] + s * x.stride[0], &w);
		if (mode == 0) put(y, n * y.stride[1] + s * y.stride[0], l);
		sum += l;
		all += w;
	}
	sum = reduce<Plus, 256>(sum, cells);
	all = reduce<Plus, 256>(all, cells);
	if (TID) return;
	put(total, 0, all);
	if (mode != 0) put(y, 0, mode == 1 ? sum / all : sum);
}

extern "C" __global__ void __launch_bounds__(256)
nll_loss_grad(i64 mode, i64 ignore, i64 batch, i64 classes, i64 pixels, TENSOR(gx), TENSOR(g), TENSOR(target), TENSOR(weight), TENSOR(total)) {
	VIEW(gx); VIEW(g); VIEW(target); VIEW(weight); VIEW(total);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= batch * classes * pixels) return;
	i64 s = i % pixels, c = i / pixels % classes, n = i / pixels / classes;
	i64 t = whole_at(target, n * target.stride[1] + s * target.stride[0]);
	float v = 0;
	if (t == c && t != ignore) {
		v = -class_weight(weight, c) * get(g, mode == 0 ? n * g.stride[1] + s * g.stride[0] : 0);
		if (mode == 1) v /= get(total, 0);
	}
	put(gx, n * gx.stride[2] + c * gx.stride[1] + s * gx.stride[0], v);
}
