package graph

import "github.com/memplan/memplan/internal/op"

// The modules that resize or rearrange.
var Upsample = layer(Layer{
	Sig: "nn.Upsample(size: pair? = None, scale_factor: float? = None, mode: str(nearest|linear|bilinear|bicubic|trilinear|area|nearest-exact) = 'nearest', align_corners: bool? = None)",
	Build: func(b *builder) {
		a := &op.InterpolateArgs{Size: b.ints("size"), Mode: b.str("mode"), Align: b.bool("align_corners")}
		if b.has("scale_factor") {
			f := b.float("scale_factor")
			a.Scale = &f
		}
		b.finish([]val{b.do(op.Interpolate, a, b.in(0))})
	},
})

var PixelShuffle = layer(Layer{
	Sig: "nn.PixelShuffle(upscale_factor: int)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.PixelShuffle, &op.ShuffleArgs{Up: b.int("upscale_factor")}, b.in(0))})
	},
})

var PixelUnshuffle = layer(Layer{
	Sig: "nn.PixelUnshuffle(downscale_factor: int)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.PixelUnshuffle, &op.ShuffleArgs{Down: b.int("downscale_factor")}, b.in(0))})
	},
})

var GLU = layer(Layer{
	Sig: "nn.GLU(dim: int = -1)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.Glu, &op.DimArgs{Dim: int(b.int("dim"))}, b.in(0))})
	},
})

var Unflatten = layer(Layer{
	Sig: "nn.Unflatten(dim: int, unflattened_size: ints)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.Unflatten, &op.UnflattenArgs{Dim: int(b.int("dim")), Sizes: b.ints("unflattened_size")}, b.in(0))})
	},
})
