package accuracy

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// TestMeasured holds predictions against peaks measured on real GPUs to what
// memplan promises: the median and the 95th percentile of their errors, without
// signs and in percent.
func TestMeasured(t *testing.T) {
	needs.Time(t, "plays all recordings")
	r := results(t)
	for _, want := range []struct {
		suite       string
		runs        int
		median, p95 float64
	}{
		{suiteTransformers, 19, 1, 8},
		{suiteCNNs, 15, 2, 6},
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

// TestMeasuredIntervals holds the intervals that workspaces of cuDNN ask for to
// what memplan promises.
func TestMeasuredIntervals(t *testing.T) {
	needs.Time(t, "plays all recordings")
	list := results(t).measured(suiteCNNs)
	runs, inside := counts(list)
	if float64(inside) < 0.9*float64(runs) {
		t.Errorf("%d of %d peaks lie in the interval", inside, runs)
	}
	for _, m := range list {
		if m.Skipped == "" && m.Width() > 15 {
			t.Errorf("%s: the interval is %.1f %% wide", m.Name, m.Width())
		}
	}
}

// TestLeftOut checks that every family is left out once, and that the filter
// gradients of first layers are foretold by other families' runs.
func TestLeftOut(t *testing.T) {
	needs.Time(t, "plays all recordings")
	for _, l := range results(t).LeftOut {
		if len(l.Errors) == 0 {
			t.Errorf("%s: no runs", l.Family)
		}
		for _, e := range l.Errors {
			if (l.Family == "MnasNet" || l.Family == "MobileNetV2") && math.Abs(e) > 5 {
				t.Errorf("%s: an error of %.1f %%", l.Family, e)
			}
		}
	}
	if n := len(results(t).LeftOut); n != 5 {
		t.Errorf("%d families, want 5", n)
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
