package cli

import (
	"strings"
	"testing"
)

// TestWhileCompiling: that kernels are compiled is said before it is done where that is known.
func TestWhileCompiling(t *testing.T) {
	for _, surely := range []bool{true, false} {
		var b strings.Builder
		said := ""
		whileCompiling(&b, surely, func() { said = b.String() })
		if strings.Contains(said, "15 to 20 s") != surely || b.String() != said {
			t.Errorf("surely %v: %q, and %q in the end", surely, said, b.String())
		}
	}
}
