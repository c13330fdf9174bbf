package graph

import "github.com/memplan/memplan/internal/op"

// poolArgs reads the arguments that the pooling layers share.
func (b *builder) poolArgs(n int) *op.PoolArgs {
	a := &op.PoolArgs{Kernel: b.spatial("kernel_size", n, 1), Padding: b.spatial("padding", n, 0), CeilMode: b.bool("ceil_mode")}
	a.Stride = a.Kernel
	if b.has("stride") {
		a.Stride = b.spatial("stride", n, 1)
	}
	a.Dilation = []int64{1, 1, 1}[:n]
	if b.has("dilation") {
		a.Dilation = b.spatial("dilation", n, 1)
	}
	a.ExcludePadding = b.has("count_include_pad") && !b.bool("count_include_pad")
	if b.has("divisor_override") {
		a.Divisor = b.int("divisor_override")
	}
	for i := range a.Padding {
		if a.Padding[i] > a.Kernel[i]/2 {
			b.fail("padding", "padding %d is more than half of kernel size %d", a.Padding[i], a.Kernel[i])
		}
	}
	return a
}

var MaxPool2d = layer(Layer{
	Sig: "nn.MaxPool2d(kernel_size: pair, stride: pair? = None, padding: pair = 0, dilation: pair = 1, return_indices: bool = False, ceil_mode: bool = False)",
	Build: func(b *builder) {
		row := op.MaxPool
		if b.bool("return_indices") {
			row = op.MaxPool2dIndices
		}
		b.finish([]val{b.call(row, b.poolArgs(2), b.in(0))})
	},
})

var AvgPool2d = layer(Layer{
	Sig: "nn.AvgPool2d(kernel_size: pair, stride: pair? = None, padding: pair = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int? = None)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.AvgPool, b.poolArgs(2), b.in(0))})
	},
})

var AdaptiveAvgPool2d = layer(Layer{
	Sig: "nn.AdaptiveAvgPool2d(output_size: pair)",
	Build: func(b *builder) {
		size := b.spatial("output_size", 2, 1)
		b.finish([]val{b.do(op.AdaptiveAvgPool, &op.AdaptiveArgs{Size: size}, b.in(0))})
	},
})
