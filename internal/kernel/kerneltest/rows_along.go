package kerneltest

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// elements draws the type of elements that are moved as they are, with how they are drawn.
func (g *generator) elements() (tensor.DType, distribution) {
	if g.d == tensor.Float64 || g.chance(2) {
		return g.d, normal
	}
	d := []tensor.DType{tensor.Int64, tensor.Int32, tensor.Bool}[g.rng.IntN(3)]
	return d, truth
}

// ranked draws sizes of at least one dimension, and one of them.
func (g *generator) ranked() (size []int64, dim int64) {
	size = g.dims(1 + g.rng.IntN(4))
	g.i["dim"] = g.rng.Int64N(int64(len(size)))
	return size, g.i["dim"]
}

// smaller draws sizes of at most those of another, and of any along a dimension.
func (g *generator) smaller(size []int64, dim int64) []int64 {
	out := slices.Clone(size)
	for d, n := range size {
		if g.chance(3) {
			out[d] = 1 + g.rng.Int64N(n)
		}
	}
	out[dim] = g.dim(min(40, max(1, g.size/max(1, tensor.D(out...).Set(int(dim), 1).Numel()))))
	return out
}

// walked calls f for each place of some sizes, in row-major order.
func walked(size []int64, f func(n int, at []int64)) {
	at := make([]int64, len(size))
	for n := range int(tensor.D(size...).Numel()) {
		rest := int64(n)
		for d := len(size) - 1; d >= 0; d-- {
			at[d] = rest % size[d]
			rest /= size[d]
		}
		f(n, at)
	}
}

// named is a place with what an index names in the place of dim, of so many.
func (c *calculation) named(at []int64, of int64) []int64 {
	out, v := slices.Clone(at), int64(c.t["index"].get(at...))
	if v < 0 {
		v += of
	}
	out[c.i["dim"]] = v
	return out
}

// line are the elements of a along dim of the line that a place is on.
func (c *calculation) line(at []int64) []float64 {
	a, place := c.t["a"], slices.Clone(at)
	out := make([]float64, a.size[c.i["dim"]])
	for i := range out {
		place[c.i["dim"]] = int64(i)
		out[i] = a.get(place...)
	}
	return out
}

// drawScatter draws the operands of a scatter, and whether x is there.
func drawScatter(g *generator, d tensor.DType, draw distribution) {
	size, dim := g.ranked()
	index := g.smaller(size, dim)
	g.outAs("y", d, size...)
	if g.k == kernel.Scatter || g.chance(2) {
		g.inAs("x", d, draw, size...)
	}
	g.inAs("index", tensor.Int64, fromEnd(size[dim]), index...)
	if g.k == kernel.ScatterAdd || g.chance(2) {
		src := slices.Clone(index)
		if g.chance(3) {
			src[dim]++
		}
		g.inAs("src", d, draw, src...)
	}
	g.f["value"] = truth(g.rng)
}

