// The tensor cores: the 32 threads of a warp multiply a square A of 16×16 numbers of
// half precision by another, B, with sums in float32. Which thread has which element
// is the hardware's matter (PTX ISA, wmma). Of float16 since compute capability
// 7.0, of bfloat16 since 8.0. The emulator has another file in its place.
//
// Panels lie as HalfPanel has them: by_k says that neighbours in k lie together. For
// the instruction, A is then row by row, and B, which is rows of k here, column by
// column.
#pragma once

struct Sum16 {
	float v[8];
};

// What PTX wants in later versions, and does not know in that of sm_70.
#ifdef MODULE_80
#define ALIGNED ".aligned"
#else
#define ALIGNED ""
#endif

// The address of shared memory as instructions want it.
INLINE u32 shared_address(const void *p) { return (u32)(u64)(const __attribute__((address_space(3))) void *)p; }

#define WMMA_LOAD_8(what, layout, type, to, at, line) \
	asm volatile("wmma.load." what ".sync" ALIGNED "." layout ".m16n16k16.shared." type " {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" \
		: "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]), "=r"(to[6]), "=r"(to[7]) : "r"(at), "r"(line) : "memory")
#define WMMA_LOAD_4(what, layout, type, to, at, line) \
	asm volatile("wmma.load." what ".sync" ALIGNED "." layout ".m16n16k16.shared." type " {%0, %1, %2, %3}, [%4], %5;" \
		: "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at), "r"(line) : "memory")

template <class H> struct Squares {
	typedef Sum16 Sum;
	INLINE void clear(Sum &s) {
#pragma unroll
		for (int i = 0; i < 8; i++) s.v[i] = 0;
	}
	INLINE void store(float *to, const Sum &s, int line) {
		asm volatile("wmma.store.d.sync" ALIGNED ".row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;" ::"r"(shared_address(to)), "f"(s.v[0]),
			"f"(s.v[1]), "f"(s.v[2]), "f"(s.v[3]), "f"(s.v[4]), "f"(s.v[5]), "f"(s.v[6]), "f"(s.v[7]), "r"(line) : "memory");
	}
};

#ifdef MODULE_70
struct Float16 : Squares<Float16> {
	struct A {
		int v[8];
	};
	typedef A B;
	template <bool by_k> INLINE void load_a(A &a, const unsigned short *from, int line) {
		u32 at = shared_address(from);
		if (by_k) WMMA_LOAD_8("a", "row", "f16", a.v, at, line);
		else WMMA_LOAD_8("a", "col", "f16", a.v, at, line);
	}
	template <bool by_k> INLINE void load_b(B &b, const unsigned short *from, int line) {
		u32 at = shared_address(from);
		if (by_k) WMMA_LOAD_8("b", "col", "f16", b.v, at, line);
		else WMMA_LOAD_8("b", "row", "f16", b.v, at, line);
	}
	template <bool a_by_k, bool b_by_k> INLINE void multiply(Sum &s, const A &a, const B &b) {
		__hmma_m16n16k16_mma_f32f32(s.v, a.v, b.v, s.v, (a_by_k ? 0 : 2) + (b_by_k ? 1 : 0), 0);
	}
};
#endif

#ifdef MODULE_80
struct Bfloat16 : Squares<Bfloat16> {
	struct A {
		int v[4];
	};
	typedef A B;
	template <bool by_k> INLINE void load_a(A &a, const unsigned short *from, int line) {
		u32 at = shared_address(from);
		if (by_k) WMMA_LOAD_4("a", "row", "bf16", a.v, at, line);
		else WMMA_LOAD_4("a", "col", "bf16", a.v, at, line);
	}
	template <bool by_k> INLINE void load_b(B &b, const unsigned short *from, int line) {
		u32 at = shared_address(from);
		if (by_k) WMMA_LOAD_4("b", "col", "bf16", b.v, at, line);
		else WMMA_LOAD_4("b", "row", "bf16", b.v, at, line);
	}
	template <bool a_by_k, bool b_by_k> INLINE void multiply(Sum &s, const A &a, const B &b) {
		__mma_bf16_m16n16k16_mma_f32(s.v, a.v, b.v, s.v, (a_by_k ? 0 : 2) + (b_by_k ? 1 : 0), 0);
	}
};
#endif

// What is there since compute capability 8.0: copies from global to shared memory
// that go on by themselves, loads of squares of 8×8 for all threads of a warp, and
// products of 16×16 by 16×8. Which thread has which element is said by the PTX ISA
// (ldmatrix, mma.m16n8k16).
#ifdef MODULE_80
struct Quad {
	u32 v[4];
};

// copy_16 begins to copy 16 bytes, or to write zeros if they are not there.
// copies_end ends a group of copies; copies_wait waits until of the groups of this
// thread all but the last `after` have come.
INLINE void copy_16(unsigned short *to, const char *from, bool there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
INLINE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int after> INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(after) : "memory"); }

// load_squares loads four squares; at(lane) is the place of a row of 8 numbers: of
// the first square for lanes 0 to 7, and so on. Thread i of the warp then has, of
// each, numbers i%4*2 and i%4*2+1 of row i/4, or of column i/4 if transposed.
template <bool transposed, class At> INLINE void load_squares(Quad &q, const At &at) {
	u32 from = shared_address(at(TID % 32));
	if (transposed)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(q.v[0]), "=r"(q.v[1]), "=r"(q.v[2]), "=r"(q.v[3]) : "r"(from) : "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(q.v[0]), "=r"(q.v[1]), "=r"(q.v[2]), "=r"(q.v[3]) : "r"(from) : "memory");
}

// multiply_squares adds A times B to sums of 16×8: of A, 16×16 in a Quad, of B, 16×8
// in each half of one.
#define MMA(type, s, a, b0, b1) \
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
		: "+f"((s)[0]), "+f"((s)[1]), "+f"((s)[2]), "+f"((s)[3]) : "r"((a).v[0]), "r"((a).v[1]), "r"((a).v[2]), "r"((a).v[3]), "r"(b0), "r"(b1))
template <int type, int FM, int FN> INLINE void multiply_squares(float (&sum)[FM][2 * FN][4], const Quad (&a)[FM], const Quad (&b)[FN]) {
#pragma unroll
	for (int j = 0; j < 2 * FN; j++)
#pragma unroll
		for (int i = 0; i < FM; i++) {
			if (type == BF16) MMA("bf16", sum[i][j], a[i], b[j / 2].v[j % 2 * 2], b[j / 2].v[j % 2 * 2 + 1]);
			else MMA("f16", sum[i][j], a[i], b[j / 2].v[j % 2 * 2], b[j / 2].v[j % 2 * 2 + 1]);
		}
}

// Two numbers in half precision, the first in the lower half.
INLINE u32 two_halves(int type, float first, float second) {
	u32 both;
	if (type == BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
	else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
	return both;
}
#endif
