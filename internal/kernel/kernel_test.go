package kernel

import "testing"

// TestNumbers: a kernel has the number of its place, or none and a formula.
func TestNumbers(t *testing.T) {
	for name, k := range byName {
		if i := k.Index(); k.Formula == nil && all[i] != k || k.Formula != nil && i != -1 {
			t.Errorf("%s has number %d", name, i)
		}
	}
	if len(All()) != len(byName) {
		t.Errorf("%d kernels of %d are listed", len(All()), len(byName))
	}
}
