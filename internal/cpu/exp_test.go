package cpu

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
		if got, want := exp(x), math.Exp(x); got != want && math.Abs(got-want) > 2e-13*want {
			t.Fatalf("exp(%v) is %v, not %v", x, got, want)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 700, -700, 709, -745, 1e300, -1e300} {
		if got, want := exp(x), math.Exp(x); got != want && math.Abs(got-want) > 2e-13*want {
			t.Errorf("exp(%v) is %v, not %v", x, got, want)
		}
	}
	if got := exp(math.NaN()); got == got {
		t.Errorf("exp(NaN) is %v", got)
	}
}
