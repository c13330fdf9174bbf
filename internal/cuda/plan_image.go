package cuda

import "github.com/memplan/memplan/internal/kernel"

var imagePlans = map[*kernel.Kernel]planner{
	kernel.MaxPool:             pool("max_pool", "x", "y", "y", "index", "x"),
	kernel.MaxPoolGrad:         pool("max_pool_grad", "gx", "g", "gx", "g", "index"),
	kernel.AvgPool:             pool("avg_pool", "x", "y", "y", "x"),
	kernel.AvgPoolGrad:         pool("avg_pool_grad", "gx", "g", "gx", "g"),
	kernel.AdaptiveAvgPool:     pool("adaptive_avg_pool", "x", "y", "y", "x"),
	kernel.AdaptiveAvgPoolGrad: pool("adaptive_avg_pool_grad", "gx", "g", "gx", "g"),
	kernel.Resample:            resample("resample"),
	kernel.ResampleGrad:        resample("resample_grad"),
}

// resample is a function between two images: it is told the sizes of both.
func resample(function string) planner {
	return func(c *kernel.Call) ([]launch, error) {
		to, from := &c.T[0], &c.T[1]
		p := args{}.ints(c.I[0]).doubles(c.F...).ints(spatial(from)...).sizes(to.Size.Slice()).whole(to).whole(from)
		return each(function, to.Numel(), p), nil
	}
}

// pool is a function over windows between the images in and out, of which it
// takes the operands named.
func pool(function, in, out string, names ...string) planner {
	return func(c *kernel.Call) ([]launch, error) {
		var p args
		for _, n := range c.Kernel.Ints {
			if n == "include_pad" || n == "divisor" {
				p = p.ints(number(c, n))
			}
		}
		dilation := triple(c, "dilation")
		for i := range dilation {
			dilation[i] = max(1, dilation[i]) // kernels without it
		}
		for _, t := range [][]int64{spatial(operand(c, in)), spatial(operand(c, out)), triple(c, "kernel"), triple(c, "stride"), triple(c, "padding"), dilation} {
			p = p.ints(t...)
		}
		p = p.sizes(c.T[0].Size.Slice())
		for _, n := range names {
			p = p.whole(operand(c, n))
		}
		return each(function, c.T[0].Numel(), p), nil
	}
}
