package kerneltest

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// drawNLL draws the sizes of a loss; y is what has a number for each target.
func drawNLL(g *generator) (x, y []int64) {
	x = g.dims(3)
	g.i["reduction"], g.i["ignore_index"] = g.rng.Int64N(3), int64(among(-100, 0, 1)(g.rng))
	y = []int64{1, 1}
	if g.i["reduction"] == kernel.ReduceNone {
		y = []int64{x[0], x[2]}
	}
	g.inAs("target", tensor.Int64, indices(x[1], float64(g.i["ignore_index"])), x[0], x[2])
	if g.chance(2) {
		g.in("weight", unit, x[1])
	}
	return x, y
}

// targets calls f for each target that is not ignored, with its weight.
func (c *calculation) targets(f func(n, s, class int64, weight float64)) {
	t := c.t["target"]
	for n := range t.size[0] {
		for s := range t.size[1] {
			if class := int64(t.get(n, s)); class != c.i["ignore_index"] {
				f(n, s, class, c.t["weight"].get(class))
			}
		}
	}
}

func expectNLL(c *calculation) {
	x, y, total := c.t["x"], c.t["y"], c.t["total"]
	y.clear()
	total.clear()
	c.targets(func(n, s, class int64, w float64) {
		total.add(w, w, 0)
		v := -w * x.get(n, class, s)
		if c.i["reduction"] == kernel.ReduceNone {
			y.set(v, 0, n, s)
		} else {
			y.add(v, math.Abs(v), 0, 0)
		}
	})
	if c.i["reduction"] == kernel.ReduceMean {
		y.v[0], y.scale[0] = y.v[0]/total.v[0], y.scale[0]/total.v[0]
	}
}

// fromEnd draws indices of n elements, which may count from the end.
func fromEnd(n int64) distribution { return func(r rng) float64 { return float64(r.Int64N(2*n) - n) } }

// indexed is what the index at n names, of so many.
func (c *calculation) indexed(n, of int64) int64 {
	at := int64(c.t["index"].get(n))
	if at < 0 {
		at += of
	}
	return at
}

// pair is the row of a matrix of rows that two indices name at n.
func (c *calculation) pair(n int64, size []int64) (i, j int64) {
	i, j = int64(c.t["first"].get(n)), int64(c.t["second"].get(n))
	if i < 0 {
		i += size[0]
	}
	if j < 0 {
		j += size[1]
	}
	return i, j
}

// drawBags draws a table's sizes and how many bags there are, with their indices and where each begins.
func drawBags(g *generator) (rows, columns, bags int64) {
	s := g.dims(3)
	rows, columns, bags = s[0], s[1], g.dim(s[2])
	g.inAs("index", tensor.Int64, below(rows), s[2])
	offsets := empty(bags)
	for i := range offsets.v[1:] {
		offsets.v[i+1] = float64(g.rng.Int64N(s[2] + 1))
	}
	slices.Sort(offsets.v)
	g.given("offsets", tensor.Int64, offsets)
	if g.chance(2) {
		g.in("scale", normal, s[2])
	}
	g.i["mean"], g.i["padding_idx"] = int64(truth(g.rng)), g.rng.Int64N(rows+1)-1
	return rows, columns, bags
}

// bags calls f for each index that counts: with its bag, its place, the row of the table and the factor.
func (c *calculation) bags(f func(k, i, row int64, by float64)) {
	index, starts := c.t["index"], c.t["offsets"]
	bagOf := func(i int64) int64 { // the last one that begins at i or before
		k := int64(0)
		for k+1 < starts.size[0] && int64(starts.get(k+1)) <= i {
			k++
		}
		return k
	}
	if starts == nil {
		bagOf = func(i int64) int64 { return int64(c.t["bag"].get(i)) }
	}
	counted := map[int64]float64{}
	for i := range index.size[0] {
		if int64(index.get(i)) != c.i["padding_idx"] {
			counted[bagOf(i)]++
		}
	}
	for i := range index.size[0] {
		row := int64(index.get(i))
		if row == c.i["padding_idx"] {
			continue
		}
		k, by := bagOf(i), 1.0
		if c.t["scale"] != nil {
			by = c.t["scale"].get(i)
		}
		if c.i["mean"] != 0 {
			by /= counted[k]
		}
		f(k, i, row, by)
	}
}

