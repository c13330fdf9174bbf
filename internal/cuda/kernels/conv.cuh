// Convolutions as matrix products whose operands are read from the images where
// they lie: nothing is unfolded in memory. Dimensions of images are [N, C, D, H, W],
// so strides are, from the innermost, of w, h, d, channel and batch.
#pragma once

struct Space {
	int n[3]; // w, h, d
};

struct Geometry {
	Space in, out, kernel, stride, padding, dilation;
	i64 batch, ins, outs; // channels of one group
	i64 group;
};

INLINE i64 volume(const Space &s) { return (i64)s.n[0] * s.n[1] * s.n[2]; }

// Coordinates of element i of a space, and what is left.
struct Voxel {
	int at[3];
	i64 rest;
};

INLINE Voxel voxel(const Space &s, int i) {
	Voxel v;
	u32 r = (u32)i;
#pragma unroll
	for (int d = 0; d < 3; d++) {
		u32 n = (u32)s.n[d], q = r / n;
		v.at[d] = (int)(r - q * n);
		r = q;
	}
	v.rest = r;
	return v;
}

INLINE i64 voxel_offset(const View &v, const Voxel &x) { return x.at[0] * v.stride[0] + x.at[1] * v.stride[1] + x.at[2] * v.stride[2]; }

// Weights as [output channel] × [input channel, kernel], and the other way.
struct Weights {
	typedef i64 Row;
	View w;
	Geometry g;
	int type;
	bool transposed, kfast;
	INLINE_MEMBER Row row(int i) const { return transposed ? i * w.stride[3] + g.group * g.outs * w.stride[4] : (g.group * g.outs + i) * w.stride[4]; }
	INLINE_MEMBER u32 at(Row r, int k) const {
		Voxel x = voxel(g.kernel, k);
		return bits_at(w.at, type, r + x.rest * (transposed ? w.stride[4] : w.stride[3]) + voxel_offset(w, x));
	}
};

// What an output pixel sees of the input: rows are [batch, pixel], k is [input
// channel, kernel]. swapped: rows are [input channel, kernel], k is [batch, pixel].
template <bool swapped> struct Seen {
	struct Row {
		Voxel v;
	};
	View x;
	Geometry g;
	int type;
	bool kfast;
	INLINE_MEMBER Row row(int i) const { Row r = {voxel(swapped ? g.kernel : g.out, i)}; return r; }
	INLINE_MEMBER u32 at(const Row &r, int k) const {
		Voxel o = voxel(swapped ? g.out : g.kernel, k);
		const Voxel &pixel = swapped ? o : r.v, &kernel = swapped ? r.v : o;
		i64 at = pixel.rest * x.stride[4] + (g.group * g.ins + kernel.rest) * x.stride[3];
#pragma unroll
		for (int d = 0; d < 3; d++) {
			int c = pixel.at[d] * g.stride.n[d] - g.padding.n[d] + kernel.at[d] * g.dilation.n[d];
			if (c < 0 || c >= g.in.n[d]) return 0;
			at += c * x.stride[d];
		}
		return bits_at(x.at, type, at);
	}
};

// The gradients that reach an input pixel: rows are [batch, input pixel], k is
// [output channel, kernel].
struct Reached {
	struct Row {
		Voxel v;
	};
	View y;
	Geometry g;
	int type;
	bool kfast;
	INLINE_MEMBER Row row(int i) const { Row r = {voxel(g.in, i)}; return r; }
	INLINE_MEMBER u32 at(const Row &r, int k) const {
		Voxel o = voxel(g.kernel, k);
		i64 at = r.v.rest * y.stride[4] + (g.group * g.outs + o.rest) * y.stride[3];
#pragma unroll
		for (int d = 0; d < 3; d++) {
			int c = r.v.at[d] + g.padding.n[d] - o.at[d] * g.dilation.n[d], q = c / g.stride.n[d];
			if (c < 0 || q * g.stride.n[d] != c || q >= g.out.n[d]) return 0;
			at += q * y.stride[d];
		}
		return bits_at(y.at, type, at);
	}
};

// The gradient of the output: rows are output channels, k is [batch, pixel].
struct Gradient {
	typedef i64 Row;
	View y;
	Geometry g;
	int type;
	bool kfast;
	INLINE_MEMBER Row row(int i) const { return (g.group * g.outs + i) * y.stride[3]; }
	INLINE_MEMBER u32 at(Row r, int k) const {
		Voxel o = voxel(g.out, k);
		return bits_at(y.at, type, r + o.rest * y.stride[4] + voxel_offset(y, o));
	}
};

// Results: channels × [batch, pixel], and weights.
struct Image {
	View y, bias;
	Space space;
	i64 first; // channel of the group
	INLINE_MEMBER void put(i64 m, i64 n, float v) const {
		Voxel o = voxel(space, (int)n);
		if (bias.at) v += get(bias, (first + m) * bias.stride[0]);
		::put(y, o.rest * y.stride[4] + (first + m) * y.stride[3] + voxel_offset(y, o), v);
	}
};

