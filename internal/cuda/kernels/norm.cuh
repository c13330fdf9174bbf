// Normalizations. The mean comes first and the variance in a second look at the
// data: no cancellation.
#pragma once

// Layer and RMS norm: one block for each row, as in softmax. centred: with a mean.
extern "C" __global__ void __launch_bounds__(256, 4)
row_norm(i64 centred, i64 n, float eps, SIZES, TENSOR(y), i64 y_inner, TENSOR(mean), TENSOR(rstd), TENSOR(x), i64 x_inner, TENSOR(weight), TENSOR(bias)) {
	__shared__ float cells[256];
	SIZES_OF(s);
	VIEW(y); VIEW(mean); VIEW(rstd); VIEW(x); VIEW(weight); VIEW(bias);
	Place at = place(s, BLOCK_X);
	i64 to = offset(y, at, s.rank), from = offset(x, at, s.rank);
	float m = 0, v = 0;
	if (centred) {
		for (i64 i = TID; i < n; i += 256) m += get(x, from + i * x_inner);
		m = reduce<Plus, 256>(m, cells) / (float)n;
	}
	for (i64 i = TID; i < n; i += 256) {
		float d = get(x, from + i * x_inner) - m;
		v = fused(d, d, v);
	}
	v = 1.0f / square_root(reduce<Plus, 256>(v, cells) / (float)n + eps);
	for (i64 i = TID; i < n; i += 256) {
		float r = (get(x, from + i * x_inner) - m) * v;
		if (weight.at) r *= get(weight, i * weight.stride[0]);
		if (bias.at) r += get(bias, i * bias.stride[0]);
		put(y, to + i * y_inner, r);
	}
	if (TID) return;
	if (centred) put(mean, offset(mean, at, s.rank), m);
	put(rstd, offset(rstd, at, s.rank), v);
}

extern "C" __global__ void __launch_bounds__(256)
row_norm_grad(i64 centred, i64 n, SIZES, TENSOR(gx), i64 gx_inner, TENSOR(g), i64 g_inner, TENSOR(x), i64 x_inner, TENSOR(mean), TENSOR(rstd), TENSOR(weight)) {
	__shared__ float cells[256];
	SIZES_OF(s);
	VIEW(gx); VIEW(g); VIEW(x); VIEW(mean); VIEW(rstd); VIEW(weight);
	Place at = place(s, BLOCK_X);
	i64 to = offset(gx, at, s.rank), og = offset(g, at, s.rank), ox = offset(x, at, s.rank);
	float m = centred ? get(mean, offset(mean, at, s.rank)) : 0, v = get(rstd, offset(rstd, at, s.rank)), sum = 0, dot = 0;
	for (i64 i = TID; i < n; i += 256) {
		float d = get(g, og + i * g_inner);
		if (weight.at) d *= get(weight, i * weight.stride[0]);
		sum += d;
		dot = fused(d, (get(x, ox + i * x_inner) - m) * v, dot);
	}
	sum = centred ? reduce<Plus, 256>(sum, cells) / (float)n : 0;
	dot = reduce<Plus, 256>(dot, cells) / (float)n;
	for (i64 i = TID; i < n; i += 256) {
		float d = get(g, og + i * g_inner);
		if (weight.at) d *= get(weight, i * weight.stride[0]);
		put(gx, to + i * gx_inner, v * (d - sum - (get(x, ox + i * x_inner) - m) * v * dot));
	}
}

// The gradients of weight and bias: 32 columns for each block, by 8 threads each,
// over a part of the rows; the parts meet in scratch.
extern "C" __global__ void __launch_bounds__(256)
row_norm_params(i64 centred, i64 n, i64 parts, i64 each, SIZES, TENSOR(g), i64 g_inner, TENSOR(x), i64 x_inner, TENSOR(mean), TENSOR(rstd)) {
	__shared__ float weights[256];
	__shared__ float biases[256];
	SIZES_OF(s);
	VIEW(g); VIEW(x); VIEW(mean); VIEW(rstd);
	i64 col = BLOCK_X * 32 + TID % 32, part = BLOCK_Y, end = (part + 1) * each;
	if (end > s.numel) end = s.numel;
	float w = 0, b = 0;
	for (i64 r = part * each + TID / 32; col < n && r < end; r += 8) {
		Place at = place(s, r);
		float d = get(g, offset(g, at, s.rank) + col * g_inner), m = centred ? get(mean, offset(mean, at, s.rank)) : 0;
		w = fused(d, (get(x, offset(x, at, s.rank) + col * x_inner) - m) * get(rstd, offset(rstd, at, s.rank)), w);
		b += d;
	}
	weights[TID] = w;
	biases[TID] = b;
	SYNC();
	if (TID >= 32 || col >= n) return;
	for (int k = 1; k < 8; k++) {
		w += weights[TID + 32 * k];
		b += biases[TID + 32 * k];
	}
	scratch[part * n + col] = w;
	scratch[(parts + part) * n + col] = b;
}

