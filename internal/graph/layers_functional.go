package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
)

// functional defines a module that calls the function of the same arguments, in
// place if it is asked to. Inputs are as in Layer.
func functional(sig, inputs string, row *op.Op) {
	layer(Layer{Sig: sig, Inputs: inputs, Build: func(b *builder) {
		row := b.mayBeInPlace(row)
		b.finish([]val{b.call(row, op.BindArgs(row.Args, b.args), b.ins...)})
	}})
}

// mayBeInPlace is the operator or, if the module is asked to work in place, that form.
func (b *builder) mayBeInPlace(row *op.Op) *op.Op {
	if b.bool("inplace") {
		return op.InPlaceForm(row)
	}
	return row
}

func init() {
	functional("nn.CELU(alpha: float = 1.0, inplace: bool = False)", "", op.Celu)
	functional("nn.SELU(inplace: bool = False)", "", op.Selu)
	functional("nn.RReLU(lower: float = 0.125, upper: float = 0.3333333333333333, inplace: bool = False)", "", op.RReLU)
	functional("nn.Threshold(threshold: float, value: float, inplace: bool = False)", "", op.Threshold)
	functional("nn.Hardshrink(lambd: float = 0.5)", "", op.Hardshrink)
	functional("nn.Softshrink(lambd: float = 0.5)", "", op.Softshrink)
	functional("nn.Softmin(dim: int)", "", op.Softmin)
	functional("nn.Softsign()", "", op.Softsign)
	functional("nn.Tanhshrink()", "", op.Tanhshrink)
	for name, row := range map[string]*op.Op{"AlphaDropout": op.AlphaDropout, "FeatureAlphaDropout": op.FeatureAlphaDropout} {
		layer(Layer{Sig: "nn." + name + "(p: float = 0.5, inplace: bool = False)", Build: func(b *builder) { // which takes no notice of inplace
			b.finish([]val{b.do(row, &op.DropoutArgs{P: b.float("p")}, b.in(0))})
		}})
	}
	functional("nn.ChannelShuffle(groups: int)", "", op.ChannelShuffle)
	functional("nn.Unfold(kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", "", op.Im2col)
	functional("nn.Fold(output_size: pair, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", "", op.Col2im)
	functional("nn.CosineSimilarity(dim: int = 1, eps: float = 1e-08)", "x1 x2", op.CosineSimilarity)
	functional("nn.PairwiseDistance(p: float = 2.0, eps: float = 1e-06, keepdim: bool = False)", "x1 x2", op.PairwiseDistance)
	functional("nn.UpsamplingNearest2d(size: pair? = None, scale_factor: float? = None)", "", op.UpsampleNearest)
	functional("nn.UpsamplingBilinear2d(size: pair? = None, scale_factor: float? = None)", "", op.UpsampleBilinear)
	for n := 1; n <= 3; n++ {
		functional(fmt.Sprintf("nn.LPPool%dd(norm_type: float, kernel_size: pair, stride: pair? = None, ceil_mode: bool = False)", n), "", op.LPPools[n])
		if n > 1 {
			functional(fmt.Sprintf("nn.FractionalMaxPool%dd(kernel_size: pair, output_size: pair? = None, output_ratio: floats? = None, return_indices: bool = False)", n),
				"", op.FractionalMaxPoolFunctions[n])
		}
		layer(Layer{
			Sig:     fmt.Sprintf("nn.MaxUnpool%dd(kernel_size: pair, stride: pair? = None, padding: pair = 0)", n),
			Forward: "forward(output_size: ints? = None)",
			Inputs:  "input indices",
			Build: func(b *builder) {
				row := op.MaxUnpoolFunctions[n]
				b.finish([]val{b.do(row, op.BindArgs(row.Args, b.args), b.ins...)})
			},
		})
		for kind, mode := range paddingModes {
			sig := fmt.Sprintf("nn.%s%dd(padding: pair)", kind, n)
			if kind == "ConstantPad" {
				sig = fmt.Sprintf("nn.%s%dd(padding: pair, value: float)", kind, n)
			}
			layer(Layer{Sig: sig, Build: func(b *builder) {
				const least = -1 << 31
				b.finish([]val{b.do(op.Pad, &op.PadArgs{Pad: b.spatial("padding", 2*n, least), Mode: mode, Value: b.float("value")}, b.in(0))})
			}})
		}
	}
	layer(Layer{Sig: "nn.Softmax2d()", Build: func(b *builder) {
		if b.x(3).Rank() > 4 {
			b.fail("", "the input needs three or four dimensions, not shape %v", b.x(3).Size)
		}
		b.finish([]val{b.do(op.Softmax, &op.SoftmaxArgs{Dim: -3}, b.in(0))})
	}})
}

// paddingModes are the modes of F.pad by the names of modules without their
// number of dimensions.
var paddingModes = map[string]string{
	"ZeroPad": "constant", "ConstantPad": "constant", "ReflectionPad": "reflect", "ReplicationPad": "replicate", "CircularPad": "circular",
}
