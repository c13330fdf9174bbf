package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
)

// poolArgs reads the arguments that the pooling layers share.
func poolArgs(b *module.Builder, n int) *aten.PoolArgs {
	a := &aten.PoolArgs{Kernel: b.Spatial("kernel_size", n, 1), Padding: b.Spatial("padding", n, 0), CeilMode: b.Bool("ceil_mode")}
	a.Stride = a.Kernel
	if b.Has("stride") {
		a.Stride = b.Spatial("stride", n, 1)
	}
	a.Dilation = []int64{1, 1, 1}[:n]
	if b.Takes("dilation") {
		a.Dilation = b.Spatial("dilation", n, 1)
	}
	a.ExcludePadding = b.Takes("count_include_pad") && !b.Bool("count_include_pad")
	if b.Takes("divisor_override") && b.Has("divisor_override") {
		a.Divisor = b.Int("divisor_override")
	}
	for i := range a.Padding {
		if a.Padding[i] > a.Kernel[i]/2 {
			b.Fail("padding", "padding %d is more than half of kernel size %d", a.Padding[i], a.Kernel[i])
		}
	}
	return a
}

var MaxPool2d = define(module.Layer{
	Sig: "nn.MaxPool2d(kernel_size: pair, stride: pair? = None, padding: pair = 0, dilation: pair = 1, return_indices: bool = False, ceil_mode: bool = False)",
	Build: func(b *module.Builder) {
		row := aten.MaxPool
		if b.Bool("return_indices") {
			row = aten.MaxPool2dIndices
		}
		b.Finish(b.Call(row, poolArgs(b, 2), b.In(0)))
	},
})

var AvgPool2d = define(module.Layer{
	Sig: "nn.AvgPool2d(kernel_size: pair, stride: pair? = None, padding: pair = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int? = None)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.AvgPool, poolArgs(b, 2), b.In(0)))
	},
})

var AdaptiveAvgPool2d = define(module.Layer{
	Sig: "nn.AdaptiveAvgPool2d(output_size: pair)",
	Build: func(b *module.Builder) {
		size := b.Spatial("output_size", 2, 1)
		b.Finish(b.Do(aten.AdaptiveAvgPool, &aten.AdaptiveArgs{Size: size}, b.In(0)))
	},
})
