package cli

import (
	"strings"
	"testing"
)

// TestSayCompiling: that kernels are compiled is said where that is known.
func TestSayCompiling(t *testing.T) {
	for _, surely := range []bool{true, false} {
		var b strings.Builder
		sayCompiling(&b, surely)
		if strings.Contains(b.String(), "in the first step") != surely {
			t.Errorf("surely %v: %q", surely, b.String())
		}
	}
}
