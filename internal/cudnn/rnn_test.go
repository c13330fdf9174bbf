package cudnn

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
		a := &RNN{Gates: c.gates, Hidden: 320, Layers: 4, Directions: 1}
		reserve, err := a.Reserve(250, 100, tensor.Float32)
		if err != nil || reserve != c.reserve {
			t.Errorf("%s: a reserve of %d, %v, want %d", c.name, int64(reserve), err, int64(c.reserve))
		}
		workspace, err := a.Workspace(250, 100, 123, tensor.Float32, true)
		if err != nil || workspace != c.workspace {
			t.Errorf("%s: a workspace of %d, %v, want %d", c.name, int64(workspace), err, int64(c.workspace))
		}
	}
}

// TestRNNSpacesOverflow checks that sizes that no memory has are errors.
func TestRNNSpacesOverflow(t *testing.T) {
	a := &RNN{Gates: 4, Hidden: 1 << 20, Layers: 1024, Directions: 1}
	if n, err := a.Reserve(1<<20, 1<<20, tensor.Float32); err == nil {
		t.Errorf("a reserve of %v", n)
	}
	if n, err := a.Workspace(1<<20, 1<<30, 16, tensor.Float32, false); err == nil {
		t.Errorf("a workspace of %v", n)
	}
}

// TestWeights counts the elements of the buffer of all weights: those of
// nn.LSTM(16, 8) are 4*8*(16+8) and two biases.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		a    RNN
		want int64
	}{
		{RNN{Gates: 4, Hidden: 8, Layers: 1, Directions: 1}, 832},
		{RNN{Gates: 4, Hidden: 8, Layers: 1, Directions: 1, Proj: 3}, 696},
		{RNN{Gates: 4, Hidden: 8, Layers: 1, Directions: 2}, 1664},
		{RNN{Gates: 1, Hidden: 8, Layers: 2, Directions: 2}, 832},
	} {
		if n := c.a.Weights(16); n != c.want {
			t.Errorf("%+v: %d elements, want %d", c.a, n, c.want)
		}
	}
}