var alongRows = map[*kernel.Kernel]row{
	kernel.Gather: {
		draw: func(g *generator) {
			d, draw := g.elements()
			size, dim := g.ranked()
			index := g.smaller(size, dim)
			g.outAs("y", d, index...)
			g.inAs("x", d, draw, size...)
			g.inAs("index", tensor.Int64, fromEnd(size[dim]), index...)
		},
		expect: func(c *calculation) {
			y, x := c.t["y"], c.t["x"]
			walked(y.size, func(_ int, at []int64) { y.set(x.get(c.named(at, x.size[c.i["dim"]])...), 0, at...) })
		},
	},
	kernel.Scatter: {
		draw: func(g *generator) {
			d, draw := g.elements()
			drawScatter(g, d, draw)
		},
		expect: func(c *calculation) {
			y, x, src := c.t["y"], c.t["x"], c.t["src"]
			walked(y.size, func(_ int, at []int64) { y.set(x.get(at...), 0, at...) })
			walked(c.t["index"].size, func(_ int, at []int64) {
				v := c.f["value"]
				if src != nil {
					v = src.get(at...)
				}
				y.set(v, 0, c.named(at, y.size[c.i["dim"]])...)
			})
		},
	},
	kernel.ScatterAdd: {
		draw: func(g *generator) { drawScatter(g, g.d, normal) },
		expect: func(c *calculation) {
			y, x, src := c.t["y"], c.t["x"], c.t["src"]
			y.clear()
			if x != nil {
				walked(y.size, func(_ int, at []int64) { y.set(x.get(at...), math.Abs(x.get(at...)), at...) })
			}
			walked(c.t["index"].size, func(_ int, at []int64) {
				y.add(src.get(at...), math.Abs(src.get(at...)), c.named(at, y.size[c.i["dim"]])...)
			})
		},
		factor: sums,
	},
	kernel.Cumsum: {
		draw: func(g *generator) {
			size, _ := g.ranked()
			g.i["reverse"] = int64(truth(g.rng))
			if g.d != tensor.Float64 && g.chance(3) {
				g.outAs("y", []tensor.DType{tensor.Int64, tensor.Int32}[g.rng.IntN(2)], size...)
				g.inAs("a", []tensor.DType{tensor.Int64, tensor.Int32, tensor.Bool}[g.rng.IntN(3)], truth, size...)
				return
			}
			g.out("y", size...)
			g.in("a", normal, size...)
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			walked(y.size, func(_ int, at []int64) {
				sum, scale, own := 0.0, 0.0, int(at[c.i["dim"]])
				for i, v := range c.line(at) {
					if i == own || (i > own) == (c.i["reverse"] != 0) {
						sum, scale = sum+v, scale+math.Abs(v)
					}
				}
				y.set(sum, scale, at...)
			})
		},
		factor: sums,
	},
	kernel.Sort: {
		draw: func(g *generator) {
			d, _ := g.elements()
			size, dim := g.ranked()
			g.i["descending"] = int64(truth(g.rng))
			g.inAs("a", d, func(r rng) float64 { return math.Abs(few(r)) }, size...)
			k := slices.Clone(size)
			if g.chance(2) {
				k[dim] = 1 + g.rng.Int64N(k[dim])
			}
			g.outAs("y", d, k...)
			g.outAs("index", tensor.Int64, k...)
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			walked(y.size, func(_ int, at []int64) {
				line := c.line(at)
				order := make([]int, len(line))
				for i := range order {
					order[i] = i
				}
				slices.SortStableFunc(order, func(i, j int) int {
					d := sign(line[i] - line[j])
					return int(choose(c.i["descending"] != 0, -d, d))
				})
				from := order[at[c.i["dim"]]]
				y.set(line[from], 0, at...)
				c.t["index"].set(float64(from), 0, at...)
			})
		},
	},
	kernel.Extreme: {
		draw: func(g *generator) {
			d, _ := g.elements()
			size, dim := g.ranked()
			g.i["largest"] = int64(truth(g.rng))
			g.inAs("a", d, func(r rng) float64 { return math.Abs(few(r)) }, size...)
			one := slices.Clone(size)
			one[dim] = 1
			if g.chance(2) {
				g.outAs("y", d, one...)
			}
			g.outAs("index", tensor.Int64, one...)
		},
		expect: func(c *calculation) {
			index := c.t["index"]
			walked(index.size, func(_ int, at []int64) {
				line, best := c.line(at), 0
				for i, v := range line {
					if choose(c.i["largest"] != 0, v-line[best], line[best]-v) > 0 {
						best = i
					}
				}
				index.set(float64(best), 0, at...)
				if y := c.t["y"]; y != nil {
					y.set(line[best], 0, at...)
				}
			})
		},
	},
	kernel.Histogram: {
		draw: func(g *generator) {
			d, _ := g.elements()
			if d == tensor.Bool {
				d = tensor.Int32
			}
			g.outAs("y", d, g.dim(50))
			g.inAs("a", d, func(r rng) float64 { return float64(r.IntN(14)) }, g.dim(g.size))
			g.f["min"], g.f["max"] = among(0, 2)(g.rng), among(8, 13)(g.rng)
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			y.clear()
			low, high, bins := c.f["min"], c.f["max"], float64(y.size[0])
			for _, v := range c.t["a"].v {
				if v >= low && v <= high {
					y.add(1, 0, int64(math.Min(math.Floor((v-low)/(high-low)*bins), bins-1)))
				}
			}
		},
	},
}
