package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
)

// pointwise defines an activation module: one call of an operator, in place if
// asked for.
func pointwise(sig string, row *op.Op, args func(b *builder) any) *Layer {
	return layer(Layer{Sig: sig, Build: func(b *builder) {
		a := op.BindArgs(row.Args, b.args)
		if args != nil {
			a = args(b)
		}
		b.finish([]val{b.do(b.mayBeInPlace(row), a, b.in(0))})
	}})
}

var Linear = layer(Layer{
	Sig: "nn.Linear(in_features: infer int, out_features: int, bias: bool = True)",
	Is:  nn.Layer{Linear: true, Init: nn.Kaiming},
	Build: func(b *builder) {
		in, out := b.infer("in_features", b.x(1).Dim(-1)), b.positive("out_features")
		w := b.param("weight", out, in)
		var bias val
		if b.bool("bias") {
			bias = b.param("bias", out)
		}
		b.finish([]val{b.do(op.Linear, nil, b.in(0), w, bias)})
	},
})

var Identity = layer(Layer{Sig: "nn.Identity()", Build: func(b *builder) { b.finish([]val{b.in(0)}) }})

var Dropout = layer(Layer{
	Sig: "nn.Dropout(p: float = 0.5, inplace: bool = False)",
	Build: func(b *builder) {
		b.finish([]val{b.do(b.mayBeInPlace(op.Dropout), &op.DropoutArgs{P: b.float("p")}, b.in(0))})
	},
})

var Flatten = layer(Layer{
	Sig: "nn.Flatten(start_dim: int = 1, end_dim: int = -1)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.Flatten, &op.FlattenArgs{Start: int(b.int("start_dim")), End: int(b.int("end_dim"))}, b.in(0))})
	},
})

var Softmax = layer(Layer{
	Sig: "nn.Softmax(dim: int)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.Softmax, &op.SoftmaxArgs{Dim: int(b.int("dim"))}, b.in(0))})
	},
})

var LogSoftmax = layer(Layer{
	Sig: "nn.LogSoftmax(dim: int)",
	Build: func(b *builder) {
		b.finish([]val{b.do(op.LogSoftmax, &op.SoftmaxArgs{Dim: int(b.int("dim"))}, b.in(0))})
	},
})

var (
	ReLU        = pointwise("nn.ReLU(inplace: bool = False)", op.Relu, nil)
	GELU        = pointwise("nn.GELU(approximate: str(none|tanh) = 'none')", op.Gelu, nil)
	SiLU        = pointwise("nn.SiLU(inplace: bool = False)", op.Silu, nil)
	Mish        = pointwise("nn.Mish(inplace: bool = False)", op.Mish, nil)
	Tanh        = pointwise("nn.Tanh()", op.Tanh, nil)
	Sigmoid     = pointwise("nn.Sigmoid()", op.Sigmoid, nil)
	Softplus    = pointwise("nn.Softplus(beta: float = 1.0, threshold: float = 20.0)", op.Softplus, nil)
	Hardswish   = pointwise("nn.Hardswish(inplace: bool = False)", op.Hardswish, nil)
	Hardsigmoid = pointwise("nn.Hardsigmoid(inplace: bool = False)", op.Hardsigmoid, nil)
	Hardtanh    = pointwise("nn.Hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False)", op.Hardtanh, nil)
	ReLU6       = pointwise("nn.ReLU6(inplace: bool = False)", op.Hardtanh, func(*builder) any { return &op.RangeArgs{Max: 6} })
	ELU         = pointwise("nn.ELU(alpha: float = 1.0, inplace: bool = False)", op.Elu, nil)
	LeakyReLU   = pointwise("nn.LeakyReLU(negative_slope: float = 0.01, inplace: bool = False)", op.LeakyRelu, nil)
	LogSigmoid  = pointwise("nn.LogSigmoid()", op.LogSigmoid, nil)
)

