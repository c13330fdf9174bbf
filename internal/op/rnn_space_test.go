package op

import (
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

// TestRNNSpaces holds the sizes against those that issue 2895 of
// pytorch/pytorch shows: 4 layers of width 320 on 123 inputs, float32, on a
// Tesla P100; 100 sequences of 250 steps make the number of steps that follows
// from the reserves.
func TestRNNSpaces(t *testing.T) {
	for _, c := range []struct {
		name               string
		gates              int64
		reserve, workspace tensor.Bytes
	}{
		{"LSTM", 4, 736000000, 17730560},
		{"GRU", 3, 864000000, 13169920},
	} {
		a := &RNNArgs{Gates: c.gates, Hidden: 320, Layers: 4, Bias: true}
		reserve, err := a.ReserveBytes(&Env{}, 250, 100, tensor.Float32)
		if err != nil || reserve != c.reserve {
			t.Errorf("%s: a reserve of %d, %v, want %d", c.name, int64(reserve), err, int64(c.reserve))
		}
		workspace, err := a.WorkspaceBytes(&Env{}, 250, 100, 123, tensor.Float32, true)
		if err != nil || workspace != c.workspace {
			t.Errorf("%s: a workspace of %d, %v, want %d", c.name, int64(workspace), err, int64(c.workspace))
		}
	}
}

// TestRNNSpacesOverflow checks that sizes that no memory has are errors.
func TestRNNSpacesOverflow(t *testing.T) {
	a := &RNNArgs{Gates: 4, Hidden: 1 << 20, Layers: 1024}
	if n, err := a.ReserveBytes(&Env{}, 1<<20, 1<<20, tensor.Float32); err == nil {
		t.Errorf("a reserve of %v", n)
	}
	if n, err := a.WorkspaceBytes(&Env{}, 1<<20, 1<<30, 16, tensor.Float32, false); err == nil {
		t.Errorf("a workspace of %v", n)
	}
}

// TestFlatWeights counts the elements of the buffer of all weights: those of
// nn.LSTM(16, 8) are 4*8*(16+8) and two biases, which are there without a bias,
// too.
func TestFlatWeights(t *testing.T) {
	for _, c := range []struct {
		a    RNNArgs
		want int64
	}{
		{RNNArgs{Gates: 4, Hidden: 8, Layers: 1, Bias: true}, 832},
		{RNNArgs{Gates: 4, Hidden: 8, Layers: 1}, 832},
		{RNNArgs{Gates: 4, Hidden: 8, Layers: 1, Proj: 3}, 696},
		{RNNArgs{Gates: 4, Hidden: 8, Layers: 1, Bidirectional: true}, 1664},
		{RNNArgs{Gates: 1, Hidden: 8, Layers: 2, Bidirectional: true}, 832},
	} {
		if n := c.a.FlatWeights(16); n != c.want {
			t.Errorf("%+v: %d elements, want %d", c.a, n, c.want)
		}
	}
}

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