var lookupRows = map[*kernel.Kernel]row{
	kernel.Embedding: {
		draw: func(g *generator) {
			s := g.dims(4)
			g.out("y", s[0], s[1], s[2])
			g.in("weight", normal, s[3], s[2])
			g.inAs("index", tensor.Int64, below(s[3]), s[0], s[1])
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			each3(y.size, func(m, n, d int64) { y.set(c.t["weight"].get(int64(c.t["index"].get(m, n)), d), 0, m, n, d) })
		},
	},
	kernel.EmbeddingGrad: {
		draw: func(g *generator) {
			s := g.dims(4)
			g.out("gweight", s[3], s[2])
			g.in("g", normal, s[0], s[1], s[2])
			g.inAs("index", tensor.Int64, below(s[3]), s[0], s[1])
			g.i["padding_idx"] = g.rng.Int64N(s[3]+1) - 1
		},
		expect: func(c *calculation) {
			g, gw := c.t["g"], c.t["gweight"]
			gw.clear()
			each3(g.size, func(m, n, d int64) {
				if at := int64(c.t["index"].get(m, n)); at != c.i["padding_idx"] {
					gw.add(g.get(m, n, d), math.Abs(g.get(m, n, d)), at, d)
				}
			})
		},
		factor: sums,
	},
	kernel.Index: {
		draw: func(g *generator) {
			s := g.dims(4)
			d := []tensor.DType{g.d, g.d, tensor.Int64, tensor.Bool, tensor.Float64}[g.rng.IntN(5)]
			if g.d == tensor.Float64 {
				d = g.d
			}
			g.outAs("y", d, s[0], s[1], s[2])
			g.inAs("x", d, truth, s[0], s[3], s[2])
			if d == g.d {
				g.in("x", normal, s[0], s[3], s[2])
			}
			g.inAs("index", tensor.Int64, fromEnd(s[3]), s[1])
		},
		expect: func(c *calculation) {
			y, x := c.t["y"], c.t["x"]
			each3(y.size, func(o, n, d int64) { y.set(x.get(o, c.indexed(n, x.size[1]), d), 0, o, n, d) })
		},
	},
	kernel.IndexGrad: {
		draw: func(g *generator) {
			s := g.dims(4)
			g.out("gx", s[0], s[3], s[2])
			g.in("g", normal, s[0], s[1], s[2])
			g.inAs("index", tensor.Int64, fromEnd(s[3]), s[1])
		},
		expect: func(c *calculation) {
			g, gx := c.t["g"], c.t["gx"]
			gx.clear()
			each3(g.size, func(o, n, d int64) { gx.add(g.get(o, n, d), math.Abs(g.get(o, n, d)), o, c.indexed(n, gx.size[1]), d) })
		},
		factor: sums,
	},
	kernel.IndexPairs: {
		draw: func(g *generator) {
			s := g.dims(4)
			d, draw := g.elements()
			g.outAs("y", d, s[0], s[1])
			g.inAs("x", d, draw, s[2], s[3], s[1])
			g.inAs("first", tensor.Int64, fromEnd(s[2]), s[0])
			g.inAs("second", tensor.Int64, fromEnd(s[3]), s[0])
		},
		expect: func(c *calculation) {
			y, x := c.t["y"], c.t["x"]
			walked(y.size, func(_ int, at []int64) {
				i, j := c.pair(at[0], x.size)
				y.set(x.get(i, j, at[1]), 0, at...)
			})
		},
	},
	kernel.IndexPairsGrad: {
		draw: func(g *generator) {
			s := g.dims(4)
			g.out("gx", s[2], s[3], s[1])
			g.in("g", normal, s[0], s[1])
			g.inAs("first", tensor.Int64, fromEnd(s[2]), s[0])
			g.inAs("second", tensor.Int64, fromEnd(s[3]), s[0])
		},
		expect: func(c *calculation) {
			g, gx := c.t["g"], c.t["gx"]
			gx.clear()
			walked(g.size, func(_ int, at []int64) {
				i, j := c.pair(at[0], gx.size)
				gx.add(g.get(at...), math.Abs(g.get(at...)), i, j, at[1])
			})
		},
		factor: sums,
	},
	kernel.EmbeddingBag: {
		draw: func(g *generator) {
			rows, columns, _ := drawBags(g)
			g.in("weight", normal, rows, columns)
			g.out("y", g.t["offsets"].size[0], columns)
			g.outAs("bag", tensor.Int64, g.t["index"].size...)
			g.outAs("count", tensor.Int64, g.t["offsets"].size...)
		},
		expect: func(c *calculation) {
			y, w := c.t["y"], c.t["weight"]
			y.clear()
			c.t["bag"].clear()
			c.t["count"].clear()
			c.bags(func(k, i, row int64, by float64) {
				c.t["bag"].set(float64(k), 0, i)
				c.t["count"].add(1, 0, k)
				for d := range y.size[1] {
					y.add(by*w.get(row, d), math.Abs(by*w.get(row, d)), k, d)
				}
			})
		},
		factor: sums,
	},
	kernel.EmbeddingBagGrad: {
		draw: func(g *generator) {
			rows, columns, bags := drawBags(g)
			g.out("gweight", rows, columns)
			g.in("g", normal, bags, columns)
			bag, count := empty(g.t["index"].size...), empty(bags)
			g.bags(func(k, i, _ int64, _ float64) {
				bag.v[i] = float64(k)
				count.v[k]++
			})
			g.given("bag", tensor.Int64, bag)
			g.given("count", tensor.Int64, count)
		},
		expect: func(c *calculation) {
			g, gw := c.t["g"], c.t["gweight"]
			gw.clear()
			c.bags(func(k, _, row int64, by float64) {
				for d := range g.size[1] {
					gw.add(by*g.get(k, d), math.Abs(by*g.get(k, d)), row, d)
				}
			})
		},
		factor: sums,
	},
	kernel.NLLLoss: {
		draw: func(g *generator) {
			x, y := drawNLL(g)
			g.in("x", normal, x...)
			g.out("y", y...)
			g.out("total", 1)
		},
		expect: expectNLL,
		factor: sums,
	},
	kernel.NLLLossGrad: {
		draw: func(g *generator) {
			x, y := drawNLL(g)
			g.out("gx", x...)
			g.in("g", normal, y...)
			total := empty(1)
			g.targets(func(_, _, _ int64, w float64) { total.v[0] += w })
			g.given("total", g.d, total)
		},
		expect: func(c *calculation) {
			gx, g := c.t["gx"], c.t["g"]
			gx.clear()
			c.targets(func(n, s, class int64, w float64) {
				v := -w
				switch c.i["reduction"] {
				case kernel.ReduceNone:
					v *= g.get(n, s)
				case kernel.ReduceMean:
					v *= g.get(0, 0) / c.t["total"].v[0]
				default:
					v *= g.get(0, 0)
				}
				gx.set(v, 0, n, class, s)
			})
		},
	},
}
