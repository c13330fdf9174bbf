package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// InstanceNorms and Dropouts, of whole channels, are those over so many dimensions.
var (
	InstanceNorms = [...]*module.Layer{1: instanceNorm(1), 2: instanceNorm(2), 3: instanceNorm(3)}
	Dropouts      = [...]*module.Layer{1: channelDropout(1), 2: channelDropout(2), 3: channelDropout(3)}
)

// instanceNorm defines InstanceNorm1d to 3d.
func instanceNorm(n int) *module.Layer {
	return define(module.Layer{
		Sig:   fmt.Sprintf("nn.InstanceNorm%dd(num_features: infer int, eps: float = 1e-05, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False)", n),
		Is:    nn.Layer{Running: true, Init: nn.Batch},
		Alone: func(b *module.Builder) []*op.Tensor { return b.Alone(channels(b.Size("num_features"), n, 2)) },
		Build: func(b *module.Builder) {
			x := b.Tensor(2)
			if x.Rank() != n+2 {
				b.Fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
			}
			c := b.Infer("num_features", x.Dim(1))
			var w, bias, mean, variance value.Value
			if b.Bool("affine") {
				w, bias = b.Param("weight", c), b.Param("bias", c)
			}
			if b.Bool("track_running_stats") {
				mean, variance = b.Buffer("running_mean", c), b.Buffer("running_var", c)
				b.Counter("num_batches_tracked") // which nothing counts
			}
			a := &aten.InstanceNormArgs{Batch: !b.Bool("track_running_stats"), Momentum: b.Float("momentum"), Eps: b.Float("eps")}
			b.Finish(b.Do(aten.InstanceNorm, a, b.In(0), w, bias, mean, variance))
		},
	})
}

// channelDropout defines Dropout1d to 3d.
func channelDropout(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.Dropout%dd(p: float = 0.5, inplace: bool = False)", n),
		Build: func(b *module.Builder) {
			b.Finish(b.Do(mayBeInPlace(b, aten.FeatureDropouts[n]), &aten.DropoutArgs{P: b.Float("p")}, b.In(0)))
		},
	})
}

var LocalResponseNorm = define(module.Layer{
	Sig: "nn.LocalResponseNorm(size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
	Build: func(b *module.Builder) {
		a := &aten.ResponseNormArgs{Size: b.Positive("size"), Alpha: b.Float("alpha"), Beta: b.Float("beta"), K: b.Float("k")}
		b.Finish(b.Do(aten.LocalResponseNorm, a, b.In(0)))
	},
})

var PReLU = define(module.Layer{
	Sig:   "nn.PReLU(num_parameters: int = 1, init: float = 0.25)",
	Is:    nn.Layer{Init: nn.Slope},
	Alone: func(b *module.Builder) []*op.Tensor { return b.Alone([]int64{1, b.Positive("num_parameters")}) },
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.PReLU, nil, b.In(0), b.Param("weight", b.Positive("num_parameters"))))
	},
})
