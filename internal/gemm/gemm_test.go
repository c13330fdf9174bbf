package gemm

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// random is a matrix of some strides.
func random[T Float](r *rand.Rand, rows, columns int) Matrix[T] {
	m := Matrix[T]{nil, rows, columns, columns + r.IntN(3), 1}
	if r.IntN(2) == 0 {
		m.Row, m.Column = 1, rows+r.IntN(3)
	} else if r.IntN(4) == 0 {
		m.Row, m.Column = 3*columns+1, 3
	}
	m.Data = make([]T, rows*max(m.Row, 1)+columns*m.Column+1)
	for i := range m.Data {
		m.Data[i] = T(r.NormFloat64())
	}
	return m
}

// TestKernels multiplies by each kernel that the processor has and expects the bits
// of the one in Go, and numbers that are near to exact sums.
func TestKernels(t *testing.T) {
	t.Run("float32", testKernels[float32])
	t.Run("float64", testKernels[float64])
}

func testKernels[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := kernels[T]()
	for range 60 {
		m, n, k := 1+r.IntN(80), 1+r.IntN(90), r.IntN(3*Depth)
		a, b, c := random[T](r, m, k), random[T](r, k, n), random[T](r, m, n)
		alpha := T([]float64{1, 0.3, -2}[r.IntN(3)])
		if len(a.Data) > 0 && len(b.Data) > 0 && r.IntN(4) == 0 {
			a.Data[r.IntN(len(a.Data))], b.Data[r.IntN(len(b.Data))] = T(math.Inf(1)), 0
		}
		var want []T
		packed := c
		packed.Data = slices.Clone(c.Data)
		Pack(b).Add(alpha, a, packed)
		for i := len(all) - 1; i >= 0; i-- {
			got := c
			got.Data = slices.Clone(c.Data)
			all[i].product(alpha, a, b, got)
			if i == 0 && fmt.Sprint(got.Data) != fmt.Sprint(packed.Data) {
				t.Fatalf("%dx%dx%d: packed, the product differs", m, n, k)
			}
			if want == nil {
				want = got.Data
				near(t, alpha, a, b, c, got)
				continue
			}
			for j, v := range got.Data {
				if v != want[j] && (v == v || want[j] == want[j]) || v == 0 && math.Signbit(float64(v)) != math.Signbit(float64(want[j])) {
					t.Fatalf("%s, %dx%dx%d: number %d is %v, in Go %v", all[i].name, m, n, k, j, v, want[j])
				}
			}
		}
	}
}

func near[T Float](t *testing.T, alpha T, a, b, c, got Matrix[T]) {
	t.Helper()
	epsilon := 0x1p-23
	if _, double := any(alpha).(float64); double {
		epsilon = 0x1p-52
	}
	for i := range c.Rows {
		for j := range c.Columns {
			sum := float64(c.Data[i*c.Row+j*c.Column])
			size := math.Abs(sum)
			for k := range a.Columns {
				p := float64(alpha) * float64(a.Data[i*a.Row+k*a.Column]) * float64(b.Data[k*b.Row+j*b.Column])
				sum += p
				size += math.Abs(p)
			}
			if v := float64(got.Data[i*c.Row+j*c.Column]); math.Abs(v-sum) > size*epsilon*float64(a.Columns+2) {
				t.Fatalf("[%d,%d] is %v, not %v", i, j, v, sum)
			}
		}
	}
}

// TestFMA holds the sums of the kernel in Go against exact ones, most of them half
// way between two numbers.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		x := float32(1+r.IntN(1<<12)) * float32(math.Ldexp(1, r.IntN(60)-100))
		y := float32(1+r.IntN(1<<12)) * float32(math.Ldexp(1, r.IntN(60)-60))
		z := float32(math.Ldexp(float64(1+r.IntN(1<<24)), r.IntN(80)-149))
		if r.IntN(2) == 0 {
			x = -x
		}
		exact := new(big.Float).SetPrec(1000).SetFloat64(float64(x))
		exact.Mul(exact, big.NewFloat(float64(y)))
		exact.Add(exact, new(big.Float).SetFloat64(float64(z)))
		if want, _ := exact.Float32(); fma32(x, y, z) != want {
			t.Fatalf("%v * %v + %v is %v, not %v", x, y, z, fma32(x, y, z), want)
		}
	}
}

func BenchmarkKernels(b *testing.B) {
	for _, k := range kernels[float32]() {
		for _, n := range []int{64, 256, 1024} {
			if k.name == "Go" && n > 256 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", k.name, n), func(b *testing.B) {
				r := rand.New(rand.NewPCG(5, 6))
				m := [3]Matrix[float32]{}
				for i := range m {
					m[i] = random[float32](r, n, n)
					m[i].Row, m[i].Column = n, 1
				}
				for b.Loop() {
					k.product(1, m[0], m[1], m[2])
				}
				b.ReportMetric(float64(2*n*n*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
