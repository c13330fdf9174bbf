package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
)

// The modules that resize or rearrange.
var Upsample = define(module.Layer{
	Sig: "nn.Upsample(size: pair? = None, scale_factor: float? = None, mode: str(nearest|linear|bilinear|bicubic|trilinear|area|nearest-exact) = 'nearest', align_corners: bool? = None)",
	Build: func(b *module.Builder) {
		a := &aten.InterpolateArgs{Size: b.Ints("size"), Mode: b.Str("mode"), Align: b.Bool("align_corners")}
		if b.Has("scale_factor") {
			f := b.Float("scale_factor")
			a.Scale = &f
		}
		b.Finish(b.Do(aten.Interpolate, a, b.In(0)))
	},
})

var PixelShuffle = define(module.Layer{
	Sig: "nn.PixelShuffle(upscale_factor: int)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.PixelShuffle, &aten.ShuffleArgs{Up: b.Int("upscale_factor")}, b.In(0)))
	},
})

var PixelUnshuffle = define(module.Layer{
	Sig: "nn.PixelUnshuffle(downscale_factor: int)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.PixelUnshuffle, &aten.ShuffleArgs{Down: b.Int("downscale_factor")}, b.In(0)))
	},
})

var GLU = define(module.Layer{
	Sig: "nn.GLU(dim: int = -1)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.Glu, &aten.DimArgs{Dim: int(b.Int("dim"))}, b.In(0)))
	},
})

var Unflatten = define(module.Layer{
	Sig: "nn.Unflatten(dim: int, unflattened_size: ints)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.Unflatten, &aten.UnflattenArgs{Dim: int(b.Int("dim")), Sizes: b.Ints("unflattened_size")}, b.In(0)))
	},
})
