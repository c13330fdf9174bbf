package op

import "testing"

// TestEdge checks the order in which gradients are handed on.
func TestEdge(t *testing.T) {
	r := &Op{Last: []int{1, 2}}
	var got []int
	for k := range 5 {
		got = append(got, r.Edge(k, 5))
	}
	for i, want := range []int{0, 3, 4, 1, 2} {
		if got[i] != want {
			t.Fatalf("the order is %v", got)
		}
	}
}
