package runtime

import (
	"math"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// TestPlaces checks the order in which elements of any strides are visited.
func TestPlaces(t *testing.T) {
	l := tensor.Contiguous(tensor.D(2, 3))
	for _, c := range []struct {
		layout tensor.Layout
		want   []int
	}{
		{l, []int{0, 1, 2, 3, 4, 5}},
		{l.Transpose(0, 1), []int{0, 3, 1, 4, 2, 5}},
		{l.Narrow(1, 0, 2, 2), []int{0, 2, 3, 5}},
		{tensor.Layout{Size: tensor.D(2, 2), Stride: tensor.D(0, 1)}, []int{0, 1, 0, 1}},
		{tensor.Contiguous(tensor.D()), []int{0}},
		{tensor.Contiguous(tensor.D(0, 3)), nil},
	} {
		var got []int
		places(c.layout, func(_, at int) { got = append(got, at) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.layout, got, c.want)
		}
	}
}

// TestRandomStatistics checks that what dropout multiplies with has the mean and the
// share of zeros that it must.
func TestRandomStatistics(t *testing.T) {
	const n, p = 100_000, 0.3
	s := kernel.NewStream(7)
	sum, zeros := 0.0, 0
	for range n {
		if v := array.Truth(s.Uniform() < 1-p) / (1 - p); v == 0 {
			zeros++
		} else {
			sum += v
		}
	}
	if m := sum / n; math.Abs(m-1) > 0.01 {
		t.Errorf("the mean is %v", m)
	}
	if share := float64(zeros) / n; math.Abs(share-p) > 0.01 {
		t.Errorf("the share of zeros is %v", share)
	}
}
