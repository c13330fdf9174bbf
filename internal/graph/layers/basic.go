package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
)

// pointwise defines an activation module: one call of an operator, in place if
// asked for.
func pointwise(sig string, row *op.Op, args func(b *module.Builder) any) *module.Layer {
	return define(module.Layer{Sig: sig, Build: func(b *module.Builder) {
		a := op.BindArgs(row.Args, b.Args)
		if args != nil {
			a = args(b)
		}
		b.Finish(b.Do(mayBeInPlace(b, row), a, b.In(0)))
	}})
}

var Linear = define(module.Layer{
	Sig:   "nn.Linear(in_features: infer int, out_features: int, bias: bool = True)",
	Is:    nn.Layer{Linear: true, Init: nn.Kaiming},
	Alone: func(b *module.Builder) []*op.Tensor { return b.Alone([]int64{1, b.Size("in_features")}) },
	Build: func(b *module.Builder) {
		in, out := b.Infer("in_features", b.Tensor(1).Dim(-1)), b.Positive("out_features")
		w := b.Param("weight", out, in)
		var bias value.Value
		if b.Bool("bias") {
			bias = b.Param("bias", out)
		}
		b.Finish(b.Do(aten.Linear, nil, b.In(0), w, bias))
	},
})

var Identity = define(module.Layer{Sig: "nn.Identity()", Build: func(b *module.Builder) { b.Finish(b.In(0)) }})

var Dropout = define(module.Layer{
	Sig: "nn.Dropout(p: float = 0.5, inplace: bool = False)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(mayBeInPlace(b, aten.Dropout), &aten.DropoutArgs{P: b.Float("p")}, b.In(0)))
	},
})

var Flatten = define(module.Layer{
	Sig: "nn.Flatten(start_dim: int = 1, end_dim: int = -1)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.Flatten, &aten.FlattenArgs{Start: int(b.Int("start_dim")), End: int(b.Int("end_dim"))}, b.In(0)))
	},
})

var Softmax = define(module.Layer{
	Sig: "nn.Softmax(dim: int)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.Softmax, &aten.SoftmaxArgs{Dim: int(b.Int("dim"))}, b.In(0)))
	},
})

var LogSoftmax = define(module.Layer{
	Sig: "nn.LogSoftmax(dim: int)",
	Build: func(b *module.Builder) {
		b.Finish(b.Do(aten.LogSoftmax, &aten.SoftmaxArgs{Dim: int(b.Int("dim"))}, b.In(0)))
	},
})

var (
	ReLU        = pointwise("nn.ReLU(inplace: bool = False)", aten.Relu, nil)
	GELU        = pointwise("nn.GELU(approximate: str(none|tanh) = 'none')", aten.Gelu, nil)
	SiLU        = pointwise("nn.SiLU(inplace: bool = False)", aten.Silu, nil)
	Mish        = pointwise("nn.Mish(inplace: bool = False)", aten.Mish, nil)
	Tanh        = pointwise("nn.Tanh()", aten.Tanh, nil)
	Sigmoid     = pointwise("nn.Sigmoid()", aten.Sigmoid, nil)
	Softplus    = pointwise("nn.Softplus(beta: float = 1.0, threshold: float = 20.0)", aten.Softplus, nil)
	Hardswish   = pointwise("nn.Hardswish(inplace: bool = False)", aten.Hardswish, nil)
	Hardsigmoid = pointwise("nn.Hardsigmoid(inplace: bool = False)", aten.Hardsigmoid, nil)
	Hardtanh    = pointwise("nn.Hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False)", aten.Hardtanh, nil)
	ReLU6       = pointwise("nn.ReLU6(inplace: bool = False)", aten.Hardtanh, func(*module.Builder) any { return &aten.RangeArgs{Max: 6} })
	ELU         = pointwise("nn.ELU(alpha: float = 1.0, inplace: bool = False)", aten.Elu, nil)
	LeakyReLU   = pointwise("nn.LeakyReLU(negative_slope: float = 0.01, inplace: bool = False)", aten.LeakyRelu, nil)
	LogSigmoid  = pointwise("nn.LogSigmoid()", aten.LogSigmoid, nil)
)

var LayerNorm = define(module.Layer{
	Sig:   "nn.LayerNorm(normalized_shape: infer ints, eps: float = 1e-05, elementwise_affine: bool = True, bias: bool = True)",
	Is:    nn.Layer{Apart: true, Init: nn.Ones},
	Alone: func(b *module.Builder) []*op.Tensor { return b.Alone(b.Sizes("normalized_shape")) },
	Build: func(b *module.Builder) {
		shape := b.Ints("normalized_shape")
		if shape == nil {
			shape = []int64{b.Tensor(1).Dim(-1)}
			b.Args["normalized_shape"] = shape
		}
		var w, bias value.Value
		if b.Bool("elementwise_affine") {
			w = b.Param("weight", shape...)
			if b.Bool("bias") {
				bias = b.Param("bias", shape...)
			}
		}
		b.Finish(b.Do(aten.LayerNorm, &aten.LayerNormArgs{Shape: shape, Eps: b.Float("eps")}, b.In(0), w, bias))
	},
})

