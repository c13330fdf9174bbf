package engine

import (
	"math"
	"testing"
)

// TestScale follows the factor of a GradScaler: it is halved at each infinity, and
// doubled after 2000 updates without one, as far as float32 reaches.
func TestScale(t *testing.T) {
	s := gradScaler{factor: initScale}
	for _, c := range []struct {
		infinite bool
		times    int
		want     float64
	}{
		{true, 2, 16384}, {false, 1999, 16384}, {true, 1, 8192}, {false, 1999, 8192}, {false, 1, 16384}, {false, 4000, 65536},
		{false, 2000 * 112, math.Ldexp(1, 127)},
	} {
		for range c.times {
			s.next(c.infinite)
		}
		if s.factor != c.want {
			t.Errorf("after %d updates, infinite %v: %v, not %v", c.times, c.infinite, s.factor, c.want)
		}
	}
}
