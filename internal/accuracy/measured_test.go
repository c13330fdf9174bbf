package accuracy

import (
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// holdMeasured holds predictions against peaks measured on real GPUs to what
// memplan promises: the median and the 95th percentile of their errors, without
// signs and in percent.
func holdMeasured(t *testing.T, r *Results) {
	for _, want := range []struct {
		suite       string
		runs        int
		median, p95 float64
	}{
		{suiteTransformers, 19, 1, 8},
		{suiteCNNs, 15, 5, 18},
		{suiteMLPs, 167, 8, 20},
	} {
		list := r.measured(want.suite)
		for _, m := range list {
			if m.Failed != "" {
				t.Errorf("%s: %s", m.Name, m.Failed)
			}
		}
		errs := errorsOf(list, predicted)
		if len(errs) != want.runs {
			t.Errorf("%s: %d runs are compared, want %d", want.suite, len(errs), want.runs)
		}
		if m := quantile(errs, 0.5); m > want.median {
			t.Errorf("%s: the median of the errors is %.2f %%, want %v at most", want.suite, m, want.median)
		}
		if p := quantile(errs, 0.95); p > want.p95 {
			t.Errorf("%s: the 95th percentile of the errors is %.2f %%, want %v at most", want.suite, p, want.p95)
		}
	}
}

// TestTolerance holds the interval of reports to the measured runs, and to runs that
// it is computed without.
func TestTolerance(t *testing.T) {
	runs, err := LoadXMem(needs.File(t, "measured"))
	if err != nil {
		t.Fatal(err)
	}
	var list []*Measured
	for _, r := range runs {
		if r.Kind == "cnn" && !r.OOM {
			list = append(list, r.Compare())
		}
	}
	below, above := Tolerance(list)
	ran, inside := counts(list)
	if ran != 15 || inside < 14 {
		t.Errorf("%d of %d peaks lie in the interval", inside, ran)
	}
	for _, m := range list {
		if m.Failed != "" {
			t.Fatalf("%s: %s", m.Name, m.Failed)
		}
		low, high := float64(m.Predicted)*(1-below), float64(m.Predicted)*(1+above)
		if float64(m.Low) < 0.98*low || float64(m.High) < high || float64(m.High) > 1.01*high { // what is allocated is reserved, too
			t.Errorf("%s: %v to %v, by the runs %.0f to %.0f", m.Name, m.Low, m.High, low, high)
		}
	}
	ran, inside = 0, 0
	for _, l := range leaveOut(list) {
		t.Logf("%+v", l)
		ran, inside = ran+l.Runs, inside+l.Inside
	}
	if ran != 30 || float64(inside) < 0.9*float64(ran) {
		t.Errorf("%d of %d runs that were left out lie in the interval", inside, ran)
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		list    []float64
		q, want float64
	}{
		{nil, 0.5, 0},
		{[]float64{3}, 0.95, 3},
		{[]float64{1, 2}, 0.5, 1.5},
		{[]float64{0, 10, 20}, 0.95, 19},
		{[]float64{0, 10, 20}, 1, 20},
	} {
		if got := quantile(c.list, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.list, c.q, got, c.want)
		}
	}
}
