// The tensor cores, and copies that go on by themselves, on a CPU: in place of
// tensor.cuh. Of wmma, which does not say who has what, a thread of a warp has half
// a row of the sum, and what that needs of A and B; of ldmatrix and mma, what the PTX
// ISA says.
#pragma once

#include <string.h>

#include <vector>

template <float (*number)(unsigned)> struct Squares {
	struct Sum {
		float v[8];
	};
	struct A {
		float v[16];
	};
	struct B {
		float v[16][8];
	};
	INLINE int row() { return TID % 32 / 2; }
	INLINE int col() { return TID % 2 * 8; }
	INLINE void clear(Sum &s) { s = Sum(); }
	INLINE void store(float *to, const Sum &s, int line) { memcpy(to + row() * line + col(), s.v, sizeof s.v); }
	template <bool by_k> INLINE void load_a(A &a, const unsigned short *from, int line) {
		for (int k = 0; k < 16; k++) a.v[k] = number(by_k ? from[row() * line + k] : from[k * line + row()]);
	}
	template <bool by_k> INLINE void load_b(B &b, const unsigned short *from, int line) {
		for (int k = 0; k < 16; k++)
			for (int i = 0; i < 8; i++) b.v[k][i] = number(by_k ? from[(col() + i) * line + k] : from[k * line + col() + i]);
	}
	template <bool, bool> INLINE void multiply(Sum &s, const A &a, const B &b) {
		for (int k = 0; k < 16; k++)
			for (int i = 0; i < 8; i++) s.v[i] = fused(a.v[k], b.v[k][i], s.v[i]);
	}
};
INLINE float from_bfloat(unsigned b) { return __builtin_bit_cast(float, b << 16); }
typedef Squares<from_half> Float16;
typedef Squares<from_bfloat> Bfloat16;

struct Quad {
	u32 v[4];
};

// Copies of a thread are made when it waits for them, no sooner.
struct Copy {
	unsigned short *to;
	const char *from;
	bool there;
	int group;
};
struct Copies {
	std::vector<Copy> waiting;
	int ended = 0;
};
static Copies copies_of[256];

INLINE void copy_16(unsigned short *to, const char *from, bool there) {
	Copies &c = copies_of[TID];
	c.waiting.push_back({to, from, there, c.ended});
}
INLINE void copies_end() { copies_of[TID].ended++; }
template <int after> INLINE void copies_wait() {
	Copies &c = copies_of[TID];
	std::vector<Copy> left;
	for (const Copy &w : c.waiting)
		if (w.group >= c.ended - after) left.push_back(w);
		else if (w.there) memcpy(w.to, w.from, 16);
		else memset(w.to, 0, 16);
	c.waiting.swap(left);
}

template <bool transposed, class At> INLINE void load_squares(Quad &q, const At &at) {
	int row = TID % 32 / 4, col = TID % 4 * 2;
	for (int i = 0; i < 4; i++) {
		const unsigned short *first = transposed ? at(8 * i + col) + row : at(8 * i + row) + col;
		const unsigned short *second = transposed ? at(8 * i + col + 1) + row : first + 1;
		q.v[i] = *first | (u32)*second << 16;
	}
}

// Threads tell those of their warp what they have of A and B.
INLINE float half_of(int type, u32 both, int half) {
	u32 bits = both >> 16 * half & 0xffff;
	return type == BF16 ? from_bfloat(bits) : from_half(bits);
}
template <int type, int FM, int FN> INLINE void multiply_squares(float (&sum)[FM][2 * FN][4], const Quad (&a)[FM], const Quad (&b)[FN]) {
	static float all_a[8][FM][16][16], all_b[8][2 * FN][8][16]; // by warp and square: of a row, of a column, those by k
	int warp = TID / 32, lane = TID % 32, row = lane / 4, k = lane % 4 * 2;
	for (int half = 0; half < 2; half++)
		for (int x = 0; x < 4; x++) {
			for (int i = 0; i < FM; i++) all_a[warp][i][row + x % 2 * 8][k + x / 2 * 8 + half] = half_of(type, a[i].v[x], half);
			for (int j = 0; j < FN; j++) all_b[warp][2 * j + x / 2][row][k + x % 2 * 8 + half] = half_of(type, b[j].v[x], half);
		}
	WARP_SYNC();
	for (int i = 0; i < FM; i++)
		for (int j = 0; j < 2 * FN; j++)
			for (int x = 0; x < 4; x++)
				for (int k = 0; k < 16; k++)
					sum[i][j][x] = fused(all_a[warp][i][lane / 4 + x / 2 * 8][k], all_b[warp][j][lane % 4 * 2 + x % 2][k], sum[i][j][x]);
	WARP_SYNC();
}

INLINE u32 two_halves(int type, float first, float second) {
	return type == BF16 ? to_bfloat(first) | to_bfloat(second) << 16 : to_half(first) | to_half(second) << 16;
}
