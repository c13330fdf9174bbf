package optim

import (
	"math"
	"testing"
)

// TestCubic looks for the minimum of cubics through two points.
func TestCubic(t *testing.T) {
	for _, c := range []struct {
		a, b              point
		least, most, want float64
	}{
		{point{t: 0, f: 1, slope: -2}, point{t: 2, f: 1, slope: 2}, 0, 2, 1},               // (t-1)²
		{point{t: 2, f: 1, slope: 2}, point{t: 0, f: 1, slope: -2}, 0, 2, 1},               // the same, the other way round
		{point{t: 0, f: 0, slope: -3}, point{t: 2, f: 2, slope: 9}, 0, 2, 1},               // t³-3t
		{point{t: 0, f: 1, slope: -2}, point{t: 0.5, f: 0.25, slope: -1}, 0.505, 5, 1},     // beyond both
		{point{t: 0, f: 1, slope: -2}, point{t: 0.5, f: 0.25, slope: -1}, 0.505, 0.8, 0.8}, // and beyond the bound
		{point{t: 0, f: 0, slope: 1}, point{t: 2, f: 2 + 8.0/3, slope: 5}, 0, 2, 1},        // t + t³/3 has no minimum: the middle
	} {
		if got := cubic(c.a, c.b, c.least, c.most); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("between %v and %v: %v, not %v", c.a, c.b, got, c.want)
		}
	}
}
