package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
)

// The poolings over one and three dimensions, and the adaptive maxima.
func init() {
	for _, n := range []int{1, 3} {
		layer(Layer{
			Sig: fmt.Sprintf("nn.MaxPool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0, dilation: pair = 1, return_indices: bool = False, ceil_mode: bool = False)", n),
			Build: func(b *builder) {
				row := op.MaxPools[n]
				if b.bool("return_indices") {
					row = op.MaxPoolsWithIndices[n]
				}
				b.finish([]val{b.call(row, b.poolArgs(n), b.in(0))})
			},
		})
		further := ""
		if n == 3 {
			further = ", divisor_override: int? = None"
		}
		layer(Layer{
			Sig: fmt.Sprintf("nn.AvgPool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0, ceil_mode: bool = False, count_include_pad: bool = True%s)", n, further),
			Build: func(b *builder) {
				b.finish([]val{b.do(op.AvgPools[n], b.poolArgs(n), b.in(0))})
			},
		})
		layer(Layer{
			Sig: fmt.Sprintf("nn.AdaptiveAvgPool%dd(output_size: pair)", n),
			Build: func(b *builder) {
				a := &op.AdaptiveArgs{Size: b.spatial("output_size", n, 1)}
				b.finish([]val{b.do(op.AdaptiveAvgPools[n], a, b.in(0))})
			},
		})
	}
	for n := 1; n <= 3; n++ {
		layer(Layer{
			Sig: fmt.Sprintf("nn.AdaptiveMaxPool%dd(output_size: pair, return_indices: bool = False)", n),
			Build: func(b *builder) {
				row := op.AdaptiveMaxPools[n]
				if b.bool("return_indices") {
					row = op.AdaptiveMaxPoolsWithIndices[n]
				}
				b.finish([]val{b.call(row, &op.AdaptiveArgs{Size: b.spatial("output_size", n, 1)}, b.in(0))})
			},
		})
	}
}
