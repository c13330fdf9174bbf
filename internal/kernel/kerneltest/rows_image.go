package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// axes are the names of the spatial dimensions in kernels' numbers.
var axes = []string{"_d", "_h", "_w"}

// window draws the numbers of a window over three dimensions of sizes at least
// 1, and returns how many places it has.
func (g *generator) window(in, size []int64, dilated, half bool) (out []int64) {
	for d, axis := range axes {
		stride, padding, dilation := 1+g.rng.Int64N(3), g.rng.Int64N(3), int64(1)
		if dilated {
			dilation = 1 + g.rng.Int64N(2)
		}
		if half { // pooling pads by at most half a window
			padding = min(padding, size[d]/2)
		}
		for in[d]+2*padding < dilation*(size[d]-1)+1 {
			in[d]++
		}
		g.i["stride"+axis], g.i["padding"+axis] = stride, padding
		if dilated {
			g.i["dilation"+axis] = dilation
		}
		out = append(out, (in[d]+2*padding-dilation*(size[d]-1)-1)/stride+1)
	}
	return out
}

// volume draws three sizes with at most n elements; those in front are 1 at
// times, as for images and sequences.
func (g *generator) volume(n int64) []int64 {
	out := []int64{1, 1, 1}
	for d := 2; d >= g.rng.IntN(3); d-- {
		out[d] = 1 + g.rng.Int64N(max(1, min(n, 12)))
		n /= out[d]
	}
	return out
}

// along is a dimension of a window: element k at o reads place
// o*stride - padding + k*dilation.
type along struct{ stride, padding, dilation int64 }

func (c *calculation) along(axis string) along {
	a := along{c.i["stride"+axis], c.i["padding"+axis], 1}
	if v, ok := c.i["dilation"+axis]; ok {
		a.dilation = v
	}
	return a
}

func (a along) at(o, k int64) int64 { return o*a.stride - a.padding + k*a.dilation }

// each3 calls f for all indices below size.
func each3(size []int64, f func(d, h, w int64)) {
	for d := range size[0] {
		for h := range size[1] {
			for w := range size[2] {
				f(d, h, w)
			}
		}
	}
}

// windows calls f for each place of a window and each element of it that lies
// within an image.
func (c *calculation) windows(out, window, in []int64, f func(o, k, i [3]int64)) {
	deep, high, wide := c.along("_d"), c.along("_h"), c.along("_w")
	each3(out, func(od, oh, ow int64) {
		each3(window, func(kd, kh, kw int64) {
			d, h, w := deep.at(od, kd), high.at(oh, kh), wide.at(ow, kw)
			if d >= 0 && h >= 0 && w >= 0 && d < in[0] && h < in[1] && w < in[2] {
				f([3]int64{od, oh, ow}, [3]int64{kd, kh, kw}, [3]int64{d, h, w})
			}
		})
	})
}

// products calls f for each product in a convolution with the places in the
// image, the weight and the result.
func (c *calculation) products(x, w, y []int64, f func(xi, wi, yi [5]int64)) {
	groups := c.i["groups"]
	inputs, outputs := x[1]/groups, y[1]/groups
	for n := range y[0] {
		for o := range y[1] {
			for i := range inputs {
				channel := o/outputs*inputs + i
				c.windows(y[2:], w[2:], x[2:], func(at, k, from [3]int64) {
					f([5]int64{n, channel, from[0], from[1], from[2]}, [5]int64{o, i, k[0], k[1], k[2]}, [5]int64{n, o, at[0], at[1], at[2]})
				})
			}
		}
	}
}

