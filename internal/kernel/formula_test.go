package kernel

import (
	"fmt"
	"strings"
	"testing"
)

// TestElementwise: a formula with a name that is nothing, or without one that it was
// given, is refused where it is made.
func TestElementwise(t *testing.T) {
	for _, c := range []struct{ operands, numbers, line, want string }{
		{"p", "lr", "p = p - rl*g", "rl is no operand, number or variable"},
		{"p m", "lr", "p = p - lr*g", "m is in no line"},
		{"p", "lr eps", "p = p - lr*g", "eps is in no line"},
		{"p m?", "lr", "when n: p = p - lr*m*g", "n is no operand"},
		{"p", "lr", "p - lr*g", "has no ="},
		{"p", "lr", "p = root(p) - lr*g", "no function root"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("%s: %s, not %s", c.line, got, c.want)
				}
			}()
			Elementwise("wrong", c.operands, c.numbers, c.line)
		}()
	}
	if Lookup("wrong") != nil {
		t.Error("a formula that is refused is in the table")
	}
	if k := Lerp; k.Outputs != 1 || k.Index() >= 0 {
		t.Errorf("lerp writes %d operands and has number %d", k.Outputs, k.Index())
	}
}
