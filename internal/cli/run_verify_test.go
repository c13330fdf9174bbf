package cli

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/report"
)

// TestVerified: a loss that is further away than rounding makes it is found, and so is one that
// is missing or no number.
func TestVerified(t *testing.T) {
	for _, c := range []struct {
		losses    []report.Loss
		precision string
		within    bool
	}{
		{[]report.Loss{2.3, 2.2, 9}, "fp32", true},
		{[]report.Loss{2.3, 2.2004}, "fp32", false},
		{[]report.Loss{2.3, 2.2004}, "amp-bf16", true},
		{[]report.Loss{2.3}, "fp32", false},
		{[]report.Loss{2.3, report.Loss(math.NaN())}, "fp32", false},
	} {
		if v := verified(c.losses, []float64{2.3, 2.2}, c.precision); v.Within != c.within {
			t.Errorf("%v in %s: %+v", c.losses, c.precision, v)
		}
	}
	if v := verified(nil, nil, "fp32"); v.Within {
		t.Error("no loss is as in float64")
	}
}