// drawConv draws the sizes of a convolution and its operands: x, y and w are
// what image, result and weight are called.
func drawConv(x, y, w string, bias bool) func(g *generator) {
	return func(g *generator) {
		groups := []int64{1, 1, 2, 3}[g.rng.IntN(4)]
		if g.chance(3) {
			groups = 1
		}
		inputs, outputs := groups*(1+g.rng.Int64N(6)), groups*(1+g.rng.Int64N(6))
		if g.chance(6) {
			inputs, outputs = groups*(1+g.rng.Int64N(70)), groups*(1+g.rng.Int64N(70))
		}
		g.i["groups"] = groups
		in := g.volume(max(1, g.size/inputs))
		kernelSize := []int64{1, 1, 1}
		for d := range in {
			if in[d] > 1 && !g.chance(4) {
				kernelSize[d] = 1 + g.rng.Int64N(4)
			}
		}
		out := g.window(in, kernelSize, true, false)
		n := 1 + g.rng.Int64N(4)
		size := map[string][]int64{
			x: append([]int64{n, inputs}, in...), y: append([]int64{n, outputs}, out...),
			w: append([]int64{outputs, inputs / groups}, kernelSize...),
		}
		for i, name := range names(g.k) {
			switch {
			case i == 0:
				g.out(name, size[name]...)
			case name != "bias":
				g.in(name, normal, size[name]...)
			case bias && g.chance(2):
				g.in(name, normal, size[names(g.k)[0]][1])
			}
		}
	}
}

// addBias adds one number to all elements of a channel.
func addBias(c *calculation, y *operand) {
	if c.t["bias"] == nil || len(y.v) == 0 {
		return
	}
	inner := int(y.size[2] * y.size[3] * y.size[4])
	for n := range y.v {
		b := c.t["bias"].v[n/inner%int(y.size[1])]
		y.v[n] += b
		y.scale[n] += math.Abs(b)
	}
}

var convRows = map[*kernel.Kernel]row{
	kernel.Conv: {draw: drawConv("x", "y", "weight", true), factor: sums, expect: func(c *calculation) {
		x, w, y := c.t["x"], c.t["weight"], c.t["y"]
		y.clear()
		c.products(x.size, w.size, y.size, func(xi, wi, yi [5]int64) {
			v := x.get(xi[:]...) * w.get(wi[:]...)
			y.add(v, math.Abs(v), yi[:]...)
		})
		addBias(c, y)
	}},
	kernel.ConvInputGrad: {draw: drawConv("gx", "g", "weight", true), factor: sums, expect: func(c *calculation) {
		gx, w, g := c.t["gx"], c.t["weight"], c.t["g"]
		gx.clear()
		c.products(gx.size, w.size, g.size, func(xi, wi, yi [5]int64) {
			v := g.get(yi[:]...) * w.get(wi[:]...)
			gx.add(v, math.Abs(v), xi[:]...)
		})
		addBias(c, gx)
	}},
	kernel.ConvWeightGrad: {draw: drawConv("x", "g", "gweight", false), factor: sums, expect: func(c *calculation) {
		x, gw, g := c.t["x"], c.t["gweight"], c.t["g"]
		gw.clear()
		c.products(x.size, gw.size, g.size, func(xi, wi, yi [5]int64) {
			v := x.get(xi[:]...) * g.get(yi[:]...)
			gw.add(v, math.Abs(v), wi[:]...)
		})
	}},
}

// drawPool draws the sizes of a pooling.
func (g *generator) drawPool(dilated bool) (in, out []int64) {
	size := g.dims(2)
	in = g.volume(max(1, g.size/(size[0]*size[1])))
	window := []int64{1, 1, 1}
	for d, axis := range axes {
		if in[d] > 1 {
			window[d] = 1 + g.rng.Int64N(4)
		}
		g.i["kernel"+axis] = window[d]
	}
	out = g.window(in, window, dilated, true)
	return append(size[:2:2], in...), append(size[:2:2], out...)
}

func (c *calculation) kernelSize() []int64 {
	return []int64{c.i["kernel_d"], c.i["kernel_h"], c.i["kernel_w"]}
}

// planes calls f for each image and channel.
func planes(size []int64, f func(n, ch int64)) {
	for n := range size[0] {
		for ch := range size[1] {
			f(n, ch)
		}
	}
}

func expectMaxPool(c *calculation) {
	x, y, index := c.t["x"], c.t["y"], c.t["index"]
	planes(y.size, func(n, ch int64) {
		each3(y.size[2:], func(d, h, w int64) { y.set(math.Inf(-1), 0, n, ch, d, h, w) })
		c.windows(y.size[2:], c.kernelSize(), x.size[2:], func(o, _, i [3]int64) {
			v, at := x.get(n, ch, i[0], i[1], i[2]), y.at(n, ch, o[0], o[1], o[2])
			if v > y.v[at] {
				y.v[at], index.v[at] = v, float64((i[0]*x.size[3]+i[1])*x.size[4]+i[2])
			}
		})
	})
}