var LayerNorm = layer(Layer{
	Sig: "nn.LayerNorm(normalized_shape: infer ints, eps: float = 1e-05, elementwise_affine: bool = True, bias: bool = True)",
	Is:  nn.Layer{Init: nn.Ones},
	Build: func(b *builder) {
		shape := b.ints("normalized_shape")
		if shape == nil {
			shape = []int64{b.x(1).Dim(-1)}
			b.args["normalized_shape"] = shape
		}
		var w, bias val
		if b.bool("elementwise_affine") {
			w = b.param("weight", shape...)
			if b.bool("bias") {
				bias = b.param("bias", shape...)
			}
		}
		b.finish([]val{b.do(op.LayerNorm, &op.LayerNormArgs{Shape: shape, Eps: b.float("eps")}, b.in(0), w, bias)})
	},
})

var RMSNorm = layer(Layer{
	Sig: "nn.RMSNorm(normalized_shape: infer ints, eps: float? = None, elementwise_affine: bool = True)",
	Is:  nn.Layer{Init: nn.Ones},
	Build: func(b *builder) {
		shape := b.ints("normalized_shape")
		if shape == nil {
			shape = []int64{b.x(1).Dim(-1)}
			b.args["normalized_shape"] = shape
		}
		var w val
		if b.bool("elementwise_affine") {
			w = b.param("weight", shape...)
		}
		b.finish([]val{b.do(op.RMSNorm, op.BindArgs(&op.RMSNormArgs{}, b.args), b.in(0), w)})
	},
})

var GroupNorm = layer(Layer{
	Sig: "nn.GroupNorm(num_groups: int, num_channels: infer int, eps: float = 1e-05, affine: bool = True)",
	Is:  nn.Layer{Init: nn.Ones},
	Build: func(b *builder) {
		c := b.infer("num_channels", b.x(2).Dim(1))
		var w, bias val
		if b.bool("affine") {
			w, bias = b.param("weight", c), b.param("bias", c)
		}
		b.finish([]val{b.do(op.GroupNorm, &op.GroupNormArgs{Groups: b.positive("num_groups"), Eps: b.float("eps")}, b.in(0), w, bias)})
	},
})

// BatchNorms are those over so many dimensions.
var BatchNorms = [...]*Layer{1: batchNorm(1), 2: batchNorm(2), 3: batchNorm(3)}

// SyncBatchNorm is in one process a batch norm; the exchange between several, which
// allocates more, is not modelled.
var SyncBatchNorm = batchNormLayer("SyncBatchNorm", func(b *builder, _ *op.Tensor) {
	const alone = "SyncBatchNorm is played as in one process, where it is a batch normalization; its exchange with others takes memory, too"
	*b.env.Notes = note.Add(*b.env.Notes, note.OneProcess.New(alone))
})

// batchNorm defines BatchNorm1d to 3d.
func batchNorm(n int) *Layer {
	return batchNormLayer(fmt.Sprintf("BatchNorm%dd", n), func(b *builder, x *op.Tensor) {
		if r := x.Rank(); r != n+2 && !(n == 1 && r == 2) {
			b.fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
		}
	})
}

// batchNormLayer defines a batch norm that takes the inputs that check passes.
func batchNormLayer(name string, check func(b *builder, x *op.Tensor)) *Layer {
	return layer(Layer{
		Sig: "nn." + name + "(num_features: infer int, eps: float = 1e-05, momentum: float? = 0.1, affine: bool = True, track_running_stats: bool = True)",
		Is:  nn.Layer{Batch: true, Running: true, Init: nn.Batch},
		Build: func(b *builder) {
			x := b.x(2)
			check(b, x)
			c := b.infer("num_features", x.Dim(1))
			var w, bias, mean, variance val
			if b.bool("affine") {
				w, bias = b.param("weight", c), b.param("bias", c)
			}
			track := b.bool("track_running_stats")
			if track {
				mean, variance = b.buffer("running_mean", c), b.buffer("running_var", c)
				b.run(op.CountBatch, nil, b.counter("num_batches_tracked"))
			}
			a := &op.BatchNormArgs{Batch: !track, Eps: b.float("eps")}
			if b.has("momentum") {
				a.Momentum = b.float("momentum")
			} else {
				a.Cumulative = track
			}
			b.finish([]val{b.do(op.BatchNorm, a, b.in(0), w, bias, mean, variance)})
		},
	})
}
