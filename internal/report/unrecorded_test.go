package report

import (
	"slices"
	"testing"
)

// TestUnrecordedText checks that there is a line for each of what operators rest on.
func TestUnrecordedText(t *testing.T) {
	for _, c := range []struct {
		ops  []Unrecorded
		want []string
	}{
		{nil, nil},
		{[]Unrecorded{{Op: "a", Basis: "read"}, {Op: "b", Basis: "read", Derivative: true}},
			[]string{"what these operators allocate is read from PyTorch's sources, and in no recording of it: a, the derivative of b"}},
		{[]Unrecorded{{Op: "a", Basis: "assumed"}, {Op: "b", Basis: "read"}}, []string{
			"what these operators allocate is read from PyTorch's sources, and in no recording of it: b",
			"what these operators allocate is assumed, neither recorded nor read from PyTorch's sources: a",
		}},
	} {
		if got := unrecorded(c.ops); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.ops, got, c.want)
		}
	}
}
