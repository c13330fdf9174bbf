// Pooling over images [N, C, D, H, W]: a thread for each element that is written,
// so that gradients are gathered, never added from two sides. SIZES are of what is
// written; strides are, from the innermost, of w, h, d, channel and batch.
#pragma once

#define WINDOW TRIPLE(in), TRIPLE(out), TRIPLE(kernel), TRIPLE(stride), TRIPLE(padding), TRIPLE(dilation)
#define WINDOW_OF(g) Geometry g = {SPACE(in), SPACE(out), SPACE(kernel), SPACE(stride), SPACE(padding), SPACE(dilation), 0, 0, 0, 0}

INLINE i64 plane(const View &v, const Place &p) { return p.at[3] * v.stride[3] + p.at[4] * v.stride[4]; }

// Span is a range of indices.
struct Span {
	int from, to;
};

// windows is which windows reach place i of a dimension, before dilation is
// looked at.
INLINE Span windows(const Geometry &g, int d, int i) {
	int reach = (g.kernel.n[d] - 1) * g.dilation.n[d], low = i + g.padding.n[d] - reach;
	Span s = {low <= 0 ? 0 : (low + g.stride.n[d] - 1) / g.stride.n[d], (i + g.padding.n[d]) / g.stride.n[d] + 1};
	if (s.to > g.out.n[d]) s.to = g.out.n[d];
	return s;
}

extern "C" __global__ void __launch_bounds__(256) max_pool(WINDOW, SIZES, TENSOR(y), TENSOR(index), TENSOR(x)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(y); VIEW(index); VIEW(x);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 base = plane(x, p), best = -1;
	float most = -infinity();
	for (int kd = 0; kd < g.kernel.n[2]; kd++) {
		int d = (int)p.at[2] * g.stride.n[2] - g.padding.n[2] + kd * g.dilation.n[2];
		if (d < 0 || d >= g.in.n[2]) continue;
		for (int kh = 0; kh < g.kernel.n[1]; kh++) {
			int h = (int)p.at[1] * g.stride.n[1] - g.padding.n[1] + kh * g.dilation.n[1];
			if (h < 0 || h >= g.in.n[1]) continue;
			for (int kw = 0; kw < g.kernel.n[0]; kw++) {
				int w = (int)p.at[0] * g.stride.n[0] - g.padding.n[0] + kw * g.dilation.n[0];
				if (w < 0 || w >= g.in.n[0]) continue;
				float v = get(x, base + d * x.stride[2] + h * x.stride[1] + w * x.stride[0]);
				if (best < 0 || v > most || (v != v && most == most)) {
					most = v;
					best = ((i64)d * g.in.n[1] + h) * g.in.n[0] + w;
				}
			}
		}
	}
	put(y, offset(y, p, 5), most);
	((i64 *)index.at)[offset(index, p, 5)] = best;
}

extern "C" __global__ void __launch_bounds__(256) max_pool_grad(WINDOW, SIZES, TENSOR(gx), TENSOR(gy), TENSOR(index)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(gx); VIEW(gy); VIEW(index);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 self = (p.at[2] * g.in.n[1] + p.at[1]) * g.in.n[0] + p.at[0], base = plane(gy, p), where = plane(index, p);
	Span d = windows(g, 2, (int)p.at[2]), h = windows(g, 1, (int)p.at[1]), w = windows(g, 0, (int)p.at[0]);
	float sum = 0;
	for (int od = d.from; od < d.to; od++)
		for (int oh = h.from; oh < h.to; oh++)
			for (int ow = w.from; ow < w.to; ow++)
				if (((const i64 *)index.at)[where + od * index.stride[2] + oh * index.stride[1] + ow * index.stride[0]] == self)
					sum += get(gy, base + od * gy.stride[2] + oh * gy.stride[1] + ow * gy.stride[0]);
	put(gx, offset(gx, p, 5), sum);
}

// inside is the part of window o that lies in the image; with_pad counts the part
// that lies in the padded image.
INLINE Span inside(const Geometry &g, int d, int o) {
	Span s = {o * g.stride.n[d] - g.padding.n[d], 0};
	s.to = s.from + g.kernel.n[d];
	if (s.from < 0) s.from = 0;
	if (s.to > g.in.n[d]) s.to = g.in.n[d];
	return s;
}
INLINE int with_pad(const Geometry &g, int d, int o) {
	int from = o * g.stride.n[d] - g.padding.n[d], to = from + g.kernel.n[d], end = g.in.n[d] + g.padding.n[d];
	return (to < end ? to : end) - from;
}

