package array

import (
	"math"
	"slices"
	"testing"
)

// TestDynamicMap checks the values of 8 bits: fractions between 0.1 and 1 in 64
// parts (128 without a sign), and half as many for each power of ten below.
func TestDynamicMap(t *testing.T) {
	signed, unsigned := DynamicMap(true), DynamicMap(false)
	for _, c := range []struct {
		of   []float64
		at   int
		want float64
	}{
		{signed, 0, -(0.1 + 0.9*63.5/64)}, {signed, 126, -0.55e-6}, {signed, 127, 0}, {signed, 128, 0.55e-6}, {signed, 255, 1}, {signed, 254, 0.1 + 0.9*63.5/64},
		{unsigned, 0, 0}, {unsigned, 1, 0.325e-6}, {unsigned, 2, 0.775e-6}, {unsigned, 254, 0.1 + 0.9*127.5/128}, {unsigned, 255, 1},
	} {
		if len(c.of) != 256 || math.Abs(c.of[c.at]-c.want) > 1e-12 {
			t.Errorf("value %d of %d is %v, not %v", c.at, len(c.of), c.of[c.at], c.want)
		}
	}
	got, scales := Quantized8([]float64{2, -1, 0.5, 0, 3, -3}, signed, 4)
	want := []float64{2, -2 * (0.1 + 0.9*28.5/64), 2 * (0.1 + 0.9*10.5/64), 0, 3, -3 * (0.1 + 0.9*63.5/64)}
	if !slices.Equal(scales, []float64{2, 3}) {
		t.Errorf("scales %v", scales)
	}
	for i, v := range Dequantized8(got, signed, scales, 4) {
		if math.Abs(v-want[i]) > 1e-12 {
			t.Errorf("number %d comes back as %v, not %v", i, v, want[i])
		}
	}
}
