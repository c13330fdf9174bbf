// Kernels of kind Map: one thread for each element. What is computed is chosen by
// the number of the kernel (ops.h), the same for all threads of a launch.
#pragma once

INLINE float sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }
INLINE float softplus(float a) { return larger(a, 0) + log1p_(exp_(-(a < 0 ? -a : a))); } // log(1+eᵃ)

// elementwise computes y of floating operands; p and q are the kernel's numbers.
INLINE float elementwise(int op, float a, float b, float c, float p, float q) {
	const float tanh_scale = 0.797884561f, tanh_cube = 0.044715f; // √(2/π)
	switch (op) {
	case OP_fill: return p;
	case OP_copy: return a;
	case OP_affine: return fused(a, p, q);
	case OP_neg: return -a;
	case OP_abs: return a < 0 ? -a : a == 0 ? 0 : a;
	case OP_exp: return exp_(a);
	case OP_log: return log_(a);
	case OP_sqrt: return square_root(a);
	case OP_rsqrt: return 1.0f / square_root(a);
	case OP_sin: return sine(a, 0);
	case OP_cos: return sine(a, 1);
	case OP_tanh: return tanh_(a);
	case OP_sigmoid: return sigmoid_(a);
	case OP_floor: return floor_of(a);
	case OP_relu: return a != a || a > 0 ? a : 0;
	case OP_leaky_relu: return a > 0 ? a : a * p;
	case OP_elu: return a > 0 ? a : p * expm1_(a);
	case OP_gelu: return a * normal_below(a);
	case OP_gelu_tanh: return a * sigmoid_(2.0f * tanh_scale * fused(tanh_cube * a * a, a, a));
	case OP_silu: return a * sigmoid_(a);
	case OP_softplus: return a * p > q ? a : softplus(a * p) / p;
	case OP_hardtanh: return a < p ? p : a > q ? q : a;
	case OP_hardswish: return a * smaller(larger(a + 3.0f, 0), 6.0f) / 6.0f;
	case OP_hardsigmoid: return smaller(larger(a + 3.0f, 0), 6.0f) / 6.0f;
	case OP_pow_scalar: return pow_(a, p);
	case OP_log_sigmoid: return -softplus(-a);
	case OP_expm1: return expm1_(a);
	case OP_log1p: return log1p_(a);
	case OP_reciprocal: return 1.0f / a;
	case OP_pow_base: return pow_(p, a);
	case OP_floor_divide: return floor_of(a / p);

	// a is the gradient, b what was saved.
	case OP_relu_grad: return b <= 0 ? 0 : a;
	case OP_leaky_relu_grad: return b > 0 ? a : a * p;
	case OP_elu_grad: return b > 0 ? a : a * p * exp_(b);
	case OP_gelu_grad: return a * fused(b, normal_density(b), normal_below(b));
	case OP_gelu_tanh_grad: {
		float t = tanh_(tanh_scale * fused(tanh_cube * b * b, b, b));
		float below = sigmoid_(2.0f * tanh_scale * fused(tanh_cube * b * b, b, b));
		return a * (below + 0.5f * b * (1.0f - t) * (1.0f + t) * tanh_scale * fused(3.0f * tanh_cube * b, b, 1.0f));
	}
	case OP_silu_grad: {
		float s = sigmoid_(b);
		return a * s * fused(b, sigmoid_(-b), 1.0f);
	}
	case OP_softplus_grad: return b * p > q ? a : a * sigmoid_(b * p);
	case OP_hardtanh_grad: return b <= p || b >= q ? 0 : a;
	case OP_hardswish_grad: return b <= -3.0f ? 0 : b < 3.0f ? a * (b / 3.0f + 0.5f) : a;
	case OP_hardsigmoid_grad: return b > -3.0f && b < 3.0f ? a / 6.0f : 0;
	case OP_tanh_grad: return a * (1.0f - b) * (1.0f + b);
	case OP_sigmoid_grad: return a * (1.0f - b) * b;
	case OP_sqrt_grad: return a / (2.0f * b);
	case OP_rsqrt_grad: return -0.5f * a * b * b * b;
	case OP_sin_grad: return a * sine(b, 1);
	case OP_cos_grad: return -a * sine(b, 0);
	case OP_abs_grad: return a * sign(b);
	case OP_pow_scalar_grad: return p == 0 ? 0 : a * p * pow_(b, p - 1.0f);
	case OP_log_sigmoid_grad: return a * sigmoid_(-b);
	case OP_expm1_grad: return a * (b + 1.0f);
	case OP_log1p_grad: return a / (b + 1.0f);
	case OP_reciprocal_grad: return -a * (b * b);
	case OP_clamp_grad: return b >= p && b <= q ? a : 0;
	case OP_norm_grad: return c == 0 ? 0 : a * (b / c);

	case OP_add: return fused(p, b, a);
	case OP_mul: return a * b;
	case OP_div: return a / b;
	case OP_maximum: return a != a || b != b ? a + b : larger(a, b);
	case OP_minimum: return a != a || b != b ? a + b : smaller(a, b);
	case OP_minimum_grad: return b < c ? a : b == c ? a * 0.5f : 0;
	case OP_pow: return pow_(a, b);
	case OP_div_grad: return -a * b / (c * c);
	case OP_xlogy: return a == 0 && b == b ? 0 : a * log_(b);
	case OP_eq: return a == b;
	case OP_ne: return a != b;
	case OP_lt: return a < b;
	case OP_le: return a <= b;
	case OP_gt: return a > b;
	case OP_ge: return a >= b;
	case OP_eq_scalar: return a == p;
	case OP_ne_scalar: return a != p;
	case OP_lt_scalar: return a < p;
	case OP_le_scalar: return a <= p;
	case OP_gt_scalar: return a > p;
	case OP_ge_scalar: return a >= p;
	case OP_masked_fill: return b != 0 ? p : a;
	case OP_where: return a != 0 ? b : c;
	case OP_mask_scale: return b != 0 ? a * p : 0;

	// a is the gradient of the loss.
	case OP_mse_grad: return a * p * 2.0f * (b - c);
	case OP_l1_grad: return a * p * sign(b - c);
	case OP_bce_logits_grad: return a * p * (sigmoid_(b) - c);
	case OP_bce_grad: return a * p * (b - c) / larger((1.0f - b) * b, 1e-12f);
	}
	return nan_value();
}

