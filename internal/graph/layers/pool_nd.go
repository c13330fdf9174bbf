package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
)

// The poolings over one and three dimensions, and the adaptive maxima.
var (
	MaxPools         = [...]*module.Layer{1: maxPool(1), 3: maxPool(3)}
	AvgPools         = [...]*module.Layer{1: avgPool(1, ""), 3: avgPool(3, ", divisor_override: int? = None")}
	AdaptiveAvgPools = [...]*module.Layer{1: adaptiveAvgPool(1), 3: adaptiveAvgPool(3)}
	AdaptiveMaxPools = [...]*module.Layer{1: adaptiveMaxPool(1), 2: adaptiveMaxPool(2), 3: adaptiveMaxPool(3)}
)

// maxPool defines MaxPool1d and 3d.
func maxPool(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.MaxPool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0, dilation: pair = 1, return_indices: bool = False, ceil_mode: bool = False)", n),
		Build: func(b *module.Builder) {
			row := aten.MaxPools[n]
			if b.Bool("return_indices") {
				row = aten.MaxPoolsWithIndices[n]
			}
			b.Finish(b.Call(row, poolArgs(b, n), b.In(0)))
		},
	})
}

// avgPool defines AvgPool1d and 3d, which takes further arguments.
func avgPool(n int, further string) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.AvgPool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0, ceil_mode: bool = False, count_include_pad: bool = True%s)", n, further),
		Build: func(b *module.Builder) {
			b.Finish(b.Do(aten.AvgPools[n], poolArgs(b, n), b.In(0)))
		},
	})
}

// adaptiveAvgPool defines AdaptiveAvgPool1d and 3d.
func adaptiveAvgPool(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.AdaptiveAvgPool%dd(output_size: pair)", n),
		Build: func(b *module.Builder) {
			a := &aten.AdaptiveArgs{Size: b.Spatial("output_size", n, 1)}
			b.Finish(b.Do(aten.AdaptiveAvgPools[n], a, b.In(0)))
		},
	})
}

// adaptiveMaxPool defines AdaptiveMaxPool1d to 3d.
func adaptiveMaxPool(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.AdaptiveMaxPool%dd(output_size: pair, return_indices: bool = False)", n),
		Build: func(b *module.Builder) {
			row := aten.AdaptiveMaxPools[n]
			if b.Bool("return_indices") {
				row = aten.AdaptiveMaxPoolsWithIndices[n]
			}
			b.Finish(b.Call(row, &aten.AdaptiveArgs{Size: b.Spatial("output_size", n, 1)}, b.In(0)))
		},
	})
}
