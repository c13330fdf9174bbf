package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// drawAttention draws the sizes, numbers and what is read in both passes; it
// returns the sizes of y and lse.
func drawAttention(g *generator) (y, lse []int64) {
	b, kh := 1+g.rng.Int64N(2), 1+g.rng.Int64N(3)
	h := kh * int64(among(1, 1, 2, 3)(g.rng))
	long, wide := min(150, max(2, g.size/8)), min(70, max(2, g.size/8))
	l, s, e, ev := g.dim(long), g.dim(long), g.dim(wide), g.dim(wide)
	if g.chance(3) {
		s = l
	}
	g.in("q", normal, b, h, l, e)
	g.in("k", normal, b, kh, s, e)
	g.in("v", normal, b, kh, s, ev)
	switch g.rng.IntN(4) {
	case 0:
		g.in("mask", normal, b, h, l, s)
	case 1:
		g.in("mask", func(r rng) float64 { return choose(r.IntN(3) == 0, math.Inf(-1), r.NormFloat64()) }, b, h, l, s)
	case 2:
		g.inAs("mask", tensor.Bool, truth, b, h, l, s)
	}
	g.i["causal"], g.i["seed"] = int64(truth(g.rng)), int64(g.rng.Uint64())
	g.f["scale"], g.f["p"] = 1/math.Sqrt(float64(e)), among(0, 0, 0.3)(g.rng)
	return []int64{b, h, l, ev}, []int64{b, h, l}
}

// shared is the head of keys of a head of queries.
func (c *calculation) shared(h int64) int64 { return h * c.t["k"].size[1] / c.t["q"].size[1] }

// weights are those of the keys for query i, before dropout, and the logarithm
// of the sum of the exponentials; +Inf if nothing is seen.
func (c *calculation) weights(b, h, i int64) (p []float64, lse float64) {
	q, k, mask := c.t["q"], c.t["k"], c.t["mask"]
	p = make([]float64, k.size[2])
	for j := range p {
		for e := range q.size[3] {
			p[j] += q.get(b, h, i, e) * k.get(b, c.shared(h), int64(j), e) * c.f["scale"]
		}
		switch {
		case mask == nil:
		case mask.truth:
			p[j] = choose(mask.get(b, h, i, int64(j)) != 0, p[j], math.Inf(-1))
		default:
			p[j] += mask.get(b, h, i, int64(j))
		}
		if c.i["causal"] != 0 && int64(j) > i {
			p[j] = math.Inf(-1)
		}
	}
	lse = logSum(p)
	if math.IsNaN(lse) || math.IsInf(lse, -1) {
		lse = math.Inf(1)
	}
	for j := range p {
		p[j] = math.Exp(p[j] - lse)
		if math.IsInf(lse, 1) {
			p[j] = 0
		}
	}
	return p, lse
}

// kept is the factor of dropout for a weight.
func (c *calculation) kept(b, h, i, j int64) float64 {
	s := c.t["k"].size[2]
	q := c.t["q"].size
	if c.f["p"] == 0 {
		return 1
	}
	return choose(keeps(c.i["seed"], ((b*q[1]+h)*q[2]+i)*s+j, c.f["p"]), 1/(1-c.f["p"]), 0)
}

// queries calls f for each query with its weights.
func (c *calculation) queries(f func(b, h, i int64, p []float64, lse float64)) {
	size := c.t["q"].size
	for b := range size[0] {
		for h := range size[1] {
			for i := range size[2] {
				p, lse := c.weights(b, h, i)
				f(b, h, i, p, lse)
			}
		}
	}
}

func expectAttention(c *calculation) {
	y, v := c.t["y"], c.t["v"]
	y.clear()
	c.queries(func(b, h, i int64, p []float64, lse float64) {
		if c.t["lse"] != nil {
			c.t["lse"].set(lse, 4, b, h, i)
		}
		for j := range p {
			w := p[j] * c.kept(b, h, i, int64(j))
			for e := range v.size[3] {
				y.add(w*v.get(b, c.shared(h), int64(j), e), 3*math.Abs(w*v.get(b, c.shared(h), int64(j), e)), b, h, i, e)
			}
		}
	})
}