var RMSNorm = define(module.Layer{
	Sig:   "nn.RMSNorm(normalized_shape: infer ints, eps: float? = None, elementwise_affine: bool = True)",
	Is:    nn.Layer{Apart: true, Init: nn.Ones},
	Alone: func(b *module.Builder) []*op.Tensor { return b.Alone(b.Sizes("normalized_shape")) },
	Build: func(b *module.Builder) {
		shape := b.Ints("normalized_shape")
		if shape == nil {
			shape = []int64{b.Tensor(1).Dim(-1)}
			b.Args["normalized_shape"] = shape
		}
		var w value.Value
		if b.Bool("elementwise_affine") {
			w = b.Param("weight", shape...)
		}
		b.Finish(b.Do(aten.RMSNorm, op.BindArgs(&aten.RMSNormArgs{}, b.Args), b.In(0), w))
	},
})

var GroupNorm = define(module.Layer{
	Sig:   "nn.GroupNorm(num_groups: int, num_channels: infer int, eps: float = 1e-05, affine: bool = True)",
	Is:    nn.Layer{Init: nn.Ones},
	Alone: func(b *module.Builder) []*op.Tensor { return b.Alone([]int64{2, b.Size("num_channels"), 2}) },
	Build: func(b *module.Builder) {
		c := b.Infer("num_channels", b.Tensor(2).Dim(1))
		var w, bias value.Value
		if b.Bool("affine") {
			w, bias = b.Param("weight", c), b.Param("bias", c)
		}
		b.Finish(b.Do(aten.GroupNorm, &aten.GroupNormArgs{Groups: b.Positive("num_groups"), Eps: b.Float("eps")}, b.In(0), w, bias))
	},
})

// BatchNorms are those over so many dimensions.
var BatchNorms = [...]*module.Layer{1: batchNorm(1), 2: batchNorm(2), 3: batchNorm(3)}

// SyncBatchNorm is in one process a batch norm; the exchange between several, which
// allocates more, is not modelled.
var SyncBatchNorm = batchNormLayer("SyncBatchNorm", 1, func(b *module.Builder, _ *op.Tensor) {
	const alone = "SyncBatchNorm is played as in one process, where it is a batch normalization; its exchange with others takes memory, too"
	*b.Env.Notes = note.Add(*b.Env.Notes, note.OneProcess.New(alone))
})

// batchNorm defines BatchNorm1d to 3d.
func batchNorm(n int) *module.Layer {
	return batchNormLayer(fmt.Sprintf("BatchNorm%dd", n), n, func(b *module.Builder, x *op.Tensor) {
		if r := x.Rank(); r != n+2 && !(n == 1 && r == 2) {
			b.Fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
		}
	})
}

// batchNormLayer defines a batch norm that takes the inputs that check passes,
// such as those with n dimensions behind the channels.
func batchNormLayer(name string, n int, check func(b *module.Builder, x *op.Tensor)) *module.Layer {
	return define(module.Layer{
		Sig:   "nn." + name + "(num_features: infer int, eps: float = 1e-05, momentum: float? = 0.1, affine: bool = True, track_running_stats: bool = True)",
		Is:    nn.Layer{Batch: true, Running: true, Init: nn.Batch},
		Alone: func(b *module.Builder) []*op.Tensor { return b.Alone(channels(b.Size("num_features"), n, 2)) },
		Build: func(b *module.Builder) {
			x := b.Tensor(2)
			check(b, x)
			c := b.Infer("num_features", x.Dim(1))
			var w, bias, mean, variance value.Value
			if b.Bool("affine") {
				w, bias = b.Param("weight", c), b.Param("bias", c)
			}
			track := b.Bool("track_running_stats")
			if track {
				mean, variance = b.Buffer("running_mean", c), b.Buffer("running_var", c)
				b.Run(aten.CountBatch, nil, b.Counter("num_batches_tracked"))
			}
			a := &aten.BatchNormArgs{Batch: !track, Eps: b.Float("eps")}
			if b.Has("momentum") {
				a.Momentum = b.Float("momentum")
			} else {
				a.Cumulative = track
			}
			b.Finish(b.Do(aten.BatchNorm, a, b.In(0), w, bias, mean, variance))
		},
	})
}
