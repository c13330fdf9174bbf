package array

import (
	"math"
	"slices"
	"testing"
)

// TestOrder checks that equal numbers stay in their order, and where NaNs go.
func TestOrder(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		v        []float64
		largest  bool
		order    []int
		best     int
		inMedian float64
	}{
		{[]float64{2, 1, 2, 1, 3}, false, []int{1, 3, 0, 2, 4}, 1, 2},
		{[]float64{2, 1, 2, 1, 3}, true, []int{4, 0, 2, 1, 3}, 4, 2},
		{[]float64{5, 7}, false, []int{0, 1}, 0, 5}, // the lower of two
		{[]float64{1, nan, 0}, false, []int{2, 0, 1}, 1, nan},
		{[]float64{1, nan, 0}, true, []int{1, 0, 2}, 1, nan},
	} {
		if got := Order(c.v, c.largest); !slices.Equal(got, c.order) {
			t.Errorf("%v, largest first %v: order %v, not %v", c.v, c.largest, got, c.order)
		}
		if got := Best(c.v, c.largest); got != c.best {
			t.Errorf("%v, largest %v: the extreme is at %d, not %d", c.v, c.largest, got, c.best)
		}
		order := Order(c.v, false)
		if got := c.v[order[Median(c.v, order)]]; got != c.inMedian && !(math.IsNaN(got) && math.IsNaN(c.inMedian)) {
			t.Errorf("%v: median %v, not %v", c.v, got, c.inMedian)
		}
	}
}

// TestPick takes two numbers of each row along each dimension, and puts them back.
func TestPick(t *testing.T) {
	a := &Array{Size: []int{2, 3}, V: []float64{3, 1, 2, 6, 4, 5}}
	for _, c := range []struct {
		d               int
		values, indices []float64
		back            []float64
	}{
		{1, []float64{1, 2, 4, 5}, []float64{1, 2, 1, 2}, []float64{0, 1, 2, 0, 4, 5}},
		{0, []float64{3, 1, 2, 6, 4, 5}, []float64{0, 0, 0, 1, 1, 1}, a.V},
	} {
		values, indices := a.Pick(c.d, 2, func(row []float64) []int { return Order(row, false) })
		if !slices.Equal(values, c.values) || !slices.Equal(indices, c.indices) {
			t.Errorf("along %d: %v at %v, not %v at %v", c.d, values, indices, c.values, c.indices)
		}
		if got := Unpick(a.Size, c.d, 2, values, indices); !slices.Equal(got, c.back) {
			t.Errorf("along %d they go back to %v, not %v", c.d, got, c.back)
		}
	}
	one := &Array{V: []float64{7}}
	if values, indices := one.Pick(0, 1, func(row []float64) []int { return []int{0} }); values[0] != 7 || indices[0] != 0 {
		t.Errorf("of a number without dimensions: %v at %v", values, indices)
	}
}

// TestRunning checks sums, extremes and products so far, and that the gradient of a
// product with zeros is finite.
func TestRunning(t *testing.T) {
	a := &Array{Size: []int{2, 2}, V: []float64{1, 2, 3, 4}}
	a.Running(0, func(sum, x float64) float64 { return sum + x })
	if want := []float64{1, 2, 4, 6}; !slices.Equal(a.V, want) {
		t.Errorf("running sums %v, not %v", a.V, want)
	}
	g := &Array{Size: []int{3}, V: []float64{1, 10, 100}}
	g.SumBehind(0)
	if want := []float64{111, 110, 100}; !slices.Equal(g.V, want) {
		t.Errorf("sums of what is behind %v, not %v", g.V, want)
	}
	x := &Array{Size: []int{4}, V: []float64{2, 5, 5, 1}}
	if values, indices := x.Extremes(0, true); !slices.Equal(values, []float64{2, 5, 5, 5}) || !slices.Equal(indices, []float64{0, 1, 2, 2}) {
		t.Errorf("extremes %v at %v", values, indices)
	}
	p := &Array{Size: []int{3}, V: []float64{2, 0, 3}}
	if got := p.ProductsGrad([]float64{1}, 0, true); !slices.Equal(got, []float64{0, 6, 0}) {
		t.Errorf("the gradient of a product with a zero is %v", got)
	}
	if got := p.ProductsGrad([]float64{1, 1, 1}, 0, false); !slices.Equal(got, []float64{1, 8, 0}) {
		t.Errorf("the gradient of running products with a zero is %v", got)
	}
}

// TestSearch checks both sides of values that equal a boundary, and rows of boundaries.
func TestSearch(t *testing.T) {
	one, rows := &Array{Size: []int{3}, V: []float64{1, 3, 5}}, &Array{Size: []int{2, 2}, V: []float64{0, 1, 10, 20}}
	values := &Array{Size: []int{2, 2}, V: []float64{0, 3, 4, 9}}
	for _, c := range []struct {
		boundaries *Array
		right      bool
		want       []float64
	}{
		{one, false, []float64{0, 1, 2, 3}}, {one, true, []float64{0, 2, 2, 3}},
		{rows, false, []float64{0, 2, 0, 0}}, {rows, true, []float64{1, 2, 0, 0}},
	} {
		if got := Search(c.boundaries, values, c.right); !slices.Equal(got, c.want) {
			t.Errorf("boundaries %v, right %v: %v, not %v", c.boundaries.V, c.right, got, c.want)
		}
	}
}
