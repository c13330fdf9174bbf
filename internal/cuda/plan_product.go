package cuda

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

var productPlans = map[*kernel.Kernel]planner{
	kernel.Gemm:           gemm,
	kernel.Conv:           convolution("conv", "y", "x", "weight", "x"),
	kernel.ConvInputGrad:  convolution("conv_input_grad", "g", "gx", "weight", "g"),
	kernel.ConvWeightGrad: convolution("conv_weight_grad", "g", "x", "g", "x"),
}

// mostRows bounds the sizes of a product, and the strides along which it sums:
// the functions count them, and some more, in 32 bits.
const mostRows = math.MaxInt32 - 1<<10

// splits divides the depth of a product if its tiles alone do not keep a GPU
// busy.
func splits(tiles, batches, rows, cols, depth int64) (count, each int64) {
	if 2*tiles > tuning.enough {
		return 1, depth
	}
	return parts(depth, 2*tiles, tuning.depth, batches*rows*cols, tuning.scratch)
}

func gemm(c *kernel.Call) ([]launch, error) {
	y, a, b, bias := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
	batches, rows, cols, depth := y.Size.At(0), y.Size.At(1), y.Size.At(2), a.Size.At(2)
	if batches*rows*cols == 0 {
		return nil, nil
	}
	if max(rows, cols, depth, a.Stride.At(2), b.Stride.At(1)) > mostRows {
		return nil, unsupported(c, fmt.Sprintf("a product of %d×%d×%d, strides %v and %v", rows, cols, depth, a.Stride, b.Stride))
	}
	side := int64(128)
	tiles := batches * ceilDiv(rows, side) * ceilDiv(cols, side)
	n, length := int64(1), depth
	if 2*tiles < tuning.enough {
		side = 64
		tiles = batches * ceilDiv(rows, side) * ceilDiv(cols, side)
		n, length = splits(tiles, batches, rows, cols, depth)
	}
	p := args{}.floats(c.F...).ints(rows, cols, depth, n, length).whole(y).whole(a).whole(b).whole(bias)
	ls := []launch{{fmt.Sprintf("gemm_%d", side), tiles * n, 1, p}}
	if n > 1 {
		ls = append(ls, each("gemm_finish", batches*rows*cols, args{}.floats(c.F...).ints(batches, rows, cols, n).whole(y).whole(bias))...)
	}
	return ls, nil
}

// spatial are the three last dimensions of images, or numbers of that name, from
// the innermost on.
func spatial(t *kernel.Tensor) []int64 { return []int64{t.Size.At(4), t.Size.At(3), t.Size.At(2)} }
func triple(c *kernel.Call, name string) []int64 {
	return []int64{number(c, name+"_w"), number(c, name+"_h"), number(c, name+"_d")}
}

// convolution is one of the three products of a convolution. out and in name the
// images on both sides of it, left and right what the product is of.
func convolution(function, out, in, left, right string) planner {
	return func(c *kernel.Call) ([]launch, error) {
		y, l, r := &c.T[0], operand(c, left), operand(c, right)
		weight := operand(c, "weight")
		if function == "conv_weight_grad" {
			weight = y
		}
		image, result, groups := operand(c, in), operand(c, out), number(c, "groups")
		ins, outs, batch := image.Size.At(1)/groups, result.Size.At(1)/groups, image.Size.At(0)
		pixelsIn, pixelsOut, taps := batch*numel(spatial(image)), batch*numel(spatial(result)), numel(spatial(weight))
		var rows, cols, depth int64
		switch function {
		case "conv":
			rows, cols, depth = outs, pixelsOut, ins*taps
		case "conv_input_grad":
			rows, cols, depth = ins, pixelsIn, outs*taps
		default:
			rows, cols, depth = outs, ins*taps, pixelsOut
		}
		if y.Numel() == 0 {
			return nil, nil
		}
		if max(rows, cols, depth) > mostRows {
			return nil, unsupported(c, fmt.Sprintf("a product of %d×%d×%d", rows, cols, depth))
		}
		geometry := args{}.ints(batch, ins, outs)
		for _, t := range [][]int64{spatial(image), spatial(result), spatial(weight), triple(c, "stride"), triple(c, "padding"), triple(c, "dilation")} {
			geometry = geometry.ints(t...)
		}
		bias := operand(c, "bias")
		geometry = geometry.whole(y).whole(l).whole(r).whole(bias)
		if min(rows, cols) < tuning.narrow {
			if function == "conv_weight_grad" {
				return []launch{{function + "_long", groups * rows * cols, 1, append(args{}.ints(rows, cols, depth), geometry...)}}, nil
			}
			return each(function+"_direct", groups*rows*cols, append(args{}.ints(rows, cols, depth, groups), geometry...)), nil
		}
		tiles := groups * ceilDiv(rows, 64) * ceilDiv(cols, 64)
		n, length := splits(tiles, groups, rows, cols, depth)
		ls := []launch{{function + "_tile", tiles * n, 1, append(args{}.ints(rows, cols, depth, n, length), geometry...)}}
		if n > 1 {
			ls = append(ls, each(function+"_finish", groups*rows*cols, append(args{}.ints(rows, cols, groups, n), geometry...))...)
		}
		return ls, nil
	}
}
