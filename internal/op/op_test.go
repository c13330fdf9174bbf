package op

import (
	"slices"
	"testing"
)

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

// TestCastOrder: the items of a list come from the first on, all else from the last.
func TestCastOrder(t *testing.T) {
	table := NewTable("")
	for _, c := range []struct {
		row  Op
		want []int
	}{
		{Op{Name: "two", Sig: "torch.two(input, other)"}, []int{2, 1, 0}},
		{Op{Name: "many", Sig: "torch.many(tensors: tensors)"}, []int{0, 1, 2}},
		{Op{Name: "cell", CastList: [2]int{1, 3}}, []int{1, 2, 0}},
	} {
		if got := table.Define(c.row).CastOrder(3); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.row.Name, got, c.want)
		}
	}
}

// TestRuns: a Run that is set later is behind the check of types, too.
func TestRuns(t *testing.T) {
	did := ""
	r := NewTable("").Define(Op{Name: "row", Takes: func(*Call) { did += "check " }, Run: func(*Call) { did += "first" }})
	r.Runs(func(*Call) { did += "second" })
	if r.Run(nil); did != "check second" {
		t.Errorf("%s", did)
	}
}
