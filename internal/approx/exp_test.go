package approx

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestExp holds the exponential function against that of package math.
func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := (2*r.Float64() - 1) * math.Pow(10, 4*r.Float64()-2)
		if got, want := Exp(x), math.Exp(x); got != want && math.Abs(got-want) > 2e-13*want {
			t.Fatalf("exp(%v) is %v, not %v", x, got, want)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 700, -700, 709, -745, 1e300, -1e300} {
		if got, want := Exp(x), math.Exp(x); got != want && math.Abs(got-want) > 2e-13*want {
			t.Errorf("exp(%v) is %v, not %v", x, got, want)
		}
	}
	if got := Exp(math.NaN()); got == got {
		t.Errorf("exp(NaN) is %v", got)
	}
}

// TestTanh holds the hyperbolic tangent against that of package math.
func TestTanh(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	numbers := []float64{0, math.Inf(1), math.Inf(-1), 1e300, -1e300, 0x1p-10, -0x1p-10, 5e-324}
	for range 100_000 {
		numbers = append(numbers, (2*r.Float64()-1)*math.Pow(10, 8*r.Float64()-6))
	}
	for _, x := range numbers {
		if got, want := Tanh(x), math.Tanh(x); got != want && math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Fatalf("tanh(%v) is %v, not %v", x, got, want)
		}
	}
	if got := Tanh(math.NaN()); got == got {
		t.Errorf("tanh(NaN) is %v", got)
	}
}
