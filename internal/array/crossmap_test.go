package array

import (
	"math"
	"slices"
	"testing"
)

// TestCrossMapNorm tells by powers of two which channels are in the windows: as in
// nn.CrossMapLRN2d the forward's of an even size are as those of one less, and keep the
// first channel; the backward's begin before the channel.
func TestCrossMapNorm(t *testing.T) {
	const channels = 6
	for _, c := range []struct {
		size              int
		forward, backward []float64 // of 2 to the power of each channel
	}{
		{2, []float64{1, 1 + 2, 1 + 4, 1 + 8, 1 + 16, 1 + 32}, []float64{1, 1 + 2, 2 + 4, 4 + 8, 8 + 16, 16 + 32}},
		{3, []float64{1 + 2, 1 + 2 + 4, 15, 1 + 4 + 8 + 16, 1 + 8 + 16 + 32, 1 + 16 + 32}, []float64{1, 1 + 2, 7, 14, 28, 56}},
		{4, []float64{1 + 2, 1 + 2 + 4, 15, 1 + 4 + 8 + 16, 1 + 8 + 16 + 32, 1 + 16 + 32}, []float64{1 + 2, 7, 15, 30, 60, 56}},
		{5, []float64{7, 15, 31, 63, 1 + 4 + 8 + 16 + 32, 1 + 8 + 16 + 32}, []float64{1 + 2, 7, 15, 31, 62, 60}},
	} {
		powers := Each(channels, func(i int) float64 { return math.Exp2(float64(i)) })
		roots, ones := Each(channels, func(i int) float64 { return math.Exp2(float64(i) / 2) }), Each(channels, func(int) float64 { return 1 })
		y, scale := CrossMapNorm(roots, 1, channels, 1, c.size, 2*float64(c.size), 0.5, 1)
		for i, v := range c.forward {
			if want := 2*v + 1; math.Abs(scale[i]-want) > 1e-9 || math.Abs(y[i]-roots[i]/math.Sqrt(want)) > 1e-9 {
				t.Errorf("size %d: channel %d is %v by a scale of %v, not %v", c.size, i, y[i], scale[i], want)
			}
		}
		got := CrossMapNormGrad(powers, ones, ones, ones, 1, channels, 1, c.size, float64(c.size), 0.5)
		for i := range got {
			got[i] = powers[i] - got[i]
		}
		if !slices.Equal(got, c.backward) {
			t.Errorf("size %d: the windows of the backward hold %v, not %v", c.size, got, c.backward)
		}
	}
}

// TestCrossMapNormOfMany: samples and places know nothing of one another, and of one
// channel the backward is the derivative.
func TestCrossMapNormOfMany(t *testing.T) {
	const samples, numbers = 2, 3
	for _, size := range []int{2, 3} {
		x, g := some(samples*numbers, 1), some(samples*numbers, 2)
		norm := func() (y, scale []float64) { return CrossMapNorm(x, samples, 1, numbers, size, 0.9, 0.75, 1.5) }
		y, scale := norm()
		gx := CrossMapNormGrad(g, x, y, scale, samples, 1, numbers, size, 0.9, 0.75)
		hold(t, "cross map", [][]float64{x}, [][]float64{gx}, g, func() []float64 { y, _ := norm(); return y })
	}
	x, g := some(24, 3), some(24, 4)
	y, scale := CrossMapNorm(x, 2, 4, 3, 3, 0.9, 0.75, 1.5)
	gx := CrossMapNormGrad(g, x, y, scale, 2, 4, 3, 3, 0.9, 0.75)
	for n := range 2 {
		for i := range 3 {
			part := func(v []float64) []float64 { return Each(4, func(c int) float64 { return v[(n*4+c)*3+i] }) }
			y1, scale1 := CrossMapNorm(part(x), 1, 4, 1, 3, 0.9, 0.75, 1.5)
			if gx1 := CrossMapNormGrad(part(g), part(x), y1, scale1, 1, 4, 1, 3, 0.9, 0.75); !slices.Equal(part(y), y1) || !slices.Equal(part(gx), gx1) {
				t.Errorf("sample %d, place %d: %v and %v alone are %v and %v", n, i, part(y), part(gx), y1, gx1)
			}
		}
	}
}