// The same of whole numbers. Kernels that are of floating numbers only do not come
// here.
INLINE i64 elementwise(int op, i64 a, i64 b, i64 c, double p, double q) {
	switch (op) {
	case OP_fill: return (i64)p;
	case OP_copy: return a;
	case OP_affine: return a * (i64)p + (i64)q;
	case OP_neg: return -a;
	case OP_abs: return a < 0 ? -a : a;
	case OP_add: return a + (i64)p * b;
	case OP_mul: return a * b;
	case OP_floor_divide: {
		i64 n = (i64)p, quotient = a / n;
		return a % n != 0 && (a < 0) != (n < 0) ? quotient - 1 : quotient;
	}
	case OP_maximum: return a > b ? a : b;
	case OP_minimum: return a < b ? a : b;
	case OP_eq: return a == b;
	case OP_ne: return a != b;
	case OP_lt: return a < b;
	case OP_le: return a <= b;
	case OP_gt: return a > b;
	case OP_ge: return a >= b;
	case OP_eq_scalar: return (double)a == p;
	case OP_ne_scalar: return (double)a != p;
	case OP_lt_scalar: return (double)a < p;
	case OP_le_scalar: return (double)a <= p;
	case OP_gt_scalar: return (double)a > p;
	case OP_ge_scalar: return (double)a >= p;
	case OP_masked_fill: return b != 0 ? (i64)p : a;
	case OP_where: return a != 0 ? b : c;
	}
	return 0;
}

// map is the body of all: C is the type in which they compute, NUM that of the
// kernel's numbers.
template <class C, class NUM>
INLINE void map(int op, int inputs, double p, double q, const Sizes &s, const View &y, const View &a, const View &b, const View &c) {
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	C va = 0, vb = 0, vc = 0;
	i64 to;
	if (s.rank <= 1) { // no divisions
		if (inputs > 0) va = load<C>(a.at, a.type, i * a.stride[0]);
		if (inputs > 1) vb = load<C>(b.at, b.type, i * b.stride[0]);
		if (inputs > 2) vc = load<C>(c.at, c.type, i * c.stride[0]);
		to = i * y.stride[0];
	} else {
		Place at = place(s, i);
		if (inputs > 0) va = load<C>(a.at, a.type, offset(a, at, s.rank));
		if (inputs > 1) vb = load<C>(b.at, b.type, offset(b, at, s.rank));
		if (inputs > 2) vc = load<C>(c.at, c.type, offset(c, at, s.rank));
		to = offset(y, at, s.rank);
	}
	store<C>(y.at, y.type, to, elementwise(op, va, vb, vc, (NUM)p, (NUM)q));
}

#define MAP_KERNEL(name, C, NUM) \
	extern "C" __global__ void __launch_bounds__(256) name(i64 op, i64 inputs, double p, double q, SIZES, TENSOR(y), TENSOR(a), TENSOR(b), TENSOR(c)) { \
		SIZES_OF(s); \
		VIEW(y); VIEW(a); VIEW(b); VIEW(c); \
		map<C, NUM>((int)op, (int)inputs, p, q, s, y, a, b, c); \
	}
MAP_KERNEL(map_float, float, float)
MAP_KERNEL(map_int, i64, double)

