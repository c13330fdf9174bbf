package cuda

import (
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// pointwise is a convolution with kernels of one pixel, or the gradient of its
// input, as what it is then: for each image a product of the weights with a matrix
// of channels by pixels. There is none if the convolution is another, or pixels do
// not lie in a row.
func pointwise(c *kernel.Call) (gemm *kernel.Call, ok bool) {
	y, x, weight, bias := &c.T[0], &c.T[1], operand(c, "weight"), operand(c, "bias")
	rows, depth := 0, 1 // of the weight's dimensions
	switch c.Kernel {
	case kernel.ConvInputGrad:
		rows, depth = 1, 0
	case kernel.ConvWeightGrad: // a sum over images
		return nil, false
	}
	steps := append(triple(c, "stride"), number(c, "groups"), numel(spatial(weight)))
	other := func(n int64) bool { return n != 1 }
	if slices.ContainsFunc(steps, other) || slices.Max(triple(c, "padding")) != 0 {
		return nil, false
	}
	matrix := func(t *kernel.Tensor) (kernel.Tensor, bool) {
		pixels := newShape(1)
		for d := 2; d < 5; d++ {
			pixels.add(t.Size.At(d), t.Stride.At(d))
		}
		return kernel.Tensor{At: t.At, DType: t.DType, Size: tensor.D(t.Size.At(0), t.Size.At(1), numel(pixels.size)),
			Stride: tensor.D(t.Stride.At(0), t.Stride.At(1), max(1, inner(pixels, 0)))}, len(pixels.size) < 2
	}
	result, okY := matrix(y)
	right, okX := matrix(x)
	left := kernel.Tensor{At: weight.At, DType: weight.DType, Size: tensor.D(y.Size.At(0), weight.Size.At(rows), weight.Size.At(depth)),
		Stride: tensor.D(0, weight.Stride.At(rows), weight.Stride.At(depth))}
	added := kernel.Tensor{}
	if !bias.Absent() {
		added = kernel.Tensor{At: bias.At, DType: bias.DType, Size: result.Size, Stride: tensor.D(0, bias.Stride.At(0), 0)}
	}
	return &kernel.Call{Kernel: kernel.Gemm, T: []kernel.Tensor{result, left, right, added}, F: []float64{1, 1}}, okY && okX
}
