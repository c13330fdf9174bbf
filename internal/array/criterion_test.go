package array

import (
	"math"
	"slices"
	"testing"
)

// TestCriteria holds the slopes of losses against differences, on both sides of where
// they change their form, and knows some values.
func TestCriteria(t *testing.T) {
	const h = 1e-6
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-7 {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	for _, d := range []float64{-2, -0.3, 0.4, 1.7} {
		near("slope of smooth_l1", SmoothL1Slope(d, 0.5), (SmoothL1(d+h, 0.5)-SmoothL1(d-h, 0.5))/(2*h))
		near("slope of huber", HuberSlope(d, 0.5), (Huber(d+h, 0.5)-Huber(d-h, 0.5))/(2*h))
		near("huber", Huber(d, 0.5), 0.5*SmoothL1(d, 0.5))
		byX, byTarget := LogitEntropySlopes(d, 0.3, 1.5, 2)
		near("slope of the entropy of a logit", byX, (LogitEntropy(d+h, 0.3, 1.5, 2)-LogitEntropy(d-h, 0.3, 1.5, 2))/(2*h))
		near("slope by its target", byTarget, (LogitEntropy(d, 0.3+h, 1.5, 2)-LogitEntropy(d, 0.3-h, 1.5, 2))/(2*h))
		near("entropy of a logit", LogitEntropy(d, 0.3, 1.5, 1), CrossEntropy(Logistic(d), 0.3, 1.5))
	}
	byP, byTarget := CrossEntropySlopes(0.2, 0.7, 1.5)
	near("slope of the entropy", byP, (CrossEntropy(0.2+h, 0.7, 1.5)-CrossEntropy(0.2-h, 0.7, 1.5))/(2*h))
	near("slope by its target", byTarget, (CrossEntropy(0.2, 0.7+h, 1.5)-CrossEntropy(0.2, 0.7-h, 1.5))/(2*h))
	near("entropy of what cannot be", CrossEntropy(0, 1, 1), 100)
}

// TestMargins checks the losses of margins of two rows, and their gradients.
func TestMargins(t *testing.T) {
	x := &Array{Size: []int{2, 3}, V: []float64{0.5, 0.2, -1, 1, 2, 3}}
	m := Margin{Margin: 1, P: 1, Weight: []float64{1, 2, 4}}
	if got, want := m.Losses(x, []float64{0, 2}), []float64{0.7 / 3, 0}; math.Abs(got[0]-want[0]) > 1e-12 || math.Abs(got[1]-want[1]) > 1e-12 {
		t.Errorf("losses %v, not %v", got, want)
	}
	if got, want := m.Grad(x, []float64{1, 2}, []float64{3, 3}), []float64{2, -2, 0, 0, 0, 0}; !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("gradient %v, not %v", got, want)
	}
	targets := []float64{1, -1, 0, 0, 1, -1} // one class, and two
	losses, is := Multilabel(x, targets)
	if want := []float64{1.3 / 3, (3 + 2) / 3.0}; math.Abs(losses[0]-want[0]) > 1e-12 || math.Abs(losses[1]-want[1]) > 1e-12 {
		t.Errorf("losses %v, not %v", losses, want)
	}
	if want := []float64{0, 1, 0, 1, 1, 0}; !slices.Equal(is, want) {
		t.Errorf("classes %v, not %v", is, want)
	}
	if got, want := MultilabelGrad(x, targets, []float64{3, 3}), []float64{1, -1, 0, -1, -1, 2}; !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("gradient %v, not %v", got, want)
	}
}
