// Softmaxes: one block for each row. SIZES are those of the rows; each operand has
// besides a stride along its row.
#pragma once

// inner is the stride of an operand along its row of n elements. If safe is set, a row of
// -inf gives zeros.
extern "C" __global__ void __launch_bounds__(256)
softmax(i64 logarithm, i64 safe, i64 n, SIZES, TENSOR(y), i64 y_inner, TENSOR(a), i64 a_inner) {
	__shared__ float cells[256];
	SIZES_OF(s);
	VIEW(y); VIEW(a);
	Place at = place(s, BLOCK_X);
	i64 to = offset(y, at, s.rank), from = offset(a, at, s.rank);
	float m = -infinity();
	for (i64 i = TID; i < n; i += 256) m = larger(get(a, from + i * a_inner), m);
	m = reduce<Larger, 256>(m, cells);
	if (safe && m == -infinity()) m = 0;
	float z = 0;
	for (i64 i = TID; i < n; i += 256) z += exp_(get(a, from + i * a_inner) - m);
	z = reduce<Plus, 256>(z, cells);
	float l = logarithm ? log_(z) : 0;
	for (i64 i = TID; i < n; i += 256) {
		float v = get(a, from + i * a_inner) - m;
		put(y, to + i * y_inner, logarithm ? v - l : safe && z == 0 ? 0 : exp_(v) / z);
	}
}

extern "C" __global__ void __launch_bounds__(256)
softmax_grad(i64 logarithm, i64 n, SIZES, TENSOR(y), i64 y_inner, TENSOR(g), i64 g_inner, TENSOR(r), i64 r_inner) {
	__shared__ float cells[256];
	SIZES_OF(s);
	VIEW(y); VIEW(g); VIEW(r);
	Place at = place(s, BLOCK_X);
	i64 to = offset(y, at, s.rank), og = offset(g, at, s.rank), other = offset(r, at, s.rank);
	float sum = 0;
	for (i64 i = TID; i < n; i += 256) {
		float d = get(g, og + i * g_inner);
		sum += logarithm ? d : d * get(r, other + i * r_inner);
	}
	sum = reduce<Plus, 256>(sum, cells);
	for (i64 i = TID; i < n; i += 256) {
		float d = get(g, og + i * g_inner), v = get(r, other + i * r_inner);
		put(y, to + i * y_inner, logarithm ? d - exp_(v) * sum : v * (d - sum));
	}
}
