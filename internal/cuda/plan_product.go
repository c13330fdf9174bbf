package cuda

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

var productPlans = map[*kernel.Kernel]gpuPlanner{
	kernel.Gemm:           gemm,
	kernel.GroupedGemm:    groupedGemm,
	kernel.Conv:           convolution("conv", "y", "x", "weight", "x"),
	kernel.ConvInputGrad:  convolution("conv_input_grad", "g", "gx", "weight", "g"),
	kernel.ConvWeightGrad: convolution("conv_weight_grad", "g", "x", "g", "x"),
}

// mostRows bounds the sizes of a product: the functions count them, and some more,
// in 32 bits. Coordinates of images, with what is beside them, are below
// mostPixels, so that a sum of them is not taken for OUTSIDE of operand.cuh.
const (
	mostRows   = math.MaxInt32 - 1<<10
	mostPixels = 1 << 28
)

// matrices is the product that a call of gemm is, with what computes it, and
// whether the operands can be read by groups.
func (g gpu) matrices(c *kernel.Call) (p product, u unit, groups bool) {
	y, a, b := &c.T[0], &c.T[1], &c.T[2]
	u = g.unit(a, b)
	// Half precision is read by groups for tensor cores only.
	groups = grouped(a, 1, 2) && grouped(b, 2, 1) && a.DType == b.DType && (u.tensor || a.DType == tensor.Float32)
	return product{y.Size.At(0), y.Size.At(1), y.Size.At(2), a.Size.At(2)}, u, groups
}

func gemm(c *kernel.Call, g gpu) ([]launch, error) {
	y, a, b, bias := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
	p, u, groups := g.matrices(c)
	if p.batches*p.rows*p.cols == 0 {
		return nil, nil
	}
	if max(p.rows, p.cols, p.depth) > mostRows {
		return nil, unsupported(c, fmt.Sprintf("a product of %v", p))
	}
	t, n, length, _ := g.tile(p, u, groups)
	first := args{}.floats(c.F...).ints(p.rows, p.cols, p.depth, n, length).whole(y).whole(a).whole(b).whole(bias)
	function, finish := t.functions(u)
	ls := []launch{{function, p.blocks(t) * n, 1, first}}
	if n > 1 {
		ls = append(ls, each("gemm_finish"+finish, p.batches*p.rows*p.cols, args{}.floats(c.F...).ints(p.batches, p.rows, p.cols, n).whole(y).whole(bias))...)
	}
	return ls, nil
}

// mostParts is how many parts the functions know.
const mostParts = 1024

// groupedGemm has tiles for as many parts as there can be.
func groupedGemm(c *kernel.Call, g gpu) ([]launch, error) {
	y, a, b, offs := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
	divided, groups, u := number(c, "divided"), offs.Size.At(0), g.unit(a, b)
	rows, cols, depth := y.Size.At(1), y.Size.At(2), a.Size.At(2)
	if max(rows, cols, depth) > mostRows || groups > mostParts {
		return nil, unsupported(c, fmt.Sprintf("a product of %v in %d parts", product{1, rows, cols, depth}, groups))
	}
	// Groups of 16 bytes that lie across parts are not whole in them.
	whole := grouped(a, 1, 2) && grouped(b, 2, 1) && a.DType == b.DType && (u.tensor || a.DType == tensor.Float32)
	alongK := func(t *kernel.Tensor, k int) bool { return t.Stride.At(k) == 1 }
	switch divided {
	case 0:
		whole = whole && alongK(a, 2)
	case 1:
		whole = whole && alongK(b, 1)
	default:
		whole = whole && !alongK(a, 2) && !alongK(b, 1)
	}
	t, function := anyTile, "grouped_any"
	if whole {
		t, function = smallTile, "grouped_64"
	}
	down, across, times := tensor.DivUp(rows, t.rows), tensor.DivUp(cols, t.cols), int64(1)
	switch divided {
	case 0:
		down += groups
	case 1:
		across += groups
	default:
		times = groups
	}
	if rows*cols == 0 {
		return nil, nil
	}
	p := args{}.ints(divided, groups, rows, cols, depth)
	for i := range c.T {
		of := c.T[i]
		if i < 3 && of.Size.At(0) == 1 { // all groups have it
			of.Stride = of.Stride.Set(0, 0)
		}
		p = p.whole(&of)
	}
	return []launch{{function + u.suffix, down * across * times, 1, p}}, nil
}

