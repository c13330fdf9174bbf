package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// InstanceNorms and Dropouts, of whole channels, are those over so many dimensions.
var (
	InstanceNorms = [...]*Layer{1: instanceNorm(1), 2: instanceNorm(2), 3: instanceNorm(3)}
	Dropouts      = [...]*Layer{1: channelDropout(1), 2: channelDropout(2), 3: channelDropout(3)}
)

// instanceNorm defines InstanceNorm1d to 3d.
func instanceNorm(n int) *Layer {
	return layer(Layer{
		Sig: fmt.Sprintf("nn.InstanceNorm%dd(num_features: infer int, eps: float = 1e-05, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False)", n),
		Is:  nn.Layer{Running: true, Init: nn.Batch},
		Build: func(b *builder) {
			x := b.x(2)
			if x.Rank() != n+2 {
				b.fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
			}
			c := b.infer("num_features", x.Dim(1))
			var w, bias, mean, variance val
			if b.bool("affine") {
				w, bias = b.param("weight", c), b.param("bias", c)
			}
			if b.bool("track_running_stats") {
				mean, variance = b.buffer("running_mean", c), b.buffer("running_var", c)
				b.counter("num_batches_tracked") // which nothing counts
			}
			a := &op.InstanceNormArgs{Batch: !b.bool("track_running_stats"), Momentum: b.float("momentum"), Eps: b.float("eps")}
			b.finish([]val{b.do(op.InstanceNorm, a, b.in(0), w, bias, mean, variance)})
		},
	})
}

// channelDropout defines Dropout1d to 3d.
func channelDropout(n int) *Layer {
	return layer(Layer{
		Sig: fmt.Sprintf("nn.Dropout%dd(p: float = 0.5, inplace: bool = False)", n),
		Build: func(b *builder) {
			b.finish([]val{b.do(b.mayBeInPlace(op.FeatureDropouts[n]), &op.DropoutArgs{P: b.float("p")}, b.in(0))})
		},
	})
}

var LocalResponseNorm = layer(Layer{
	Sig: "nn.LocalResponseNorm(size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
	Build: func(b *builder) {
		a := &op.ResponseNormArgs{Size: b.positive("size"), Alpha: b.float("alpha"), Beta: b.float("beta"), K: b.float("k")}
		b.finish([]val{b.do(op.LocalResponseNorm, a, b.in(0))})
	},
})

var PReLU = layer(Layer{
	Sig: "nn.PReLU(num_parameters: int = 1, init: float = 0.25)",
	Is:  nn.Layer{Init: nn.Slope},
	Build: func(b *builder) {
		b.finish([]val{b.do(op.PReLU, nil, b.in(0), b.param("weight", b.positive("num_parameters")))})
	},
})
