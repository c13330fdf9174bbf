package distributed

import (
	"testing"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// TestMetaPickle checks the lengths of what pickle.Pickler of Python 3.13 wrote of tuples of
// tensors on the meta device.
func TestMetaPickle(t *testing.T) {
	of := func(d tensor.DType, size ...int64) program.Boundary {
		return program.Boundary{Layout: tensor.Contiguous(tensor.D(size...)), DType: d}
	}
	four := []program.Boundary{of(tensor.Float32, 2, 3), of(tensor.Float32, 2, 3), of(tensor.Float32, 2, 3), of(tensor.Float32, 2, 3)}
	for _, c := range []struct {
		of   []program.Boundary
		want int64
	}{
		{[]program.Boundary{of(tensor.Float32, 2, 32, 64)}, 108},
		{[]program.Boundary{of(tensor.BFloat16, 2, 300, 70000)}, 118},
		{[]program.Boundary{of(tensor.Float32, 4)}, 99},
		{[]program.Boundary{of(tensor.Float32, 8, 3, 224, 224)}, 117},
		{[]program.Boundary{of(tensor.Float32, 2, 32, 64), of(tensor.Float32, 2, 32, 64)}, 135},
		{[]program.Boundary{of(tensor.Float32, 2, 32, 64), of(tensor.BFloat16, 2, 32, 64), of(tensor.BFloat16, 5, 6)}, 170},
		{four, 170},
		{[]program.Boundary{of(tensor.Float32)}, 93},
	} {
		if got := metaPickle(c.of); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.of, got, c.want)
		}
	}
}
