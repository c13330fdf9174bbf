package aten

import (
	"math"
	"testing"
)

// TestDroppedOut checks that what dropout multiplies with has the mean and the share of
// zeros that it must.
func TestDroppedOut(t *testing.T) {
	const n, p = 100_000, 0.3
	sum, zeros := 0.0, 0
	for i := range int64(n) {
		v := droppedOut(7, i, p)
		if sum += v; v == 0 {
			zeros++
		}
	}
	if m := sum / n; math.Abs(m-1) > 0.01 {
		t.Errorf("the mean is %v", m)
	}
	if share := float64(zeros) / n; math.Abs(share-p) > 0.01 {
		t.Errorf("the share of zeros is %v", share)
	}
}
