// Tables and losses that look up by an index.
#pragma once

INLINE i64 whole_at(const View &v, i64 i) { return ((const i64 *)v.at)[i]; }

// y [n, d]; rows of y lie in the outer dimension. An index outside of the table
// gives NaN.
extern "C" __global__ void __launch_bounds__(256) embedding(i64 rows, SIZES, TENSOR(y), TENSOR(weight), TENSOR(index)) {
	SIZES_OF(s);
	VIEW(y); VIEW(weight); VIEW(index);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	i64 col = i % s.n[0], line = i / s.n[0], row = whole_at(index, line * index.stride[0]);
	float v = row < 0 || row >= rows ? nan_value() : get(weight, row * weight.stride[1] + col * weight.stride[0]);
	put(y, line * y.stride[1] + col * y.stride[0], v);
}

// One block for each row of the table looks through all indices, 256 at a time,
// and adds the lines that are its own in their order: sums never depend on timing.
extern "C" __global__ void __launch_bounds__(256) embedding_grad(i64 padding, i64 lines, i64 cols, TENSOR(gweight), TENSOR(g), TENSOR(index)) {
	__shared__ unsigned char own[256];
	__shared__ int found[2];
	VIEW(gweight); VIEW(g); VIEW(index);
	i64 row = BLOCK_X;
	for (i64 c0 = 0; c0 < cols; c0 += 1024) {
		float sum[4] = {};
		if (TID < 2) found[TID] = 0;
		SYNC();
		int turn = 0;
		for (i64 l0 = 0; row != padding && l0 < lines; l0 += 256, turn ^= 1) {
			bool mine = l0 + TID < lines && whole_at(index, (l0 + TID) * index.stride[0]) == row;
			own[TID] = mine;
			if (mine) found[turn] = 1; // all write the same
			SYNC();
			bool any = found[turn] != 0;
			if (TID == 0) found[turn ^ 1] = 0;
			for (int l = 0; any && l < 256; l++)
				if (own[l])
#pragma unroll
					for (int x = 0; x < 4; x++) {
						i64 c = c0 + TID + 256 * x;
						if (c < cols) sum[x] += get(g, (l0 + l) * g.stride[1] + c * g.stride[0]);
					}
			SYNC();
		}
#pragma unroll
		for (int x = 0; x < 4; x++) {
			i64 c = c0 + TID + 256 * x;
			if (c < cols) put(gweight, row * gweight.stride[1] + c * gweight.stride[0], sum[x]);
		}
	}
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
