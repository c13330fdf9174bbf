package array

import (
	"math"
	"slices"
	"testing"
)

// TestPeaks takes the largest element of windows that divide a plane, of which one has a
// NaN, and puts gradients back.
func TestPeaks(t *testing.T) {
	x := &Array{Size: []int{1, 2, 5}, V: []float64{1, 3, 3, 0, 2, 5, 4, math.NaN(), 9, 9}}
	out := []int{3}
	values, index := x.Peaks(out, Adaptive([]int{5}, out)) // [0,2) [1,4) [3,5)
	if want := []float64{1, 1, 4, 0, 2, 3}; !slices.Equal(index, want) {
		t.Errorf("peaks at %v, not %v", index, want)
	}
	if values[0] != 3 || values[1] != 3 || values[3] != 5 || !math.IsNaN(values[4]) || values[5] != 9 {
		t.Errorf("peaks %v", values)
	}
	if got, want := PeaksGrad([]float64{1, 2, 3, 4, 5, 6}, index, []int{5}, out), []float64{0, 3, 0, 0, 3, 4, 0, 5, 6, 0}; !slices.Equal(got, want) {
		t.Errorf("gradient %v, not %v", got, want)
	}
	// The last window ends with the plane, whatever the sample.
	for _, sample := range []float64{0, 0.5, 0.999} {
		b := Fractional([]int{9}, []int{3}, []int64{2}, []float64{sample})
		end := 0
		for i := range 3 {
			from, to := b(0, []int{i})
			if to[0]-from[0] != 2 || from[0] < 0 || to[0] < end {
				t.Errorf("sample %v: window %d is [%d,%d)", sample, i, from[0], to[0])
			}
			end = to[0]
		}
		if end != 9 {
			t.Errorf("sample %v: windows end at %d", sample, end)
		}
	}
}

// TestOverlaid adds up windows of two elements in steps of one.
func TestOverlaid(t *testing.T) {
	a := &Array{Size: []int{3, 2}, V: []float64{1, 10, 2, 20, 3, 30}}
	if got, want := a.Overlaid([]int{4}, 0, 1), []float64{1, 12, 23, 30}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// TestScatter checks places with and without a source of other sizes, and what is outside.
func TestScatter(t *testing.T) {
	index := &Array{Size: []int{1, 2}, V: []float64{2, -3}} // the last one counts from the end
	var got [][2]int
	if err := Scatter([]int{2, 3}, 1, index, []int{2, 4}, func(from, to int) { got = append(got, [2]int{from, to}) }); err != nil {
		t.Fatal(err)
	}
	if want := [][2]int{{0, 2}, {1, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	got = nil
	if err := Slices([]int{2, 3}, 1, []float64{1}, func(from, to int) { got = append(got, [2]int{from, to}) }); err != nil {
		t.Fatal(err)
	}
	if want := [][2]int{{0, 1}, {1, 4}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	nothing := func(from, to int) {}
	for _, err := range []error{
		Scatter([]int{2, 3}, 1, &Array{Size: []int{1, 1}, V: []float64{3}}, nil, nothing), Slices([]int{3}, 0, []float64{-4}, nothing),
		(&Array{Size: []int{1, 1}, V: []float64{1}}).Renorm([]float64{1}, 2, 1),
	} {
		if err == nil {
			t.Error("an index that is outside is not refused")
		}
	}
	if _, err := OneHot([]float64{2}, 2); err == nil {
		t.Error("a class that is none is not refused")
	}
}

// TestBags checks three bags, of which one is empty, in each mode; weights, and a row that
// does not count.
func TestBags(t *testing.T) {
	table := &Array{Size: []int{3, 2}, V: []float64{1, -1, 2, 5, 4, 0}}
	g := &Array{Size: []int{3, 2}, V: []float64{1, 2, 3, 4, 5, 6}}
	for _, c := range []struct {
		mode      string
		y, gtable []float64
	}{
		{"sum", []float64{5, -1, 0, 0, 4, 10}, []float64{1, 2, 10, 12, 1, 2}},
		{"mean", []float64{2.5, -0.5, 0, 0, 2, 5}, []float64{0.5, 1, 5, 6, 0.5, 1}},
		{"max", []float64{4, 0, 0, 0, 2, 5}, []float64{0, 0, 5, 6, 1, 2}},
	} {
		b := Bags{Index: []float64{0, 2, 1, 1}, Offsets: []float64{0, 2, 2}, Mode: c.mode, Padding: -1}
		y, bagOf, counts, best, err := b.Sum(table, 3)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(y, c.y) || !slices.Equal(bagOf, []float64{0, 0, 2, 2}) || !slices.Equal(counts, []float64{2, 0, 2}) {
			t.Errorf("%s: %v of bags %v with %v rows, not %v", c.mode, y, bagOf, counts, c.y)
		}
		var got []float64
		if c.mode == "max" {
			got = MaxGrad(g, 3, best)
		} else if got, _, err = b.SumGrad(g, 3, counts, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.gtable) {
			t.Errorf("%s: gradient %v, not %v", c.mode, got, c.gtable)
		}
	}
	b := Bags{Index: []float64{0, 1}, Offsets: []float64{0}, Mode: "sum", Padding: 1, Weights: []float64{3, 1}}
	if y, _, _, _, err := b.Sum(table, 1); err != nil || !slices.Equal(y, []float64{3, -3}) {
		t.Errorf("with a weight and a row that does not count: %v, %v", y, err)
	}
	if _, gw, err := b.SumGrad(&Array{Size: []int{1, 2}, V: []float64{1, 2}}, 3, []float64{1}, table); err != nil || !slices.Equal(gw, []float64{-1, 0}) {
		t.Errorf("the gradient of weights is %v, %v", gw, err)
	}
	b.Index[0] = 3
	if _, _, _, _, err := b.Sum(table, 1); err == nil {
		t.Error("a row that is not there is not refused")
	}
}

// TestUnpool puts the elements of two planes into larger ones.
func TestUnpool(t *testing.T) {
	for _, c := range []struct {
		n       int
		out, in []int
		index   []float64
		want    []int
	}{
		{1, []int{2, 4}, []int{2, 2}, []float64{1, 3, 0, 2}, []int{1, 3, 4, 6}},
		{2, []int{1, 2, 2, 3}, []int{1, 2, 1, 2}, []float64{5, 0, 2, 3}, []int{5, 0, 8, 9}},
		{2, []int{2, 2, 3}, []int{2, 1, 2}, []float64{5, 5, 0, 6}, nil}, // outside
		{1, []int{2, 4}, []int{2, 2}, []float64{1, -1, 0, 2}, nil},
	} {
		var got []int
		err := Unpool(c.n, c.out, c.in, c.index, func(to, from int) {
			if from != len(got) {
				t.Errorf("%v: element %d comes behind %d others", c.index, from, len(got))
			}
			got = append(got, to)
		})
		if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, not %v", c.index, got, err, c.want)
		}
	}
}