INLINE float divisor_of(const Geometry &g, int d, int h, int w, i64 include_pad, i64 divisor) {
	if (divisor) return (float)divisor;
	if (include_pad) return (float)((i64)with_pad(g, 2, d) * with_pad(g, 1, h) * with_pad(g, 0, w));
	Span sd = inside(g, 2, d), sh = inside(g, 1, h), sw = inside(g, 0, w);
	return (float)((i64)(sd.to - sd.from) * (sh.to - sh.from) * (sw.to - sw.from));
}

INLINE float window_sum(const View &x, i64 base, Span d, Span h, Span w) {
	float sum = 0;
	for (int a = d.from; a < d.to; a++)
		for (int b = h.from; b < h.to; b++)
			for (int c = w.from; c < w.to; c++) sum += get(x, base + a * x.stride[2] + b * x.stride[1] + c * x.stride[0]);
	return sum;
}

extern "C" __global__ void __launch_bounds__(256) avg_pool(i64 include_pad, i64 divisor, WINDOW, SIZES, TENSOR(y), TENSOR(x)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(y); VIEW(x);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	int d = (int)p.at[2], h = (int)p.at[1], w = (int)p.at[0];
	put(y, offset(y, p, 5), window_sum(x, plane(x, p), inside(g, 2, d), inside(g, 1, h), inside(g, 0, w)) / divisor_of(g, d, h, w, include_pad, divisor));
}

extern "C" __global__ void __launch_bounds__(256) avg_pool_grad(i64 include_pad, i64 divisor, WINDOW, SIZES, TENSOR(gx), TENSOR(gy)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(gx); VIEW(gy);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 base = plane(gy, p);
	Span d = windows(g, 2, (int)p.at[2]), h = windows(g, 1, (int)p.at[1]), w = windows(g, 0, (int)p.at[0]);
	float sum = 0;
	for (int a = d.from; a < d.to; a++)
		for (int b = h.from; b < h.to; b++)
			for (int c = w.from; c < w.to; c++)
				sum += get(gy, base + a * gy.stride[2] + b * gy.stride[1] + c * gy.stride[0]) / divisor_of(g, a, b, c, include_pad, divisor);
	put(gx, offset(gx, p, 5), sum);
}

// Adaptive pooling: window o of outs over ins.
INLINE Span adaptive(int o, int ins, int outs) {
	Span s = {(int)((i64)o * ins / outs), (int)(((i64)(o + 1) * ins + outs - 1) / outs)};
	return s;
}
// adaptive_windows is a range that has all windows that reach place i.
INLINE Span adaptive_windows(int i, int ins, int outs) {
	Span s = {(int)((i64)i * outs / ins), (int)(((i64)(i + 1) * outs + ins - 1) / ins)};
	return s;
}
INLINE int length(Span s) { return s.to - s.from; }

extern "C" __global__ void __launch_bounds__(256, 4) adaptive_avg_pool(WINDOW, SIZES, TENSOR(y), TENSOR(x)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(y); VIEW(x);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	Span d = adaptive((int)p.at[2], g.in.n[2], g.out.n[2]), h = adaptive((int)p.at[1], g.in.n[1], g.out.n[1]), w = adaptive((int)p.at[0], g.in.n[0], g.out.n[0]);
	put(y, offset(y, p, 5), window_sum(x, plane(x, p), d, h, w) / (float)((i64)length(d) * length(h) * length(w)));
}

extern "C" __global__ void __launch_bounds__(256) adaptive_avg_pool_grad(WINDOW, SIZES, TENSOR(gx), TENSOR(gy)) {
	SIZES_OF(s);
	WINDOW_OF(g);
	VIEW(gx); VIEW(gy);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 base = plane(gy, p);
	Span d = adaptive_windows((int)p.at[2], g.in.n[2], g.out.n[2]), h = adaptive_windows((int)p.at[1], g.in.n[1], g.out.n[1]),
	     w = adaptive_windows((int)p.at[0], g.in.n[0], g.out.n[0]);
	float sum = 0;
	for (int a = d.from; a < d.to; a++)
		for (int b = h.from; b < h.to; b++)
			for (int c = w.from; c < w.to; c++) {
				i64 n = (i64)length(adaptive(a, g.in.n[2], g.out.n[2])) * length(adaptive(b, g.in.n[1], g.out.n[1])) * length(adaptive(c, g.in.n[0], g.out.n[0]));
				sum += get(gy, base + a * gy.stride[2] + b * gy.stride[1] + c * gy.stride[0]) / (float)n;
			}
	put(gx, offset(gx, p, 5), sum);
}

