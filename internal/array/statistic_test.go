package array

import (
	"math"
	"slices"
	"testing"
)

// TestGroups checks which elements a reduction joins.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want [][]int
	}{
		{[]int64{1}, [][]int{{0, 1, 2}, {3, 4, 5}}},
		{[]int64{-2}, [][]int{{0, 3}, {1, 4}, {2, 5}}},
		{nil, [][]int{{0, 1, 2, 3, 4, 5}}},
	} {
		var got [][]int
		groups([]int{2, 3}, c.dims, func(_ int, at []int) { got = append(got, slices.Clone(at)) })
		if !slices.EqualFunc(got, c.want, slices.Equal[[]int]) {
			t.Errorf("dimensions %v: %v, not %v", c.dims, got, c.want)
		}
	}
}

// TestStatistics checks known values, and slopes against differences.
func TestStatistics(t *testing.T) {
	for _, c := range []struct {
		name   string
		of     func(x []float64) float64
		slopes func(x []float64, y float64) []float64
		want   float64 // of 1, -2 and 4
	}{
		{"variance", func(x []float64) float64 { return Variance(x, 1) }, func(x []float64, _ float64) []float64 { return VarianceSlopes(x, 1) }, 9},
		{"variance without correction", func(x []float64) float64 { return Variance(x, 0) }, func(x []float64, _ float64) []float64 { return VarianceSlopes(x, 0) }, 6},
		{"norm 1", func(x []float64) float64 { return Norm(x, 1) }, func(x []float64, y float64) []float64 { return NormSlopes(x, y, 1) }, 7},
		{"norm 2", func(x []float64) float64 { return Norm(x, 2) }, func(x []float64, y float64) []float64 { return NormSlopes(x, y, 2) }, math.Sqrt(21)},
		{"norm 3", func(x []float64) float64 { return Norm(x, 3) }, func(x []float64, y float64) []float64 { return NormSlopes(x, y, 3) }, math.Cbrt(73)},
		{"largest", func(x []float64) float64 { return Norm(x, math.Inf(1)) }, func(x []float64, y float64) []float64 { return NormSlopes(x, y, math.Inf(1)) }, 4},
		{"maximum", func(x []float64) float64 { return Extreme(x, true) }, SharedBy, 4},
		{"minimum", func(x []float64) float64 { return Extreme(x, false) }, SharedBy, -2},
		{"logsumexp", LogSumExp, func(x []float64, y float64) []float64 {
			return Each(len(x), func(i int) float64 { return math.Exp(x[i] - y) })
		}, math.Log(math.E + math.Exp(-2) + math.Exp(4))},
	} {
		x := []float64{1, -2, 4}
		y := c.of(x)
		if math.Abs(y-c.want) > 1e-12 {
			t.Errorf("%s is %v, not %v", c.name, y, c.want)
		}
		const h = 1e-6
		for i, got := range c.slopes(x, y) {
			at := func(d float64) float64 {
				moved := slices.Clone(x)
				moved[i] += d
				return c.of(moved)
			}
			if want := (at(h) - at(-h)) / (2 * h); math.Abs(got-want) > 1e-7 {
				t.Errorf("%s: slope %d is %v, not %v", c.name, i, got, want)
			}
		}
	}
	if got := SharedBy([]float64{3, 1, 3}, 3); !slices.Equal(got, []float64{0.5, 0, 0.5}) {
		t.Errorf("two extremes share %v", got)
	}
	if got := LogSumExp([]float64{math.Inf(-1), math.Inf(-1)}); !math.IsInf(got, -1) {
		t.Errorf("logsumexp of nothing is %v", got)
	}
	if got := Histogram([]float64{0, 0.5, 1, 2, 3, 9}, 3, 0, 3); !slices.Equal(got, []float64{2, 1, 2}) {
		t.Errorf("histogram %v", got)
	}
}
