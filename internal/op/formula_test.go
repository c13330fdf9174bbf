package op

import (
	"fmt"
	"testing"
)

// TestParseFormula: what does not parse is said where the package starts.
func TestParseFormula(t *testing.T) {
	for _, c := range []struct{ text, panics string }{
		{"-grad * (self + 2).exp() / max(self, other)", ""},
		{"grad * (self", "op: formula grad * (self lacks a )"},
		{"exp(self", "op: formula exp(self lacks a )"},
		{"self.pow(2", "op: formula self.pow(2 lacks a )"},
		{"grad)", "op: formula grad) ends in )"},
	} {
		func() {
			defer func() {
				got := ""
				if e := recover(); e != nil {
					got = fmt.Sprint(e)
				}
				if got != c.panics {
					t.Errorf("%s: %q, not %q", c.text, got, c.panics)
				}
			}()
			ParseFormula(c.text, nil)
		}()
	}
}