extern "C" __global__ void __launch_bounds__(256) dropout(i64 seed, i64 threshold, float scale, SIZES, TENSOR(y), TENSOR(mask), TENSOR(a)) {
	SIZES_OF(s);
	VIEW(y); VIEW(mask); VIEW(a);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place at = place(s, i);
	bool keep = kept((u64)seed, i, threshold);
	float v = get(a, offset(a, at, s.rank));
	((unsigned char *)mask.at)[offset(mask, at, s.rank)] = keep;
	put(y, offset(y, at, s.rank), keep ? v * scale : 0);
}

// random_numbers fills y, of any type, with numbers from one on in a range of some width
// or, if choice is set, with 1 where a number is below threshold / 2^24, else 0.
extern "C" __global__ void __launch_bounds__(256) random_numbers(i64 seed, i64 choice, i64 threshold, double from, double width, SIZES, TENSOR(y)) {
	SIZES_OF(s);
	VIEW(y);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	i64 number = philox_word((u64)seed, (u64)i) >> 8;
	double v = choice ? (number < threshold ? 1.0 : 0.0) : fused((double)number / 16777216.0, width, from);
	store<double>(y.at, y.type, offset(y, place(s, i), s.rank), v);
}

// triangle copies the part on which column - row is at most (upper: at least)
// diagonal. The two innermost dimensions are not merged with others.
extern "C" __global__ void __launch_bounds__(256) triangle(i64 upper, i64 diagonal, i64 whole, SIZES, TENSOR(y), TENSOR(a)) {
	SIZES_OF(s);
	VIEW(y); VIEW(a);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place at = place(s, i);
	i64 d = at.at[0] - at.at[1], from = offset(a, at, s.rank), to = offset(y, at, s.rank);
	bool in = upper ? d >= diagonal : d <= diagonal;
	if (whole) store<i64>(y.at, y.type, to, in ? load<i64>(a.at, a.type, from) : 0);
	else put(y, to, in ? get(a, from) : 0);
}

extern "C" __global__ void __launch_bounds__(256) arange(double start, double step, SIZES, TENSOR(y)) {
	SIZES_OF(s);
	VIEW(y);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	double v = start + step * (double)i;
	if (y.type == I64 || y.type == I32 || y.type == I16) store<i64>(y.at, y.type, i * y.stride[0], (i64)v);
	else store<float>(y.at, y.type, i * y.stride[0], (float)v);
}

// Optimizers, as torch.optim writes them. first is set in step 1, in which states
// are not read.
extern "C" __global__ void __launch_bounds__(256)
sgd(i64 first, i64 nesterov, i64 maximize, float lr, float momentum, float dampening, float decay, SIZES, TENSOR(p), TENSOR(buf), TENSOR(g)) {
	SIZES_OF(s);
	VIEW(p); VIEW(buf); VIEW(g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place at = place(s, i);
	i64 to = offset(p, at, s.rank);
	float w = get(p, to), d = get(g, offset(g, at, s.rank));
	if (maximize) d = -d;
	d = fused(decay, w, d);
	if (momentum != 0 && buf.at) {
		i64 o = offset(buf, at, s.rank);
		float m = first ? d : fused(momentum, get(buf, o), (1.0f - dampening) * d);
		put(buf, o, m);
		d = nesterov ? fused(momentum, m, d) : m;
	}
	put(p, to, fused(-lr, d, w));
}

// adam: one is 1-beta1 and two is 1-beta2, rate is lr/(1-beta1^step), root is
// √(1-beta2^step), shrink is what a decoupled decay leaves of the parameter; all
// computed in double precision before the launch.
extern "C" __global__ void __launch_bounds__(256)
adam(i64 first, i64 maximize, float beta1, float one, float beta2, float two, float rate, float root, float eps, float decay, float shrink,
     SIZES, TENSOR(p), TENSOR(m), TENSOR(v), TENSOR(vmax), TENSOR(g)) {
	SIZES_OF(s);
	VIEW(p); VIEW(m); VIEW(v); VIEW(vmax); VIEW(g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= s.numel) return;
	Place at = place(s, i);
	i64 to = offset(p, at, s.rank), om = offset(m, at, s.rank), ov = offset(v, at, s.rank);
	float w = get(p, to), d = get(g, offset(g, at, s.rank));
	if (maximize) d = -d;
	d = fused(decay, w, d);
	w *= shrink;
	float nm = one * d, nv = two * d * d;
	if (!first) {
		nm = fused(beta1, get(m, om), nm);
		nv = fused(beta2, get(v, ov), nv);
	}
	put(m, om, nm);
	put(v, ov, nv);
	float most = nv;
	if (vmax.at) {
		i64 o = offset(vmax, at, s.rank);
		if (!first) most = larger(get(vmax, o), nv);
		put(vmax, o, most);
	}
	put(p, to, w - rate * nm / (square_root(most) / root + eps));
}
