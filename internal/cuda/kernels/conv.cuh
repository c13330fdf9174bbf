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

// How far the elements of a spot are from those of others, along the coordinates.
INLINE i64 voxel_offset(const View &v, const int *at) { return at[0] * v.stride[0] + at[1] * v.stride[1] + at[2] * v.stride[2]; }

// Weights as [output channel] × [input channel, kernel], and the other way.
struct Weights {
	enum { BY_K = true, along_k = true };
	View w;
	Geometry g;
	int type;
	bool transposed;
	INLINE_MEMBER Spot row(int i) const {
		Spot s = {transposed ? i * w.stride[3] + g.group * g.outs * w.stride[4] : (g.group * g.outs + i) * w.stride[4], {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER Spot depth(int k) const {
		Voxel x = voxel(g.kernel, k);
		Spot s = {x.rest * (transposed ? w.stride[4] : w.stride[3]) + voxel_offset(w, x.at), {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER u32 bits(const Spot &row, const Spot &depth) const { return bits_of(w.at, type, row, depth); }
};

// What an output pixel sees of the input: rows are [batch, pixel], k is [input
// channel, kernel]. swapped: rows are [input channel, kernel], k is [batch, pixel].
template <bool swapped> struct Seen {
	enum { BY_K = swapped, along_k = swapped };
	View x;
	Geometry g;
	int type;
	INLINE_MEMBER Spot pixel(int i) const {
		Voxel v = voxel(g.out, i);
		Spot s;
#pragma unroll
		for (int d = 0; d < 3; d++) s.at[d] = v.at[d] * g.stride.n[d] - g.padding.n[d];
		s.offset = v.rest * x.stride[4] + voxel_offset(x, s.at);
		return s;
	}
	INLINE_MEMBER Spot tap(int i) const {
		Voxel v = voxel(g.kernel, i);
		Spot s;
#pragma unroll
		for (int d = 0; d < 3; d++) s.at[d] = v.at[d] * g.dilation.n[d];
		s.offset = (g.group * g.ins + v.rest) * x.stride[3] + voxel_offset(x, s.at);
		return s;
	}
	INLINE_MEMBER Spot row(int i) const { return swapped ? tap(i) : pixel(i); }
	INLINE_MEMBER Spot depth(int k) const { return swapped ? pixel(k) : tap(k); }
	INLINE_MEMBER u32 bits(const Spot &row, const Spot &depth) const {
		bool inside = true;
#pragma unroll
		for (int d = 0; d < 3; d++) inside = inside && (u32)(row.at[d] + depth.at[d]) < (u32)g.in.n[d];
		return inside ? bits_at(x.at, type, row.offset + depth.offset) : 0;
	}
};

// The gradients that reach an input pixel: rows are [batch, input pixel], k is
// [output channel, kernel].
struct Reached {
	enum { BY_K = false, along_k = false };
	View y;
	Geometry g;
	int type;
	INLINE_MEMBER Spot row(int i) const {
		Voxel v = voxel(g.in, i);
		Spot s = {v.rest * y.stride[4], {v.at[0] + g.padding.n[0], v.at[1] + g.padding.n[1], v.at[2] + g.padding.n[2]}};
		return s;
	}
	INLINE_MEMBER Spot depth(int k) const {
		Voxel v = voxel(g.kernel, k);
		Spot s = {(g.group * g.outs + v.rest) * y.stride[3], {-v.at[0] * g.dilation.n[0], -v.at[1] * g.dilation.n[1], -v.at[2] * g.dilation.n[2]}};
		return s;
	}
	INLINE_MEMBER u32 bits(const Spot &row, const Spot &depth) const {
		i64 o = row.offset + depth.offset;
#pragma unroll
		for (int d = 0; d < 3; d++) {
			int c = row.at[d] + depth.at[d], n = g.stride.n[d], q = c;
			if (c < 0) return 0;
			if (n != 1) {
				q = (int)((u32)c / (u32)n);
				if (q * n != c) return 0;
			}
			if (q >= g.out.n[d]) return 0;
			o += q * y.stride[d];
		}
		return bits_at(y.at, type, o);
	}
};

// The gradient of the output: rows are output channels, k is [batch, pixel].
struct Gradient {
	enum { BY_K = true, along_k = true };
	View y;
	Geometry g;
	int type;
	INLINE_MEMBER Spot row(int i) const {
		Spot s = {(g.group * g.outs + i) * y.stride[3], {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER Spot depth(int k) const {
		Voxel o = voxel(g.out, k);
		Spot s = {o.rest * y.stride[4] + voxel_offset(y, o.at), {0, 0, 0}};
		return s;
	}
	INLINE_MEMBER u32 bits(const Spot &row, const Spot &depth) const { return bits_of(y.at, type, row, depth); }
};

// Results: channels × [batch, pixel], and weights.
struct Image {
	View y, bias;
	Space space;
	i64 first; // channel of the group
	INLINE_MEMBER i64 column(int n) const {
		Voxel o = voxel(space, n);
		return o.rest * y.stride[4] + voxel_offset(y, o.at);
	}
	INLINE_MEMBER void put(int m, int, i64 column, float v) const {
		if (bias.at) v += get(bias, (first + m) * bias.stride[0]);
		::put(y, (first + m) * y.stride[3] + column, v);
	}
};

struct WeightImage {
	View w;
	Geometry g;
	INLINE_MEMBER i64 column(int n) const {
		Voxel k = voxel(g.kernel, n);
		return k.rest * w.stride[3] + voxel_offset(w, k.at);
	}
	INLINE_MEMBER void put(int m, int, i64 column, float v) const { ::put(w, (g.group * g.outs + m) * w.stride[4] + column, v); }
};

#define TRIPLE(t) i64 t##_w, i64 t##_h, i64 t##_d
#define SPACE(t) {{(int)t##_w, (int)t##_h, (int)t##_d}}
#define GEOMETRY i64 batch, i64 ins, i64 outs, TRIPLE(in), TRIPLE(out), TRIPLE(kernel), TRIPLE(stride), TRIPLE(padding), TRIPLE(dilation)
#define GEOMETRY_OF(g) Geometry g = {SPACE(in), SPACE(out), SPACE(kernel), SPACE(stride), SPACE(padding), SPACE(dilation), batch, ins, outs, 0}

#define CONV_PARAMETERS GEOMETRY, TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(bias)
#define CONV_VIEWS VIEW(y); VIEW(a); VIEW(b); VIEW(bias)

// Three ways to multiply: tiles; one thread for each result, where a group has few
// channels; one block for each result, where k is long as well. OPERANDS are left,
// right and result, of the views and the geometry.
#define CONV_TILED(name, CORE, OPERANDS) \
	extern "C" __global__ void __launch_bounds__(256, 2) name(i64 rows, i64 cols, i64 depth, i64 splits, i64 each, CONV_PARAMETERS) { \
		CONV_VIEWS; GEOMETRY_OF(g); \
		Block w = block_of(64, 128, rows, cols, depth, splits, each); \
		g.group = w.batch; \
		OPERANDS; \
		typedef decltype(left) Left; \
		typedef decltype(right) Right; \
		__shared__ Shared<CORE, Left, Right> s; \
		CORE core; \
		core.clear(); \
		accumulate<Left::BY_K, Right::BY_K>(core, left, right, w, rows, cols, s); \
		write(core, result, w, rows, cols, splits, s); \
	}

#define CONV_FINISH(name, OPERANDS) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 rows, i64 cols, i64 groups, i64 splits, CONV_PARAMETERS) { \
		CONV_VIEWS; GEOMETRY_OF(g); \
		i64 i = BLOCK_X * 256 + TID; \
		if (i >= groups * rows * cols) return; \
		g.group = i / (rows * cols); \
		OPERANDS; \
		(void)left; (void)right; \
		finish(result, g.group, i % (rows * cols), rows, cols, splits); \
	}

#define CONV_DIRECT(name, OPERANDS) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 rows, i64 cols, i64 depth, i64 groups, CONV_PARAMETERS) { \
		CONV_VIEWS; GEOMETRY_OF(g); \
		i64 i = BLOCK_X * 256 + TID; \
		if (i >= groups * rows * cols) return; \
		int n = (int)(i % cols), m = (int)(i / cols % rows); \
		g.group = i / cols / rows; \
		OPERANDS; \
		Spot ra = left.row(m), rb = right.row(n); \
		float sum = 0; \
		for (int k = 0; k < (int)depth; k++) sum = fused(decoded(left.type, left.bits(ra, left.depth(k))), decoded(right.type, right.bits(rb, right.depth(k))), sum); \
		result.put(m, n, result.column(n), sum); \
	}

#define CONV_LONG(name, OPERANDS) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 rows, i64 cols, i64 depth, CONV_PARAMETERS) { \
		__shared__ float cells[256]; \
		CONV_VIEWS; GEOMETRY_OF(g); \
		int n = (int)(BLOCK_X % cols), m = (int)(BLOCK_X / cols % rows); \
		g.group = BLOCK_X / cols / rows; \
		OPERANDS; \
		Spot ra = left.row(m), rb = right.row(n); \
		float sum = 0; \
		for (int k = TID; k < (int)depth; k += 256) sum = fused(decoded(left.type, left.bits(ra, left.depth(k))), decoded(right.type, right.bits(rb, right.depth(k))), sum); \
		sum = reduce<Plus, 256>(sum, cells); \
		if (TID == 0) result.put(m, n, result.column(n), sum); \
	}

// a is the weight, or the gradient of the output; b is read as an image.
#define FORWARD \
	Weights left = {a, g, a.type, false}; \
	Seen<false> right = {b, g, b.type}; \
	Image result = {y, bias, g.out, g.group * g.outs}
#define INPUT_GRAD \
	Weights left = {a, g, a.type, true}; \
	Reached right = {b, g, b.type}; \
	Image result = {y, bias, g.in, g.group * g.ins}
#define WEIGHT_GRAD \
	Gradient left = {a, g, a.type}; \
	Seen<true> right = {b, g, b.type}; \
	WeightImage result = {y, g}; \
	(void)bias

#ifdef MODULE_70
CONV_TILED(conv_tile, WideFused, FORWARD)
CONV_TILED(conv_tile_f16, WideTensor<Float16>, FORWARD)
CONV_FINISH(conv_finish, FORWARD)
CONV_DIRECT(conv_direct, FORWARD)
CONV_TILED(conv_input_grad_tile, WideFused, INPUT_GRAD)
CONV_TILED(conv_input_grad_tile_f16, WideTensor<Float16>, INPUT_GRAD)
CONV_FINISH(conv_input_grad_finish, INPUT_GRAD)
CONV_DIRECT(conv_input_grad_direct, INPUT_GRAD)
CONV_TILED(conv_weight_grad_tile, WideFused, WEIGHT_GRAD)
CONV_TILED(conv_weight_grad_tile_f16, WideTensor<Float16>, WEIGHT_GRAD)
CONV_FINISH(conv_weight_grad_finish, WEIGHT_GRAD)
CONV_LONG(conv_weight_grad_long, WEIGHT_GRAD)
#endif
#ifdef MODULE_80
CONV_TILED(conv_tile_bf16, WideTensor<Bfloat16>, FORWARD)
CONV_FINISH(conv_finish_bf16, FORWARD)
CONV_TILED(conv_input_grad_tile_bf16, WideTensor<Bfloat16>, INPUT_GRAD)
CONV_FINISH(conv_input_grad_finish_bf16, INPUT_GRAD)
CONV_TILED(conv_weight_grad_tile_bf16, WideTensor<Bfloat16>, WEIGHT_GRAD)
CONV_FINISH(conv_weight_grad_finish_bf16, WEIGHT_GRAD)
#endif
