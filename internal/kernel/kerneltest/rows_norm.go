package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// normalization is one of elements that have a place (the operand's index), a
// group over which statistics are taken, and an element of weight and bias.
type normalization struct {
	groups, weights func(c *calculation, n int) int
	centered        bool // by the mean; else rms_norm
}

// statistics are the means and inverse deviations of the groups.
func (z normalization) statistics(c *calculation) (mean, rstd, absolute []float64, count float64) {
	x := c.t["x"]
	k := 0
	for n := range x.v {
		k = max(k, z.groups(c, n)+1)
	}
	mean, rstd, absolute = make([]float64, k), make([]float64, k), make([]float64, k)
	if k == 0 {
		return
	}
	count = float64(len(x.v)) / float64(k)
	for n, v := range x.v {
		absolute[z.groups(c, n)] += math.Abs(v) / count
		if z.centered {
			mean[z.groups(c, n)] += v / count
		}
	}
	for n, v := range x.v {
		d := v - mean[z.groups(c, n)]
		rstd[z.groups(c, n)] += d * d / count
	}
	for i := range rstd {
		rstd[i] = 1 / math.Sqrt(rstd[i]+c.f["eps"])
	}
	return
}

// apply normalizes with given statistics. What was subtracted bounds the error.
func (z normalization) apply(c *calculation, mean, rstd []float64) {
	for n, v := range c.t["x"].v {
		g := z.groups(c, n)
		w, b := 1.0, 0.0
		if t := c.t["weight"]; t != nil {
			w = t.v[z.weights(c, n)]
		}
		if t := c.t["bias"]; t != nil {
			b = t.v[z.weights(c, n)]
		}
		y := c.t["y"]
		y.v[n] = (v-mean[g])*rstd[g]*w + b
		y.scale[n] = (math.Abs(v)+math.Abs(mean[g])+1)*rstd[g]*math.Abs(w)*(1+rstd[g]) + math.Abs(b)
	}
}

// save writes statistics where they are wanted.
func (z normalization) save(c *calculation, mean, rstd, absolute []float64) {
	if t := c.t["mean"]; t != nil {
		copy(t.v, mean)
		copy(t.scale, absolute)
	}
	if t := c.t["rstd"]; t != nil {
		copy(t.v, rstd)
		for i := range t.scale {
			t.scale[i] = rstd[i] * (1 + rstd[i]*rstd[i]*absolute[i]*absolute[i])
		}
	}
}

// grad computes the gradients from statistics, which are those of the groups
// themselves (own) or constants.
func (z normalization) grad(c *calculation, own bool) {
	g, x, gx, gw, gb := c.t["g"], c.t["x"], c.t["gx"], c.t["gweight"], c.t["gbias"]
	rstd := c.t["rstd"].v
	mean := make([]float64, len(rstd))
	if z.centered {
		mean = c.t["mean"].v
	}
	gw.clear()
	gb.clear()
	sum, dot := make([]float64, len(rstd)), make([]float64, len(rstd))
	sumSize, dotSize := make([]float64, len(rstd)), make([]float64, len(rstd))
	normal := func(n int) (v, size float64) { // the normalized element
		k := z.groups(c, n)
		return (x.v[n] - mean[k]) * rstd[k], (math.Abs(x.v[n]) + math.Abs(mean[k])) * rstd[k]
	}
	weighted := func(n int) float64 {
		if t := c.t["weight"]; t != nil {
			return g.v[n] * t.v[z.weights(c, n)]
		}
		return g.v[n]
	}
	for n := range x.v {
		k := z.groups(c, n)
		h, size := normal(n)
		if gw != nil {
			gw.v[z.weights(c, n)] += g.v[n] * h
			gw.scale[z.weights(c, n)] += math.Abs(g.v[n]) * size
		}
		if gb != nil {
			gb.v[z.weights(c, n)] += g.v[n]
			gb.scale[z.weights(c, n)] += math.Abs(g.v[n])
		}
		sum[k] += weighted(n)
		dot[k] += weighted(n) * h
		sumSize[k] += math.Abs(weighted(n))
		dotSize[k] += math.Abs(weighted(n)) * size
	}
	if gx == nil {
		return
	}
	count := float64(len(x.v)) / float64(max(len(rstd), 1))
	for n := range x.v {
		k := z.groups(c, n)
		h, size := normal(n)
		v, scale := weighted(n), math.Abs(weighted(n))
		if own {
			v -= dot[k] / count * h
			scale += dotSize[k] / count * size
			if z.centered {
				v -= sum[k] / count
				scale += sumSize[k] / count
			}
		}
		gx.v[n], gx.scale[n] = v*rstd[k], scale*rstd[k]
	}
}

