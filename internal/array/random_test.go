package array

import (
	"math"
	"slices"
	"testing"
)

// TestMultinomial checks that what has no weight is not drawn, nor anything twice
// without replacement.
func TestMultinomial(t *testing.T) {
	next := 0.0
	uniform := func() float64 { next = math.Mod(next+0.37, 1); return next }
	picked, err := Multinomial([]float64{1, 0, 3, 2}, 3, false, uniform)
	slices.Sort(picked)
	if err != nil || !slices.Equal(picked, []float64{0, 2, 3}) {
		t.Errorf("%v, %v", picked, err)
	}
	for _, weights := range [][]float64{{1, -1}, {math.NaN()}, {0, 1, 0}} {
		if _, err := Multinomial(weights, 2, false, uniform); err == nil {
			t.Errorf("weights %v: no error", weights)
		}
	}
	order := Permutation(5, uniform)
	slices.Sort(order)
	if !slices.Equal(order, []float64{0, 1, 2, 3, 4}) {
		t.Errorf("a permutation has %v", order)
	}
}
