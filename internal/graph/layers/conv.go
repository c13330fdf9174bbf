package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// Convs and ConvTransposes are those over so many dimensions.
var (
	Convs          = [...]*module.Layer{1: convolution(1), 2: convolution(2), 3: convolution(3)}
	ConvTransposes = [...]*module.Layer{1: transposedConvolution(1), 2: transposedConvolution(2), 3: transposedConvolution(3)}
)

// channels are the sizes of an input with so many channels and n dimensions
// behind them.
func channels(c int64, n int, size int64) []int64 {
	out := []int64{2, c}
	for range n {
		out = append(out, size)
	}
	return out
}

// convInput checks the input of a convolution over n dimensions and returns its
// number of channels, with that of the output and the groups.
func convInput(b *module.Builder, n int) (in, out, groups int64) {
	x := b.Tensor(2)
	if x.Rank() != n+2 {
		b.Fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
	}
	in, out, groups = b.Infer("in_channels", x.Dim(1)), b.Positive("out_channels"), b.Positive("groups")
	if in%groups != 0 || out%groups != 0 {
		b.Fail("groups", "%d input and %d output channels do not divide into %d groups", in, out, groups)
	}
	return in, out, groups
}

// convolution defines Conv1d to 3d: the function of the same arguments, of an
// input that is padded before if its borders are not zeros.
func convolution(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.Conv%dd(in_channels: infer int, out_channels: int, kernel_size: pair, stride: pair = 1, padding: pair(same|valid) = 0, "+
			"dilation: pair = 1, groups: int = 1, bias: bool = True, padding_mode: str(zeros|reflect|replicate|circular) = 'zeros')", n),
		Is: nn.Layer{Conv: n, Init: nn.Kaiming},
		Alone: func(b *module.Builder) []*op.Tensor {
			x := channels(b.Size("in_channels"), n, 1)
			for i, k := range b.Spatial("kernel_size", n, 1) {
				x[i+2] = b.Spatial("dilation", n, 1)[i]*(k-1) + 1
				if b.Str("padding") == "" { // reflection needs more than it pads
					x[i+2] += b.Spatial("padding", n, 0)[i]
				}
			}
			return b.Alone(x)
		},
		Build: func(b *module.Builder) {
			in, out, groups := convInput(b, n)
			kernel := b.Spatial("kernel_size", n, 1)
			o := &aten.ConvOptions{Stride: b.Spatial("stride", n, 1), Dilation: b.Spatial("dilation", n, 1), Groups: groups, Padding: b.Args["padding"]}
			if b.Str("padding") == "" {
				b.Spatial("padding", n, 0)
			}
			w := b.Param("weight", append([]int64{out, in / groups}, kernel...)...)
			var bias value.Value
			if b.Bool("bias") {
				bias = b.Param("bias", out)
			}
			x := b.In(0)
			if mode := b.Str("padding_mode"); mode != "zeros" {
				x = b.Do(aten.Pad, &aten.PadArgs{Pad: border(b, o, kernel), Mode: mode}, x)
				o.Padding = []int64{0}
			}
			b.Finish(b.Do(aten.Convs[n], o, x, w, bias))
		},
	})
}

// border is how much a convolution pads its input before, on each side of the
// dimensions from the last one on (_reversed_padding_repeated_twice).
func border(b *module.Builder, o *aten.ConvOptions, kernel []int64) []int64 {
	n := len(kernel)
	var pad []int64
	for i := n - 1; i >= 0; i-- {
		switch total := o.Dilation[i] * (kernel[i] - 1); b.Str("padding") {
		case "same":
			if o.Stride[i] != 1 {
				b.Fail("padding", "padding 'same' needs stride 1")
			}
			pad = append(pad, total/2, total-total/2)
		case "valid":
			pad = append(pad, 0, 0)
		default:
			p := b.Spatial("padding", n, 0)[i]
			pad = append(pad, p, p)
		}
	}
	return pad
}

// transposedConvolution defines ConvTranspose1d to 3d.
func transposedConvolution(n int) *module.Layer {
	return define(module.Layer{
		Sig: fmt.Sprintf("nn.ConvTranspose%dd(in_channels: infer int, out_channels: int, kernel_size: pair, stride: pair = 1, padding: pair = 0, "+
			"output_padding: pair = 0, groups: int = 1, bias: bool = True, dilation: pair = 1, padding_mode: str(zeros) = 'zeros')", n),
		Is: nn.Layer{Init: nn.Kaiming},
		Alone: func(b *module.Builder) []*op.Tensor {
			x := channels(b.Size("in_channels"), n, 1)
			for i, p := range b.Spatial("padding", n, 0) {
				x[i+2] += 2 * p
			}
			return b.Alone(x)
		},
		Build: func(b *module.Builder) {
			in, out, groups := convInput(b, n)
			o := &aten.ConvOptions{
				Stride: b.Spatial("stride", n, 1), Padding: b.Spatial("padding", n, 0), Dilation: b.Spatial("dilation", n, 1),
				OutputPadding: b.Spatial("output_padding", n, 0), Groups: groups,
			}
			w := b.Param("weight", append([]int64{in, out / groups}, b.Spatial("kernel_size", n, 1)...)...)
			var bias value.Value
			if b.Bool("bias") {
				bias = b.Param("bias", out)
			}
			b.Finish(b.Do(aten.ConvTransposes[n], o, b.In(0), w, bias))
		},
	})
}
