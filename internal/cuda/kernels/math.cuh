// Elementary functions. There is no library of them without the CUDA toolkit, so
// they are here, for float32, with errors of one to three units in the last
// place; the polynomials are least maximum error fits over the intervals given.
#pragma once

// A NaN is larger, and smaller, than all others.
INLINE float larger(float a, float b) { return a != a || a > b ? a : b; }
INLINE float smaller(float a, float b) { return a != a || a < b ? a : b; }
INLINE float absolute(float a) { return a < 0 ? -a : a; }

INLINE float scaled(float p, int k) { // p * 2^k, also where 2^k alone is no float
	int h = k / 2;
	return p * as_float((u32)(h + 127) << 23) * as_float((u32)(k - h + 127) << 23);
}

INLINE float exp_(float x) {
	if (x != x) return x;
	if (x > 89.0f) return infinity();
	if (x < -104.0f) return 0;
	float k = round_even(x * 1.44269504f);
	float r = fused(k, -0.693145752f, x); // ln 2 in two parts
	r = fused(k, -1.42860677e-6f, r);
	float p = 1.395171741e-03f; // |r| < 0.35
	p = fused(p, r, 8.369598538e-03f);
	p = fused(p, r, 4.166618735e-02f);
	p = fused(p, r, 1.666651219e-01f);
	p = fused(p, r, 5.000000000e-01f);
	return scaled(fused(p * r, r, r) + 1.0f, (int)k);
}

INLINE float expm1_(float x) {
	if (x > 0.5f || x < -0.5f) return exp_(x) - 1.0f;
	float p = 1.999289525e-04f;
	p = fused(p, x, 1.399745699e-03f);
	p = fused(p, x, 8.333072998e-03f);
	p = fused(p, x, 4.166531563e-02f);
	p = fused(p, x, 1.666666865e-01f);
	p = fused(p, x, 5.000000596e-01f);
	return fused(p * x, x, x);
}

INLINE float log_(float x) {
	if (x != x || x < 0) return nan_value();
	if (x == 0) return -infinity();
	if (x == infinity()) return x;
	int k = 0;
	if (x < 1.17549435e-38f) { x *= 16777216.0f; k = -24; }
	u32 b = as_bits(x);
	int e = (int)(b - 0x3f3504f3 + 0x3f800000) >> 23; // mantissa in [√½, √2)
	e -= 127;
	float f = as_float(b - ((u32)e << 23)) - 1.0f;
	float p = 6.925864518e-02f;
	p = fused(p, f, -1.180785894e-01f);
	p = fused(p, f, 1.187791452e-01f);
	p = fused(p, f, -1.238180622e-01f);
	p = fused(p, f, 1.421771646e-01f);
	p = fused(p, f, -1.666935682e-01f);
	p = fused(p, f, 2.000227273e-01f);
	p = fused(p, f, -2.499998510e-01f);
	p = fused(p, f, 3.333331048e-01f);
	float ff = f * f, n = (float)(e + k);
	float r = fused(p * f, ff, fused(-0.5f, ff, n * 1.42860677e-6f)) + f;
	return fused(n, 0.693145752f, r);
}

INLINE float log1p_(float x) {
	float u = 1.0f + x;
	if (u == 1.0f) return x;
	if (u == infinity()) return u;
	return log_(u) + (x - (u - 1.0f)) / u; // what rounding 1+x lost
}

INLINE float tanh_(float x) {
	float a = x < 0 ? -x : x, r;
	if (a < 0.6f) {
		float z = x * x, p = -5.905860569e-03f;
		p = fused(p, z, 2.080537751e-02f);
		p = fused(p, z, -5.378668010e-02f);
		p = fused(p, z, 1.333195865e-01f);
		p = fused(p, z, -3.333329856e-01f);
		return fused(p * z, x, x);
	}
	if (a > 10.0f) r = 1.0f;
	else r = 1.0f - 2.0f / (exp_(2.0f * a) + 1.0f); // a NaN too
	return x < 0 ? -r : r;
}

INLINE float sigmoid_(float x) {
	if (x >= 0) return 1.0f / (1.0f + exp_(-x));
	float e = exp_(x);
	return e / (1.0f + e);
}

INLINE float erf_below_1(float x) {
	float z = x * x, p = 7.889119297e-05f;
	p = fused(p, z, -8.020841051e-04f);
	p = fused(p, z, 5.189535208e-03f);
	p = fused(p, z, -2.685444430e-02f);
	p = fused(p, z, 1.128360033e-01f);
	p = fused(p, z, -3.761262596e-01f);
	p = fused(p, z, 1.128379107e+00f);
	return p * x;
}