// Resampling weighs two neighbours in each dimension. A Tap says which two of n elements,
// and in which shares, the one at i of the larger image is made of.
struct Tap {
	int first, next;
	float share; // of next
};
INLINE Tap tap(int i, double step, bool align, int n) {
	double at = align ? step * i : fused(step, (double)i + 0.5, -0.5);
	if (at < 0) at = 0;
	int first = (int)at < n - 1 ? (int)at : n - 1;
	double share = at - first;
	Tap t = {first, first + 1 < n ? first + 1 : n - 1, share < 1 ? (float)share : 1.0f};
	return t;
}
// The share that element k of n has in the one at i.
INLINE float share_of(int k, int i, double step, bool align, int n) {
	Tap t = tap(i, step, align, n);
	return (t.first == k ? 1.0f - t.share : 0) + (t.next == k ? t.share : 0);
}
// reached is a range that has all elements of outs in which element k of n has a share.
INLINE Span reached(int k, double step, bool align, int n, int outs) {
	double shift = align ? 0.0 : 0.5, from = ((double)k - 1.0 + shift) / step - shift - 1.0, to = ((double)k + 1.0 + shift) / step - shift + 2.0;
	Span s = {k == 0 || !(from > 0) ? 0 : from < outs ? (int)from : outs, k == n - 1 || !(to < outs) ? outs : (int)to};
	return s;
}

extern "C" __global__ void __launch_bounds__(256) resample(i64 align, double step_d, double step_h, double step_w, TRIPLE(in), SIZES, TENSOR(y), TENSOR(x)) {
	SIZES_OF(s);
	VIEW(y); VIEW(x);
	Space in = SPACE(in);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 base = plane(x, p);
	Tap d = tap((int)p.at[2], step_d, align, in.n[2]), h = tap((int)p.at[1], step_h, align, in.n[1]), w = tap((int)p.at[0], step_w, align, in.n[0]);
	float sum = 0;
	for (int k = 0; k < 8; k++) {
		float share = (k & 4 ? d.share : 1.0f - d.share) * (k & 2 ? h.share : 1.0f - h.share) * (k & 1 ? w.share : 1.0f - w.share);
		if (share == 0) continue;
		i64 at = (k & 4 ? d.next : d.first) * x.stride[2] + (k & 2 ? h.next : h.first) * x.stride[1] + (k & 1 ? w.next : w.first) * x.stride[0];
		sum += share * get(x, base + at);
	}
	put(y, offset(y, p, 5), sum);
}

extern "C" __global__ void __launch_bounds__(256) resample_grad(i64 align, double step_d, double step_h, double step_w, TRIPLE(out), SIZES, TENSOR(gx), TENSOR(gy)) {
	SIZES_OF(s);
	VIEW(gx); VIEW(gy);
	Space out = SPACE(out);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place p = place(s, i);
	i64 base = plane(gy, p);
	int z = (int)p.at[2], y = (int)p.at[1], x = (int)p.at[0], deep = (int)s.n[2], high = (int)s.n[1], wide = (int)s.n[0];
	Span d = reached(z, step_d, align, deep, out.n[2]), h = reached(y, step_h, align, high, out.n[1]), w = reached(x, step_w, align, wide, out.n[0]);
	float sum = 0;
	for (int a = d.from; a < d.to; a++) {
		float sd = share_of(z, a, step_d, align, deep);
		if (sd == 0) continue;
		for (int b = h.from; b < h.to; b++) {
			float sh = sd * share_of(y, b, step_h, align, high);
			if (sh == 0) continue;
			for (int c = w.from; c < w.to; c++) {
				float share = sh * share_of(x, c, step_w, align, wide);
				if (share != 0) sum += share * get(gy, base + a * gy.stride[2] + b * gy.stride[1] + c * gy.stride[0]);
			}
		}
	}
	put(gx, offset(gx, p, 5), sum);
}
