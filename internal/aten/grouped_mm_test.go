package aten

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestGroupedMm asks for grouped products of each rank: rows of results begin at multiples
// of 16 bytes, and releases before 2.9 take bfloat16 alone.
func TestGroupedMm(t *testing.T) {
	of := func(d tensor.DType, size ...int64) *op.Tensor {
		return &op.Tensor{Layout: tensor.Contiguous(tensor.D(size...)), DType: d}
	}
	offs := of(tensor.Int32, 4)
	now, before := torchver.Version{Minor: 9, Major: 2}, torchver.Version{Minor: 8, Major: 2}
	for _, c := range []struct {
		torch torchver.Version
		a, b  *op.Tensor
		size  tensor.Dims
		row   int64
		wrong string
	}{
		{now, of(tensor.Float32, 10, 8), of(tensor.Float32, 4, 8, 6), tensor.D(10, 6), 8, ""},
		{now, of(tensor.BFloat16, 10, 8), of(tensor.BFloat16, 4, 8, 16), tensor.D(10, 16), 16, ""},
		{now, of(tensor.BFloat16, 8, 10), of(tensor.BFloat16, 10, 6), tensor.D(4, 8, 6), 8, ""},
		{now, of(tensor.Float32, 4, 6, 8), of(tensor.Float32, 8, 10), tensor.D(6, 10), 12, ""},
		{now, of(tensor.Float32, 10, 8), of(tensor.Float32, 3, 8, 6), tensor.Dims{}, 0, "no grouped product"},
		{now, of(tensor.Float32, 10, 8), of(tensor.BFloat16, 4, 8, 6), tensor.Dims{}, 0, "one floating type"},
		{before, of(tensor.BFloat16, 10, 8), of(tensor.BFloat16, 4, 8, 8), tensor.D(10, 8), 8, ""},
		{torchver.Recorded, of(tensor.BFloat16, 10, 8), of(tensor.BFloat16, 4, 8, 8), tensor.Dims{}, 0, "has no torch._grouped_mm; 2.8 has"},
		{before, of(tensor.Float32, 10, 8), of(tensor.Float32, 4, 8, 8), tensor.Dims{}, 0, "takes bfloat16 alone"},
	} {
		shapes := &op.Shapes{E: op.Env{Arch: 90, Torch: c.torch}}
		out, err := shapes.Infer(GroupedMm, nil, c.a, c.b, offs)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v and %v: %v, not %q", c.a.Size, c.b.Size, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%v and %v: %v", c.a.Size, c.b.Size, err)
		case out[0].Size != c.size || out[0].Stride.At(len(c.size.Slice())-2) != c.row:
			t.Errorf("%v and %v: a result of size %v and strides %v, not %v in rows of %d", c.a.Size, c.b.Size, out[0].Size, out[0].Stride, c.size, c.row)
		}
	}
	// aten/src/ATen/native/cuda/GroupMM.cu, with 5 groups: 3·6 pointers, 15 strides, 5 sizes.
	if got := groupedArguments(5); got != 18*8+15*8+5*12 {
		t.Errorf("%d bytes of arguments", got)
	}
}