extern "C" __global__ void __launch_bounds__(256) row_norm_finish(i64 n, i64 parts, TENSOR(gweight), TENSOR(gbias)) {
	VIEW(gweight); VIEW(gbias);
	i64 col = BLOCK_X * 256 + TID;
	if (col >= n) return;
	float w = 0, b = 0;
	for (i64 p = 0; p < parts; p++) {
		w += scratch[p * n + col];
		b += scratch[(parts + p) * n + col];
	}
	if (gweight.at) put(gweight, col * gweight.stride[0], w);
	if (gbias.at) put(gbias, col * gbias.stride[0], b);
}

// Batch and group norm see x as [A, B, C, S]: statistics are of each (A, B), over
// the C*S elements. Batch norm is A = 1, B = the channels, C = the batch; group
// norm is A = the batch, B = the groups, C = the channels of a group. weight and
// bias have strides over B and C (0 over C for batch norm). Strides are, from the
// innermost, of S, C, B and A.
struct Group {
	i64 a, b;
};

INLINE Group group_of(i64 block, i64 bs) { Group g = {block / bs, block % bs}; return g; }
INLINE i64 group_base(const View &v, Group g) { return g.a * v.stride[3] + g.b * v.stride[2]; }
INLINE i64 within(const View &v, i64 i, i64 pixels) {
	if ((i | pixels) < 1ll << 31) return (u32)i / (u32)pixels * v.stride[1] + (u32)i % (u32)pixels * v.stride[0];
	return i / pixels * v.stride[1] + i % pixels * v.stride[0];
}

// training: the statistics are computed, else they are the running ones. unbiased
// is n/(n-1), for the running variance.
extern "C" __global__ void __launch_bounds__(256)
group_norm(i64 training, i64 bs, i64 cs, i64 pixels, float eps, float momentum, float unbiased, TENSOR(y), TENSOR(mean), TENSOR(rstd), TENSOR(x), TENSOR(weight),
           TENSOR(bias), TENSOR(running_mean), TENSOR(running_var)) {
	__shared__ float cells[256];
	VIEW(y); VIEW(mean); VIEW(rstd); VIEW(x); VIEW(weight); VIEW(bias); VIEW(running_mean); VIEW(running_var);
	Group at = group_of(BLOCK_X, bs);
	i64 to = group_base(y, at), from = group_base(x, at), n = cs * pixels;
	float m = 0, v = 0, r;
	if (training) {
		for (i64 i = TID; i < n; i += 256) m += get(x, from + within(x, i, pixels));
		m = reduce<Plus, 256>(m, cells) / (float)n;
		for (i64 i = TID; i < n; i += 256) {
			float d = get(x, from + within(x, i, pixels)) - m;
			v = fused(d, d, v);
		}
		v = reduce<Plus, 256>(v, cells) / (float)n;
		if (TID == 0 && running_mean.at) {
			i64 o = at.b * running_mean.stride[0];
			put(running_mean, o, fused(momentum, m, (1.0f - momentum) * get(running_mean, o)));
		}
		if (TID == 0 && running_var.at) {
			i64 o = at.b * running_var.stride[0];
			put(running_var, o, fused(momentum, v * unbiased, (1.0f - momentum) * get(running_var, o)));
		}
	} else {
		m = get(running_mean, at.b * running_mean.stride[0]);
		v = get(running_var, at.b * running_var.stride[0]);
	}
	r = 1.0f / square_root(v + eps);
	for (i64 i = TID; i < n; i += 256) {
		float d = (get(x, from + within(x, i, pixels)) - m) * r;
		i64 c = i / pixels;
		if (weight.at) d *= get(weight, at.b * weight.stride[1] + c * weight.stride[0]);
		if (bias.at) d += get(bias, at.b * bias.stride[1] + c * bias.stride[0]);
		put(y, to + within(y, i, pixels), d);
	}
	if (TID) return;
	if (mean.at) put(mean, at.a * mean.stride[1] + at.b * mean.stride[0], m);
	if (rstd.at) put(rstd, at.a * rstd.stride[1] + at.b * rstd.stride[0], r);
}