// spatial are the three last dimensions of images, or numbers of that name, from
// the innermost on.
func spatial(t *kernel.Tensor) []int64 { return []int64{t.Size.At(4), t.Size.At(3), t.Size.At(2)} }
func triple(c *kernel.Call, name string) []int64 {
	return []int64{number(c, name+"_w"), number(c, name+"_h"), number(c, name+"_d")}
}

// convolution is one of the three products of a convolution. out and in name the
// images on both sides of it, left and right what the product is of.
func convolution(function, out, in, left, right string) gpuPlanner {
	return func(c *kernel.Call, g gpu) ([]launch, error) {
		y, l, r := &c.T[0], operand(c, left), operand(c, right)
		weight := operand(c, "weight")
		if function == "conv_weight_grad" {
			weight = y
		}
		image, result, groups := operand(c, in), operand(c, out), number(c, "groups")
		ins, outs, batch := image.Size.At(1)/groups, result.Size.At(1)/groups, image.Size.At(0)
		pixelsIn, pixelsOut, taps := batch*numel(spatial(image)), batch*numel(spatial(result)), numel(spatial(weight))
		p := product{batches: groups}
		switch function {
		case "conv":
			p.rows, p.cols, p.depth = outs, pixelsOut, ins*taps
		case "conv_input_grad":
			p.rows, p.cols, p.depth = ins, pixelsIn, outs*taps
		default:
			p.rows, p.cols, p.depth = outs, ins*taps, pixelsOut
		}
		if y.Numel() == 0 {
			return nil, nil
		}
		if max(p.rows, p.cols, p.depth) > mostRows || beyond(c, image, weight) {
			return nil, unsupported(c, fmt.Sprintf("a product of %v, of images %v", p, image.Size))
		}
		geometry := args{}.ints(batch, ins, outs)
		for _, t := range [][]int64{spatial(image), spatial(result), spatial(weight), triple(c, "stride"), triple(c, "padding"), triple(c, "dilation")} {
			geometry = geometry.ints(t...)
		}
		bias := operand(c, "bias")
		geometry = geometry.whole(y).whole(l).whole(r).whole(bias)
		if min(p.rows, p.cols) < tuning.narrow {
			if function == "conv_weight_grad" {
				return []launch{{function + "_long", groups * p.rows * p.cols, 1, append(args{}.ints(p.rows, p.cols, p.depth), geometry...)}}, nil
			}
			return each(function+"_direct", groups*p.rows*p.cols, append(args{}.ints(p.rows, p.cols, p.depth, groups), geometry...)), nil
		}
		u := g.unit(l, r)
		n, length, time := g.divide(p, convTile, u)
		if as, ok := pointwise(c); ok {
			if _, _, _, faster := g.tile(g.matrices(as)); faster < time {
				return gemm(as, g)
			}
		}
		ls := []launch{{function + "_tile" + u.suffix, p.blocks(convTile) * n, 1, append(args{}.ints(p.rows, p.cols, p.depth, n, length), geometry...)}}
		if n > 1 {
			ls = append(ls, each(function+"_finish"+u.finish, groups*p.rows*p.cols, append(args{}.ints(p.rows, p.cols, groups, n), geometry...))...)
		}
		return ls, nil
	}
}

// beyond reports whether coordinates of a convolution may be too large.
func beyond(c *kernel.Call, image, weight *kernel.Tensor) bool {
	padding, dilation := triple(c, "padding"), triple(c, "dilation")
	for d, n := range spatial(image) {
		if n+2*padding[d]+spatial(weight)[d]*dilation[d] > mostPixels {
			return true
		}
	}
	return false
}
