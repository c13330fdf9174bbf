// Random numbers.
#pragma once

// philox_word is word i%4 of block i/4 of Philox4x32-10, as in kernel.Philox.
INLINE u32 philox_word(u64 seed, u64 i) {
	u64 n = i / 4;
	u32 c0 = (u32)n, c1 = (u32)(n >> 32), c2 = 0, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
	for (int r = 0; r < 10; r++) {
		u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
		u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
		c1 = (u32)p1;
		c3 = (u32)p0;
		c0 = n0;
		c2 = n2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return i % 4 == 0 ? c0 : i % 4 == 1 ? c1 : i % 4 == 2 ? c2 : c3;
}

// kept says whether the element at place i outlives dropout: threshold is p in
// units of 2^-24, rounded up.
INLINE bool kept(u64 seed, i64 i, i64 threshold) { return (i64)(philox_word(seed, (u64)i) >> 8) >= threshold; }