// divisors calls f for each place of an average, the elements within the image
// and what their sum is divided by.
func (c *calculation) divisors(out, in []int64, f func(o, i [3]int64, by float64)) {
	within := map[[3]int64]float64{}
	c.windows(out, c.kernelSize(), in, func(o, _, _ [3]int64) { within[o]++ })
	c.windows(out, c.kernelSize(), in, func(o, _, i [3]int64) {
		by := within[o]
		switch {
		case c.i["divisor"] != 0:
			by = float64(c.i["divisor"])
		case c.i["include_pad"] != 0: // windows end where the padding does
			by = 1
			for d, axis := range axes {
				start := c.along(axis).at(o[d], 0)
				by *= float64(min(start+c.i["kernel"+axis], in[d]+c.i["padding"+axis]) - start)
			}
		}
		f(o, i, by)
	})
}

func drawAvgPool(x, y string) func(g *generator) {
	return func(g *generator) {
		in, out := g.drawPool(false)
		g.i["include_pad"], g.i["divisor"] = int64(truth(g.rng)), int64(among(0, 0, 3)(g.rng))
		size := map[string][]int64{x: in, y: out}
		k := names(g.k)
		g.out(k[0], size[k[0]]...)
		g.in(k[1], normal, size[k[1]]...)
	}
}

// drawResample draws images of two sizes: x, of which y is made.
func drawResample(g *generator, x, y string) {
	n, c := 1+g.rng.Int64N(3), 1+g.rng.Int64N(4)
	in, out := g.volume(max(1, g.size/n/c)), g.volume(max(1, g.size/n/c))
	g.i["align"] = int64(truth(g.rng))
	for d, axis := range axes {
		g.f["step"+axis] = float64(in[d]) / float64(out[d])
		if g.i["align"] != 0 {
			g.f["step"+axis] = float64(in[d]-1) / float64(max(out[d]-1, 1))
		}
	}
	in, out = append([]int64{n, c}, in...), append([]int64{n, c}, out...)
	if x == g.k.Tensors[0] {
		g.out(x, in...)
		g.in(y, normal, out...)
	} else {
		g.out(y, out...)
		g.in(x, normal, in...)
	}
}

// resampled calls f for each element of x that one of y is made of, with its share.
func (c *calculation) resampled(x, y []int64, f func(from, to [5]int64, share float64)) {
	type pair struct {
		at    int64
		share float64
	}
	var taps [3][][]pair
	for d, axis := range axes {
		for i := range y[d+2] {
			place, step := float64(i), c.f["step"+axis]
			if place *= step; c.i["align"] == 0 {
				place = math.Max((float64(i)+0.5)*step-0.5, 0)
			}
			first := math.Floor(place)
			pairs := []pair{{int64(first), 1 - (place - first)}, {min(int64(first)+1, x[d+2]-1), place - first}}
			taps[d] = append(taps[d], pairs)
		}
	}
	for n := range y[0] {
		for k := range y[1] {
			each3(y[2:], func(d, h, w int64) {
				for _, td := range taps[0][d] {
					for _, th := range taps[1][h] {
						for _, tw := range taps[2][w] {
							f([5]int64{n, k, td.at, th.at, tw.at}, [5]int64{n, k, d, h, w}, td.share*th.share*tw.share)
						}
					}
				}
			})
		}
	}
}

func drawAdaptive(x, y string) func(g *generator) {
	return func(g *generator) {
		s := g.dims(2)
		in := g.volume(max(1, g.size/(s[0]*s[1])))
		size := map[string][]int64{x: append(s[:2:2], in...), y: append(s[:2:2], g.volume(50)...)}
		k := names(g.k)
		g.out(k[0], size[k[0]]...)
		g.in(k[1], normal, size[k[1]]...)
	}
}

// adaptive calls f for each place of an adaptive average and the elements of
// its window.
func adaptive(out, in []int64, f func(o, i [3]int64, by float64)) {
	each3(out, func(d, h, w int64) {
		o, first, n := [3]int64{d, h, w}, [3]int64{}, [3]int64{}
		for k := range o {
			first[k] = o[k] * in[k] / out[k]
			n[k] = (o[k]*in[k]+in[k]+out[k]-1)/out[k] - first[k]
		}
		each3(n[:], func(d, h, w int64) {
			f(o, [3]int64{first[0] + d, first[1] + h, first[2] + w}, float64(n[0]*n[1]*n[2]))
		})
	})
}

