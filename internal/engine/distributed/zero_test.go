package distributed

import (
	"reflect"
	"testing"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestDivideOptimizer gives the largest parameter that is left to the process with
// the fewest elements, group by group.
func TestDivideOptimizer(t *testing.T) {
	p := autograd.New(op.Env{}, nil)
	var cells []*python.Cell
	for _, n := range []int64{10, 40, 20, 40, 5} {
		cells = append(cells, &python.Cell{T: p.New(tensor.Contiguous(tensor.D(n)), tensor.Float32)})
	}
	groups := [][]int{{0, 1, 2, 3}, {4}}
	// 40 and 40, then 20 to the first of equals, 10 to the other, 5 to the other
	want := [][][]int{{{1, 2}, nil}, {{3, 0}, {4}}}
	if got := Divide(groups, cells, 2); !reflect.DeepEqual(got, want) {
		t.Errorf("divided as %v, want %v", got, want)
	}
}