// scoreGrads are the gradients of a query's scores, whose softmax p is, and the sizes of what
// was added up for each.
func (c *calculation) scoreGrads(b, h, i int64, p []float64) (d, size []float64) {
	g, v := c.t["g"], c.t["v"]
	d, size = make([]float64, len(p)), make([]float64, len(p))
	delta, deltaSize := 0.0, 0.0
	for j := range p {
		kept := c.kept(b, h, i, int64(j))
		for e := range v.size[3] {
			at := v.get(b, c.shared(h), int64(j), e) * g.get(b, h, i, e) * kept
			d[j] += at
			size[j] += math.Abs(at)
		}
		delta += p[j] * d[j]
		deltaSize += p[j] * size[j]
	}
	for j := range p {
		d[j], size[j] = p[j]*(d[j]-delta), 3*p[j]*(size[j]+deltaSize)
	}
	return d, size
}

func expectAttentionGrad(c *calculation) {
	gq, gk, gv, g, q, k, v := c.t["gq"], c.t["gk"], c.t["gv"], c.t["g"], c.t["q"], c.t["k"], c.t["v"]
	gq.clear()
	gk.clear()
	gv.clear()
	c.queries(func(b, h, i int64, p []float64, _ float64) {
		scores, sizes := c.scoreGrads(b, h, i, p)
		for j := range p {
			kept := c.kept(b, h, i, int64(j))
			for e := range v.size[3] {
				w := p[j] * kept * g.get(b, h, i, e)
				gv.add(w, 3*math.Abs(w), b, c.shared(h), int64(j), e)
			}
			ds, scale := scores[j]*c.f["scale"], sizes[j]*c.f["scale"]
			for e := range q.size[3] {
				gq.add(ds*k.get(b, c.shared(h), int64(j), e), scale*math.Abs(k.get(b, c.shared(h), int64(j), e)), b, h, i, e)
				gk.add(ds*q.get(b, h, i, e), scale*math.Abs(q.get(b, h, i, e)), b, c.shared(h), int64(j), e)
			}
		}
	})
}

var attentionRows = map[*kernel.Kernel]row{
	kernel.Attention: {
		draw: func(g *generator) {
			y, lse := drawAttention(g)
			g.out("y", y...)
			if !g.chance(3) {
				g.outAs("lse", g.d.Accumulate(), lse...)
			}
		},
		expect: expectAttention,
		factor: sums,
	},
	kernel.AttentionMaskGrad: {
		draw: func(g *generator) {
			y, lse := drawAttention(g)
			q := g.t["q"].size
			g.out("gmask", q[0], q[1], q[2], g.t["k"].size[2])
			g.in("g", normal, y...)
			was := g.forward(kernel.Attention, map[string][]int64{"y": y, "lse": lse})
			g.given("y", g.d, was["y"])
			g.given("lse", g.d.Accumulate(), was["lse"])
		},
		expect: func(c *calculation) {
			gmask := c.t["gmask"]
			c.queries(func(b, h, i int64, p []float64, _ float64) {
				scores, sizes := c.scoreGrads(b, h, i, p)
				for j := range p {
					gmask.set(scores[j], sizes[j], b, h, i, int64(j))
				}
			})
		},
		factor: sums,
	},
	kernel.AttentionGrad: {
		draw: func(g *generator) {
			y, lse := drawAttention(g)
			for _, name := range []string{"q", "k", "v"} {
				g.out("g"+name, g.t[name].size...)
			}
			g.in("g", normal, y...)
			was := g.forward(kernel.Attention, map[string][]int64{"y": y, "lse": lse})
			g.given("y", g.d, was["y"])
			g.given("lse", g.d.Accumulate(), was["lse"])
		},
		expect: expectAttentionGrad,
		factor: sums,
	},
}
