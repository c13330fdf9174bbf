package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
)

func init() {
	for n := 1; n <= 3; n++ {
		convolution(n)
		transposedConvolution(n)
	}
}

// convInput checks the input of a convolution over n dimensions and returns its
// number of channels, with that of the output and the groups.
func (b *builder) convInput(n int) (in, out, groups int64) {
	x := b.x(2)
	if x.Rank() != n+2 {
		b.fail("", "expected an input with %d dimensions, not shape %v", n+2, x.Size)
	}
	in, out, groups = b.infer("in_channels", x.Dim(1)), b.positive("out_channels"), b.positive("groups")
	if in%groups != 0 || out%groups != 0 {
		b.fail("groups", "%d input and %d output channels do not divide into %d groups", in, out, groups)
	}
	return in, out, groups
}

// convolution defines Conv1d to 3d.
func convolution(n int) {
	layer(Layer{
		Sig: fmt.Sprintf("nn.Conv%dd(in_channels: infer int, out_channels: int, kernel_size: pair, stride: pair = 1, padding: pair(same|valid) = 0, "+
			"dilation: pair = 1, groups: int = 1, bias: bool = True, padding_mode: str(zeros) = 'zeros')", n),
		Build: func(b *builder) {
			in, out, groups := b.convInput(n)
			kernel := b.spatial("kernel_size", n, 1)
			a := &op.ConvArgs{Stride: b.spatial("stride", n, 1), Dilation: b.spatial("dilation", n, 1), Groups: groups}
			x := b.in(0)
			switch b.str("padding") {
			case "same":
				x = b.padSame(x, a, kernel)
			case "valid":
				a.Padding = make([]int64, n)
			default:
				a.Padding = b.spatial("padding", n, 0)
			}
			w := b.param("weight", append([]int64{out, in / groups}, kernel...)...)
			var bias val
			if b.bool("bias") {
				bias = b.param("bias", out)
			}
			b.finish([]val{b.do("convolution", a, x, w, bias)})
		},
	})
}

// padSame sets the padding that keeps the size. Where it cannot be the same on
// both sides, the input is padded at the end first (convolution_same in
// aten/src/ATen/native/Convolution.cpp).
func (b *builder) padSame(x val, a *op.ConvArgs, kernel []int64) val {
	n := len(kernel)
	a.Padding = make([]int64, n)
	uneven := make([]int64, 2*n)
	pad := false
	for i := range a.Padding {
		if a.Stride[i] != 1 {
			b.fail("padding", "padding 'same' needs stride 1")
		}
		total := a.Dilation[i] * (kernel[i] - 1)
		a.Padding[i] = total / 2
		uneven[2*(n-1-i)+1] = total % 2
		pad = pad || total%2 != 0
	}
	if pad {
		return b.do("constant_pad_nd", &op.PadArgs{Pad: uneven}, x)
	}
	return x
}

// transposedConvolution defines ConvTranspose1d to 3d.
func transposedConvolution(n int) {
	layer(Layer{
		Sig: fmt.Sprintf("nn.ConvTranspose%dd(in_channels: infer int, out_channels: int, kernel_size: pair, stride: pair = 1, padding: pair = 0, "+
			"output_padding: pair = 0, groups: int = 1, bias: bool = True, dilation: pair = 1, padding_mode: str(zeros) = 'zeros')", n),
		Build: func(b *builder) {
			in, out, groups := b.convInput(n)
			a := &op.ConvArgs{
				Stride: b.spatial("stride", n, 1), Padding: b.spatial("padding", n, 0), Dilation: b.spatial("dilation", n, 1),
				OutputPadding: b.spatial("output_padding", n, 0), Groups: groups, Transposed: true,
			}
			for i, p := range a.OutputPadding {
				if p >= a.Stride[i] && p >= a.Dilation[i] {
					b.fail("output_padding", "output_padding must be smaller than stride or dilation, not %d", p)
				}
			}
			w := b.param("weight", append([]int64{in, out / groups}, b.spatial("kernel_size", n, 1)...)...)
			var bias val
			if b.bool("bias") {
				bias = b.param("bias", out)
			}
			b.finish([]val{b.do("convolution", a, b.in(0), w, bias)})
		},
	})
}
