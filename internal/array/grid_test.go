package array

import (
	"math"
	"testing"
)

// TestGrid reads an image at its own pixels, and beyond the border, and holds gradients
// against differences.
func TestGrid(t *testing.T) {
	x := &Array{Size: []int{1, 1, 2, 3}, V: []float64{1, 2, 3, 4, 5, 6}}
	corners := &Array{Size: []int{1, 1, 3, 2}, V: []float64{-1, -1, 1, 1, 0, -1}} // columns first
	for _, mode := range []string{"bilinear", "nearest", "bicubic"} {
		g := Grid{Mode: mode, Padding: "zeros", Align: true}
		for i, want := range []float64{1, 6, 2} {
			if got := g.Sample(x, corners)[i]; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: pixel %d is %v, not %v", mode, i, got, want)
			}
		}
	}
	away := &Array{Size: []int{1, 1, 1, 2}, V: []float64{3, -1}} // two widths to the right of the middle
	for padding, want := range map[string]float64{"zeros": 0, "border": 3, "reflection": 1} {
		g := Grid{Mode: "nearest", Padding: padding, Align: true}
		if got := g.Sample(x, away)[0]; got != want {
			t.Errorf("%s: beyond the border is %v, not %v", padding, got, want)
		}
	}

	places := &Array{Size: []int{1, 2, 1, 2}, V: []float64{0.13, -0.41, -0.77, 1.21}}
	const h = 1e-6
	for _, mode := range []string{"bilinear", "bicubic"} {
		for _, padding := range []string{"zeros", "border", "reflection"} {
			g := Grid{Mode: mode, Padding: padding}
			grad := []float64{0.7, -1.1}
			sum := func() float64 {
				y := g.Sample(x, places)
				return grad[0]*y[0] + grad[1]*y[1]
			}
			gx, gp := g.SampleGrad(x, places, grad)
			for _, of := range []struct{ v, got []float64 }{{x.V, gx}, {places.V, gp}} {
				for i, got := range of.got {
					of.v[i] += h
					up := sum()
					of.v[i] -= 2 * h
					down := sum()
					of.v[i] += h
					if want := (up - down) / (2 * h); math.Abs(got-want) > 1e-6 {
						t.Errorf("%s, %s: a gradient is %v, not %v", mode, padding, got, want)
					}
				}
			}
		}
	}
}