// own: the statistics depend on x.
extern "C" __global__ void __launch_bounds__(256)
group_norm_grad(i64 own, i64 bs, i64 cs, i64 pixels, TENSOR(gx), TENSOR(g), TENSOR(x), TENSOR(mean), TENSOR(rstd), TENSOR(weight)) {
	__shared__ float cells[256];
	VIEW(gx); VIEW(g); VIEW(x); VIEW(mean); VIEW(rstd); VIEW(weight);
	Group at = group_of(BLOCK_X, bs);
	i64 to = group_base(gx, at), og = group_base(g, at), ox = group_base(x, at), n = cs * pixels;
	i64 stat = at.a * mean.stride[1] + at.b * mean.stride[0];
	float m = get(mean, stat), r = get(rstd, at.a * rstd.stride[1] + at.b * rstd.stride[0]), sum = 0, dot = 0;
	if (own) {
		for (i64 i = TID; i < n; i += 256) {
			float d = get(g, og + within(g, i, pixels));
			if (weight.at) d *= get(weight, at.b * weight.stride[1] + i / pixels * weight.stride[0]);
			sum += d;
			dot = fused(d, (get(x, ox + within(x, i, pixels)) - m) * r, dot);
		}
		sum = reduce<Plus, 256>(sum, cells) / (float)n;
		dot = reduce<Plus, 256>(dot, cells) / (float)n;
	}
	for (i64 i = TID; i < n; i += 256) {
		float d = get(g, og + within(g, i, pixels));
		if (weight.at) d *= get(weight, at.b * weight.stride[1] + i / pixels * weight.stride[0]);
		put(gx, to + within(gx, i, pixels), r * (d - sum - (get(x, ox + within(x, i, pixels)) - m) * r * dot));
	}
}

// The gradients of weight and bias: one block for each element of them, which is
// summed over pieces of `pixels`: those of dimension A or,
// for batch norm, of C.
extern "C" __global__ void __launch_bounds__(256)
group_norm_params(i64 bs, i64 cs, i64 as, i64 pixels, i64 channels, TENSOR(gweight), TENSOR(gbias), TENSOR(g), TENSOR(x), TENSOR(mean), TENSOR(rstd)) {
	__shared__ float cells[256];
	VIEW(gweight); VIEW(gbias); VIEW(g); VIEW(x); VIEW(mean); VIEW(rstd);
	// channels: weights are of (B, C), the sum over A; else of B, the sum over C.
	i64 b = channels ? BLOCK_X / cs : BLOCK_X, c = channels ? BLOCK_X % cs : 0, pieces = channels ? as : cs;
	float w = 0, sum = 0;
	for (i64 i = TID; i < pieces * pixels; i += 256) {
		i64 piece = i / pixels, s = i % pixels, a = channels ? piece : 0, k = channels ? c : piece;
		float d = get(g, a * g.stride[3] + b * g.stride[2] + k * g.stride[1] + s * g.stride[0]);
		float v = get(x, a * x.stride[3] + b * x.stride[2] + k * x.stride[1] + s * x.stride[0]);
		w = fused(d, (v - get(mean, a * mean.stride[1] + b * mean.stride[0])) * get(rstd, a * rstd.stride[1] + b * rstd.stride[0]), w);
		sum += d;
	}
	w = reduce<Plus, 256>(w, cells);
	sum = reduce<Plus, 256>(sum, cells);
	if (TID) return;
	if (gweight.at) put(gweight, b * gweight.stride[1] + c * gweight.stride[0], w);
	if (gbias.at) put(gbias, b * gbias.stride[1] + c * gbias.stride[0], sum);
}