// last is the number of elements in the dimensions of x from d on.
func last(c *calculation, d int) int {
	n := 1
	for _, s := range c.t["x"].size[d:] {
		n *= int(s)
	}
	return n
}

var (
	layer = normalization{centered: true,
		groups:  func(c *calculation, n int) int { return n / last(c, len(c.t["x"].size)-1) },
		weights: func(c *calculation, n int) int { return n % last(c, len(c.t["x"].size)-1) }}
	rms   = normalization{groups: layer.groups, weights: layer.weights}
	group = normalization{centered: true,
		groups:  func(c *calculation, n int) int { return n / last(c, 2) },
		weights: func(c *calculation, n int) int { return n / last(c, 3) % int(c.t["x"].size[1]*c.t["x"].size[2]) }}
	batch = normalization{centered: true,
		groups:  func(c *calculation, n int) int { return n / last(c, 2) % int(c.t["x"].size[1]) },
		weights: func(c *calculation, n int) int { return n / last(c, 2) % int(c.t["x"].size[1]) }}
)

// drawNorm draws the operands of layer_norm, rms_norm and group_norm: sizes
// gives those of x, how many of them statistics have, and those of weight.
func drawNorm(z normalization, backward bool, sizes func(g *generator) (x []int64, lead int, weight []int64)) func(g *generator) {
	return func(g *generator) {
		size, lead, weight := sizes(g)
		g.in("x", shifted, size...)
		if g.chance(2) {
			g.in("weight", normal, weight...)
		}
		g.f["eps"] = among(1e-5, 1e-3)(g.rng)
		stat := g.d.Accumulate()
		if !backward {
			g.out("y", size...)
			if z.centered {
				g.outAs("mean", stat, size[:lead]...)
				if g.chance(2) {
					g.in("bias", normal, weight...)
				}
			}
			g.outAs("rstd", stat, size[:lead]...)
			return
		}
		g.in("g", normal, size...)
		mean, rstd, _, _ := z.statistics(&g.calculation)
		if z.centered {
			g.given("mean", stat, &operand{size: size[:lead], v: mean})
		}
		g.given("rstd", stat, &operand{size: size[:lead], v: rstd})
		g.wanted("gx", size...)
		g.wanted("gweight", weight...)
		if z.centered {
			g.wanted("gbias", weight...)
		}
	}
}

// wanted is a result that is there most times.
func (g *generator) wanted(name string, size ...int64) {
	if !g.chance(4) {
		g.out(name, size...)
	}
}

// shifted numbers have a mean beside 0.
func shifted(r rng) float64 { return r.NormFloat64()*1.5 + 0.7 }

func layerSizes(g *generator) (x []int64, lead int, weight []int64) {
	lead = g.rng.IntN(4)
	if g.chance(2) { // rows are long first
		row := g.dim(g.size)
		x = append(g.within(lead, g.size/row), row)
	} else {
		x = g.dims(lead + 1)
	}
	return x, lead, x[lead:]
}

func groupSizes(g *generator) (x []int64, lead int, weight []int64) {
	x = g.dims(4)
	return x, 2, x[1:3]
}

func forwardNorm(z normalization) func(c *calculation) {
	return func(c *calculation) {
		mean, rstd, absolute, _ := z.statistics(c)
		z.save(c, mean, rstd, absolute)
		z.apply(c, mean, rstd)
	}
}

