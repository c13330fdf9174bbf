package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/op"
)

// functional defines a module that calls the function of the same arguments, in
// place if it is asked to. Inputs are as in Layer.
func functional(sig, inputs string, row *op.Op) *module.Layer {
	return define(module.Layer{Sig: sig, Inputs: inputs, Build: func(b *module.Builder) {
		row := mayBeInPlace(b, row)
		b.Finish(b.Call(row, op.BindArgs(row.Args, b.Args), b.Ins...))
	}})
}

// mayBeInPlace is the operator or, if the module is asked to work in place, that form.
func mayBeInPlace(b *module.Builder, row *op.Op) *op.Op {
	if b.Takes("inplace") && b.Bool("inplace") {
		return row.InPlaceForm()
	}
	return row
}

var (
	CELU       = functional("nn.CELU(alpha: float = 1.0, inplace: bool = False)", "", aten.Celu)
	SELU       = functional("nn.SELU(inplace: bool = False)", "", aten.Selu)
	RReLU      = functional("nn.RReLU(lower: float = 0.125, upper: float = 0.3333333333333333, inplace: bool = False)", "", aten.RReLU)
	Threshold  = functional("nn.Threshold(threshold: float, value: float, inplace: bool = False)", "", aten.Threshold)
	Hardshrink = functional("nn.Hardshrink(lambd: float = 0.5)", "", aten.Hardshrink)
	Softshrink = functional("nn.Softshrink(lambd: float = 0.5)", "", aten.Softshrink)
	Softmin    = functional("nn.Softmin(dim: int)", "", aten.Softmin)
	Softsign   = functional("nn.Softsign()", "", aten.Softsign)
	Tanhshrink = functional("nn.Tanhshrink()", "", aten.Tanhshrink)
)

// AlphaDropout and FeatureAlphaDropout take no notice of inplace.
var (
	AlphaDropout        = alphaDropout("AlphaDropout", aten.AlphaDropout)
	FeatureAlphaDropout = alphaDropout("FeatureAlphaDropout", aten.FeatureAlphaDropout)
)

func alphaDropout(name string, row *op.Op) *module.Layer {
	return define(module.Layer{Sig: "nn." + name + "(p: float = 0.5, inplace: bool = False)", Build: func(b *module.Builder) {
		b.Finish(b.Do(row, &aten.DropoutArgs{P: b.Float("p")}, b.In(0)))
	}})
}

var (
	ChannelShuffle       = functional("nn.ChannelShuffle(groups: int)", "", aten.ChannelShuffle)
	Unfold               = functional("nn.Unfold(kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", "", aten.Im2col)
	Fold                 = functional("nn.Fold(output_size: pair, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", "", aten.Col2im)
	CosineSimilarity     = functional("nn.CosineSimilarity(dim: int = 1, eps: float = 1e-08)", "x1 x2", aten.CosineSimilarity)
	PairwiseDistance     = functional("nn.PairwiseDistance(p: float = 2.0, eps: float = 1e-06, keepdim: bool = False)", "x1 x2", aten.PairwiseDistance)
	UpsamplingNearest2d  = functional("nn.UpsamplingNearest2d(size: pair? = None, scale_factor: float? = None)", "", aten.UpsampleNearest)
	UpsamplingBilinear2d = functional("nn.UpsamplingBilinear2d(size: pair? = None, scale_factor: float? = None)", "", aten.UpsampleBilinear)
)

// The poolings over so many dimensions that have no kernels of their own, or take
// indices.
var (
	LPPools            = [...]*module.Layer{1: lpPool(1), 2: lpPool(2), 3: lpPool(3)}
	FractionalMaxPools = [...]*module.Layer{2: fractionalMaxPool(2), 3: fractionalMaxPool(3)}
	MaxUnpools         = [...]*module.Layer{1: maxUnpool(1), 2: maxUnpool(2), 3: maxUnpool(3)}
)

func lpPool(n int) *module.Layer {
	return functional(fmt.Sprintf("nn.LPPool%dd(norm_type: float, kernel_size: pair, stride: pair? = None, ceil_mode: bool = False)", n), "", aten.LPPools[n])
}

func fractionalMaxPool(n int) *module.Layer {
	return functional(fmt.Sprintf("nn.FractionalMaxPool%dd(kernel_size: pair, output_size: pair? = None, output_ratio: floats? = None, return_indices: bool = False)", n),
		"", aten.FractionalMaxPoolFunctions[n])
}

func maxUnpool(n int) *module.Layer {
	return define(module.Layer{
		Sig:     fmt.Sprintf("nn.MaxUnpool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0)", n),
		Forward: "forward(output_size: ints? = None)",
		Inputs:  "input indices",
		Build: func(b *module.Builder) {
			row := aten.MaxUnpoolFunctions[n]
			b.Finish(b.Do(row, op.BindArgs(row.Args, b.Args), b.Ins...))
		},
	})
}

// The paddings over so many dimensions, each a mode of F.pad.
var (
	ZeroPads        = paddings("ZeroPad", "padding: pair", "constant")
	ConstantPads    = paddings("ConstantPad", "padding: pair, value: float", "constant")
	ReflectionPads  = paddings("ReflectionPad", "padding: pair", "reflect")
	ReplicationPads = paddings("ReplicationPad", "padding: pair", "replicate")
	CircularPads    = paddings("CircularPad", "padding: pair", "circular")
)

func paddings(name, params, mode string) (out [4]*module.Layer) {
	for n := 1; n <= 3; n++ {
		out[n] = define(module.Layer{Sig: fmt.Sprintf("nn.%s%dd(%s)", name, n, params), Build: func(b *module.Builder) {
			const least = -1 << 31
			a := &aten.PadArgs{Pad: b.Spatial("padding", 2*n, least), Mode: mode}
			if b.Takes("value") {
				a.Value = b.Float("value")
			}
			b.Finish(b.Do(aten.Pad, a, b.In(0)))
		}})
	}
	return out
}

var Softmax2d = define(module.Layer{Sig: "nn.Softmax2d()", Build: func(b *module.Builder) {
	if b.Tensor(3).Rank() > 4 {
		b.Fail("", "the input needs three or four dimensions, not shape %v", b.Tensor(3).Size)
	}
	b.Finish(b.Do(aten.Softmax, &aten.SoftmaxArgs{Dim: -3}, b.In(0)))
}})