INLINE float erfc_(float x) { // 1 - erf(x), precise where that is small
	float a = x < 0 ? -x : x;
	if (a < 1.0f) return 1.0f - erf_below_1(x);
	float r = 0;
	if (a < 10.5f || a != a) {
		float t = (a - 4.0f) / (a + 4.0f), p = 2.965460764e-03f;
		p = fused(p, t, -1.029974129e-02f);
		p = fused(p, t, 2.496085875e-02f);
		p = fused(p, t, -4.878490791e-02f);
		p = fused(p, t, 7.842851430e-02f);
		p = fused(p, t, -1.050033569e-01f);
		p = fused(p, t, 1.161769256e-01f);
		p = fused(p, t, -1.016699523e-01f);
		p = fused(p, t, 5.972347409e-02f);
		p = fused(p, t, 5.479978323e-01f);
		float s = a * a, lost = fused(a, a, -s);
		r = exp_(-s) * (1.0f - lost) * p / a;
	}
	return x < 0 ? 2.0f - r : r;
}

// The distribution function and the density of the normal distribution.
INLINE float normal_below(float x) { return 0.5f * erfc_(x * -0.707106781f); }
INLINE float normal_density(float x) { return 0.398942280f * exp_(-0.5f * x * x); }

// sine of x + quarter*π/2. The quarter turns are taken off in double precision.
INLINE float sine(float x, int quarter) {
	if (x != x || x == infinity() || x == -infinity()) return nan_value();
	double turns = round_even((double)x * 0.63661977236758134);
	double d = fused(turns, -1.5707963267948966, (double)x);
	d = fused(turns, -6.123233995736766e-17, d);
	float r = (float)d, z = r * r;
	quarter += (int)((i64)turns & 3);
	float s;
	if (quarter & 1) {
		float p = 2.443484482e-05f;
		p = fused(p, z, -1.388733741e-03f);
		p = fused(p, z, 4.166664556e-02f);
		s = fused(p * z, z, fused(-0.5f, z, 1.0f));
	} else {
		float p = 2.717939878e-06f;
		p = fused(p, z, -1.983929542e-04f);
		p = fused(p, z, 8.333329111e-03f);
		p = fused(p, z, -1.666666716e-01f);
		s = fused(p * z, r, r);
	}
	return quarter & 2 ? -s : s;
}

// a^e: small whole and half exponents exactly, others by logarithms in double
// precision.
INLINE double log_double(double a) { // of a float that is positive and finite
	u64 b = __builtin_bit_cast(u64, a);
	int e = (int)((b - 0x3fe6a09e667f3bcdull) >> 52); // of 2, in two's complement over 12 bits
	if (e >= 2048) e -= 4096;
	double m = __builtin_bit_cast(double, b - ((u64)(i64)e << 52));
	double s = (m - 1.0) / (m + 1.0), z = s * s, p = 0;
#pragma unroll
	for (int k = 15; k > 1; k -= 2) p = fused(p, z, 1.0 / k);
	return fused((double)e, 0.69314718055994531, 2.0 * fused(p * z, s, s));
}

INLINE float exp_double(double x) {
	if (x > 89.0) return infinity();
	if (x < -104.0) return 0;
	double k = round_even(x * 1.4426950408889634);
	double r = fused(k, -0.69314718055994531, x), p = 1.0;
#pragma unroll
	for (int n = 11; n > 0; n--) p = fused(p * (1.0 / n), r, 1.0);
	return (float)(p * __builtin_bit_cast(double, (u64)((i64)k + 1023) << 52));
}

INLINE float pow_(float a, float e) {
	if (e == 0 || a == 1.0f) return 1.0f;
	if (a != a || e != e) return nan_value();
	if (e == 1.0f) return a;
	if (e == 2.0f) return a * a;
	if (e == 3.0f) return a * a * a;
	if (e == -1.0f) return 1.0f / a;
	if (e == -2.0f) return 1.0f / (a * a);
	bool whole = floor_of(e) == e, odd = whole && floor_of(e * 0.5f) != e * 0.5f;
	float m = a < 0 ? -a : a, r;
	if (m == 0) r = e < 0 ? infinity() : 0;
	else if (m == infinity()) r = e < 0 ? 0 : infinity();
	else if (e == 0.5f) r = square_root(m);
	else if (e == -0.5f) r = 1.0f / square_root(m);
	else if (e == infinity() || e == -infinity()) r = m == 1.0f ? 1.0f : (m > 1.0f) == (e > 0) ? infinity() : 0;
	else r = exp_double((double)e * log_double(m));
	if (a >= 0 || (m == 0 && !odd)) return r;
	if (!whole) return m == infinity() ? r : nan_value();
	return odd ? -r : r;
}