var layerRows = map[*kernel.Kernel]row{
	kernel.LayerNorm:     {draw: drawNorm(layer, false, layerSizes), expect: forwardNorm(layer), factor: sums},
	kernel.LayerNormGrad: {draw: drawNorm(layer, true, layerSizes), expect: func(c *calculation) { layer.grad(c, true) }, factor: sums},
	kernel.RMSNorm:       {draw: drawNorm(rms, false, layerSizes), expect: forwardNorm(rms), factor: sums},
	kernel.RMSNormGrad:   {draw: drawNorm(rms, true, layerSizes), expect: func(c *calculation) { rms.grad(c, true) }, factor: sums},
	kernel.GroupNorm:     {draw: drawNorm(group, false, groupSizes), expect: forwardNorm(group), factor: sums},
	kernel.GroupNormGrad: {draw: drawNorm(group, true, groupSizes), expect: func(c *calculation) { group.grad(c, true) }, factor: sums},
}

var batchRows = map[*kernel.Kernel]row{
	kernel.BatchNorm: {draw: drawBatchNorm, expect: expectBatchNorm, factor: sums},
	kernel.BatchNormGrad: {
		draw: func(g *generator) {
			size := g.dims(3)
			stat := g.d.Accumulate()
			g.in("x", shifted, size...)
			g.in("g", normal, size...)
			g.i["training"], g.f["eps"] = int64(truth(g.rng)), 1e-5
			mean, rstd, _, _ := batch.statistics(&g.calculation)
			if g.i["training"] == 0 {
				for i := range mean {
					mean[i], rstd[i] = normal(g.rng), positive(g.rng)
				}
			}
			g.given("mean", stat, &operand{size: size[1:2], v: mean})
			g.given("rstd", stat, &operand{size: size[1:2], v: rstd})
			if g.chance(2) {
				g.in("weight", normal, size[1])
			}
			g.wanted("gx", size...)
			g.wanted("gweight", size[1])
			g.wanted("gbias", size[1])
		},
		expect: func(c *calculation) { batch.grad(c, c.i["training"] != 0) },
		factor: sums,
	},
}

func drawBatchNorm(g *generator) {
	size := g.dims(3)
	stat := g.d.Accumulate()
	g.i["training"] = int64(truth(g.rng))
	g.f["momentum"], g.f["eps"] = 0.1, among(1e-5, 1e-3)(g.rng)
	if g.i["training"] != 0 && size[0]*size[2] == 1 {
		size[0] = 2 // PyTorch refuses one value for each channel
	}
	g.out("y", size...)
	if g.i["training"] != 0 || g.chance(2) {
		g.outAs("mean", stat, size[1])
		g.outAs("rstd", stat, size[1])
	}
	g.in("x", shifted, size...)
	for _, name := range []string{"weight", "bias"} {
		if g.chance(2) {
			g.in(name, normal, size[1])
		}
	}
	if g.i["training"] == 0 || g.chance(2) {
		g.state("running_mean", stat, normal, size[1])
		g.state("running_var", stat, positive, size[1])
	}
}

func expectBatchNorm(c *calculation) {
	runMean, runVar := c.t["running_mean"], c.t["running_var"]
	if c.i["training"] == 0 {
		rstd, absolute := make([]float64, len(runVar.v)), make([]float64, len(runVar.v))
		for i, v := range runVar.v {
			rstd[i] = 1 / math.Sqrt(v+c.f["eps"])
		}
		batch.save(c, runMean.v, rstd, absolute)
		batch.apply(c, runMean.v, rstd)
		return
	}
	mean, rstd, absolute, count := batch.statistics(c)
	batch.save(c, mean, rstd, absolute)
	batch.apply(c, mean, rstd)
	if runMean == nil {
		return
	}
	m := c.f["momentum"]
	for i := range mean {
		variance := (1/(rstd[i]*rstd[i]) - c.f["eps"]) * count / (count - 1)
		runMean.scale[i] = math.Abs(runMean.v[i]) + absolute[i]
		runVar.scale[i] = runVar.v[i] + variance + absolute[i]*absolute[i]
		runMean.v[i] = (1-m)*runMean.v[i] + m*mean[i]
		runVar.v[i] = (1-m)*runVar.v[i] + m*variance
	}
}