// averages makes rows of an average and its derivative.
func averages(each func(c *calculation, out, in []int64, f func(o, i [3]int64, by float64))) (forward, backward func(c *calculation)) {
	run := func(c *calculation, to, small, large *operand, back bool) {
		to.clear()
		planes(to.size, func(n, ch int64) {
			each(c, small.size[2:], large.size[2:], func(o, i [3]int64, by float64) {
				ys, xs := []int64{n, ch, o[0], o[1], o[2]}, []int64{n, ch, i[0], i[1], i[2]}
				if back {
					v := small.get(ys...) / by
					to.add(v, math.Abs(v), xs...)
				} else {
					v := large.get(xs...) / by
					to.add(v, math.Abs(v), ys...)
				}
			})
		})
	}
	return func(c *calculation) { run(c, c.t["y"], c.t["y"], c.t["x"], false) },
		func(c *calculation) { run(c, c.t["gx"], c.t["g"], c.t["gx"], true) }
}

var poolRows = func() map[*kernel.Kernel]row {
	avg, avgGrad := averages((*calculation).divisors)
	ada, adaGrad := averages(func(_ *calculation, out, in []int64, f func(o, i [3]int64, by float64)) { adaptive(out, in, f) })
	return map[*kernel.Kernel]row{
		kernel.MaxPool: {draw: func(g *generator) {
			in, out := g.drawPool(true)
			g.out("y", out...)
			g.outAs("index", tensor.Int64, out...)
			g.in("x", normal, in...)
		}, expect: expectMaxPool},
		kernel.MaxPoolGrad: {draw: func(g *generator) {
			in, out := g.drawPool(true)
			g.out("gx", in...)
			g.in("g", normal, out...)
			c := calculation{kernel.MaxPool, map[string]*operand{"y": empty(out...), "index": empty(out...), "x": empty(in...)}, g.i, nil}
			for i := range c.t["x"].v {
				c.t["x"].v[i] = normal(g.rng)
			}
			expectMaxPool(&c)
			g.given("index", tensor.Int64, c.t["index"])
		}, expect: func(c *calculation) {
			gx, g := c.t["gx"], c.t["g"]
			gx.clear()
			planes(g.size, func(n, ch int64) {
				each3(g.size[2:], func(d, h, w int64) {
					at := int64(c.t["index"].get(n, ch, d, h, w))
					v := g.get(n, ch, d, h, w)
					gx.add(v, math.Abs(v), n, ch, at/(gx.size[3]*gx.size[4]), at/gx.size[4]%gx.size[3], at%gx.size[4])
				})
			})
		}},
		kernel.AvgPool:     {draw: drawAvgPool("x", "y"), expect: avg},
		kernel.AvgPoolGrad: {draw: drawAvgPool("gx", "g"), expect: avgGrad},
		kernel.Resample: {
			draw: func(g *generator) { drawResample(g, "x", "y") },
			expect: func(c *calculation) {
				x, y := c.t["x"], c.t["y"]
				y.clear()
				c.resampled(x.size, y.size, func(from, to [5]int64, share float64) {
					v := share * x.get(from[:]...)
					y.add(v, math.Abs(v), to[:]...)
				})
			},
			factor: sums,
		},
		kernel.ResampleGrad: {
			draw: func(g *generator) { drawResample(g, "gx", "g") },
			expect: func(c *calculation) {
				gx, gy := c.t["gx"], c.t["g"]
				gx.clear()
				c.resampled(gx.size, gy.size, func(from, to [5]int64, share float64) {
					v := share * gy.get(to[:]...)
					gx.add(v, math.Abs(v), from[:]...)
				})
			},
			factor: sums,
		},
		kernel.AdaptiveAvgPool:     {draw: drawAdaptive("x", "y"), expect: ada, factor: sums},
		kernel.AdaptiveAvgPoolGrad: {draw: drawAdaptive("gx", "g"), expect: adaGrad, factor: sums},
	}
}()
