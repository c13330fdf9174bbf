package kerneltest

import (
	"math"

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

var lookupRows = map[*kernel.Kernel]row{
	kernel.Embedding: {
		draw: func(g *generator) {
			s := g.dims(3)
			g.out("y", s[0], s[1])
			g.in("weight", normal, s[2], s[1])
			g.inAs("index", tensor.Int64, below(s[2]), s[0])
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			for n := range y.size[0] {
				for d := range y.size[1] {
					y.set(c.t["weight"].get(int64(c.t["index"].get(n)), d), 0, n, d)
				}
			}
		},
	},
	kernel.EmbeddingGrad: {
		draw: func(g *generator) {
			s := g.dims(3)
			g.out("gweight", s[2], s[1])
			g.in("g", normal, s[0], s[1])
			g.inAs("index", tensor.Int64, below(s[2]), s[0])
			g.i["padding_idx"] = g.rng.Int64N(s[2]+1) - 1
		},
		expect: func(c *calculation) {
			g, gw := c.t["g"], c.t["gweight"]
			gw.clear()
			for n := range g.size[0] {
				at := int64(c.t["index"].get(n))
				if at == c.i["padding_idx"] {
					continue
				}
				for d := range g.size[1] {
					gw.add(g.get(n, d), math.Abs(g.get(n, d)), at, d)
				}
			}
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