struct WeightImage {
	View w;
	Geometry g;
	INLINE_MEMBER void put(i64 m, i64 n, float v) const {
		Voxel k = voxel(g.kernel, (int)n);
		::put(w, (g.group * g.outs + m) * w.stride[4] + k.rest * w.stride[3] + voxel_offset(w, k), v);
	}
};

#define TRIPLE(t) i64 t##_w, i64 t##_h, i64 t##_d
#define SPACE(t) {{(int)t##_w, (int)t##_h, (int)t##_d}}
#define GEOMETRY i64 batch, i64 ins, i64 outs, TRIPLE(in), TRIPLE(out), TRIPLE(kernel), TRIPLE(stride), TRIPLE(padding), TRIPLE(dilation)
#define GEOMETRY_OF(g) Geometry g = {SPACE(in), SPACE(out), SPACE(kernel), SPACE(stride), SPACE(padding), SPACE(dilation), batch, ins, outs, 0}

// Three ways to multiply: tiles; one thread for each result, where a group has few
// channels; one block for each result, where k is long as well.
#define CONV_TILED(name, ...) \
	extern "C" __global__ void __launch_bounds__(256) name##_tile(i64 rows, i64 cols, i64 depth, i64 splits, i64 each, GEOMETRY, \
		TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(bias)) { \
		__shared__ Four sa[STEP * (64 + 4) / 4]; \
		__shared__ Four sb[STEP * (64 + 4) / 4]; \
		VIEW(y); VIEW(a); VIEW(b); VIEW(bias); \
		GEOMETRY_OF(g); \
		Block w = block_of<64>(rows, cols, depth, splits, each); \
		g.group = w.batch; \
		__VA_ARGS__; \
		multiply<64>(left, right, result, w, rows, cols, splits, (float *)sa, (float *)sb); \
	} \
	extern "C" __global__ void __launch_bounds__(256) name##_finish(i64 rows, i64 cols, i64 groups, i64 splits, GEOMETRY, \
		TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(bias)) { \
		VIEW(y); VIEW(a); VIEW(b); VIEW(bias); \
		GEOMETRY_OF(g); \
		i64 i = BLOCK_X * 256 + TID; \
		if (i >= groups * rows * cols) return; \
		g.group = i / (rows * cols); \
		__VA_ARGS__; \
		(void)left; (void)right; \
		finish(result, g.group, i % (rows * cols), rows, cols, splits); \
	}

#define CONV_DIRECT(name, ...) \
	extern "C" __global__ void __launch_bounds__(256) name##_direct(i64 rows, i64 cols, i64 depth, i64 groups, GEOMETRY, \
		TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(bias)) { \
		VIEW(y); VIEW(a); VIEW(b); VIEW(bias); \
		GEOMETRY_OF(g); \
		i64 i = BLOCK_X * 256 + TID; \
		if (i >= groups * rows * cols) return; \
		i64 n = i % cols, m = i / cols % rows; \
		g.group = i / cols / rows; \
		__VA_ARGS__; \
		auto ra = left.row((int)m); \
		auto rb = right.row((int)n); \
		float sum = 0; \
		for (int k = 0; k < (int)depth; k++) sum = fused(decoded(left.type, left.at(ra, k)), decoded(right.type, right.at(rb, k)), sum); \
		result.put(m, n, sum); \
	}

#define CONV_LONG(name, ...) \
	extern "C" __global__ void __launch_bounds__(256) name##_long(i64 rows, i64 cols, i64 depth, GEOMETRY, \
		TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(bias)) { \
		__shared__ float cells[256]; \
		VIEW(y); VIEW(a); VIEW(b); VIEW(bias); \
		GEOMETRY_OF(g); \
		i64 n = BLOCK_X % cols, m = BLOCK_X / cols % rows; \
		g.group = BLOCK_X / cols / rows; \
		__VA_ARGS__; \
		auto ra = left.row((int)m); \
		auto rb = right.row((int)n); \
		float sum = 0; \
		for (int k = TID; k < (int)depth; k += 256) sum = fused(decoded(left.type, left.at(ra, k)), decoded(right.type, right.at(rb, k)), sum); \
		sum = reduce<Plus, 256>(sum, cells); \
		if (TID == 0) result.put(m, n, sum); \
	}

// a is the weight, or the gradient of the output; b is read as an image.
#define FORWARD \
	Weights left = {a, g, a.type, false, true}; \
	Seen<false> right = {b, g, b.type, false}; \
	Image result = {y, bias, g.out, g.group * g.outs}
#define INPUT_GRAD \
	Weights left = {a, g, a.type, true, true}; \
	Reached right = {b, g, b.type, false}; \
	Image result = {y, bias, g.in, g.group * g.ins}
#define WEIGHT_GRAD \
	Gradient left = {a, g, a.type, true}; \
	Seen<true> right = {b, g, b.type, true}; \
	WeightImage result = {y, g}; \
	(void)bias
CONV_TILED(conv, FORWARD)
CONV_DIRECT(conv, FORWARD)
CONV_TILED(conv_input_grad, INPUT_GRAD)
CONV_DIRECT(conv_input_grad, INPUT_GRAD)
CONV_TILED(conv_weight_grad, WEIGHT_GRAD)
CONV_LONG(conv_weight_grad, WEIGHT_GRAD)
