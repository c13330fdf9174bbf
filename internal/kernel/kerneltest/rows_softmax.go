package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// rowwise calls f for each row of the last dimension of the first operand.
func rowwise(c *calculation, f func(from, to int)) {
	y := c.t[names(c.k)[0]]
	if len(y.size) == 0 || len(y.v) == 0 {
		return
	}
	n := int(y.size[len(y.size)-1])
	for at := 0; at < len(y.v); at += n {
		f(at, at+n)
	}
}

// softmaxes is a row of a softmax: f writes a row of y with its scale.
func softmaxes(f func(y, scale, a []float64)) row {
	return row{
		draw: func(g *generator) {
			size := g.dims(1 + g.rng.IntN(4))
			g.out("y", size...)
			draw := distribution(wide)
			if g.k == kernel.SafeSoftmax { // some rows of -inf alone
				draw = func(r rng) float64 { return choose(r.IntN(3) == 0, wide(r), math.Inf(-1)) }
			}
			g.in("a", draw, size...)
		},
		expect: func(c *calculation) {
			rowwise(c, func(i, j int) { f(c.t["y"].v[i:j], c.t["y"].scale[i:j], c.t["a"].v[i:j]) })
		},
		factor: sums,
	}
}

// softmaxGrads is a row of the derivative of one; forward gives what was saved.
func softmaxGrads(forward *kernel.Kernel, f func(y, scale, g, r []float64)) row {
	return row{
		draw: func(g *generator) {
			size := g.dims(1 + g.rng.IntN(4))
			g.out("y", size...)
			g.in("g", normal, size...)
			c := newCalculation(forward)
			c.t["a"], c.t["y"] = empty(size...), empty(size...)
			for i := range c.t["a"].v {
				c.t["a"].v[i] = normal(g.rng)
			}
			rows[forward].expect(&c)
			g.given("r", g.d, c.t["y"])
		},
		expect: func(c *calculation) {
			rowwise(c, func(i, j int) {
				f(c.t["y"].v[i:j], c.t["y"].scale[i:j], c.t["g"].v[i:j], c.t["r"].v[i:j])
			})
		},
		factor: sums,
	}
}

// logSum is the logarithm of the sum of exponentials.
func logSum(a []float64) float64 {
	most, sum := math.Inf(-1), 0.0
	for _, x := range a {
		most = math.Max(most, x)
	}
	for _, x := range a {
		sum += math.Exp(x - most)
	}
	return most + math.Log(sum)
}

var softmaxRows = map[*kernel.Kernel]row{
	kernel.Softmax: softmaxes(func(y, scale, a []float64) {
		l := logSum(a)
		for i := range y {
			y[i] = math.Exp(a[i] - l)
			scale[i] = y[i] * (1 + math.Abs(a[i]-l))
		}
	}),
	kernel.SafeSoftmax: softmaxes(func(y, scale, a []float64) {
		l := logSum(a)
		for i := range y {
			y[i], scale[i] = 0, 0
			if !math.IsInf(a[i], -1) {
				y[i] = math.Exp(a[i] - l)
				scale[i] = y[i] * (1 + math.Abs(a[i]-l))
			}
		}
	}),
	kernel.LogSoftmax: softmaxes(func(y, scale, a []float64) {
		l := logSum(a)
		for i := range y {
			y[i], scale[i] = a[i]-l, math.Abs(a[i])+math.Abs(l)
		}
	}),
	kernel.SoftmaxGrad: softmaxGrads(kernel.Softmax, func(y, scale, g, r []float64) {
		sum, size := 0.0, 0.0
		for i := range g {
			sum += g[i] * r[i]
			size += math.Abs(g[i] * r[i])
		}
		for i := range y {
			y[i], scale[i] = r[i]*(g[i]-sum), r[i]*(math.Abs(g[i])+size)
		}
	}),
	kernel.LogSoftmaxGrad: softmaxGrads(kernel.LogSoftmax, func(y, scale, g, r []float64) {
		sum, size := 0.0, 0.0
		for i := range g {
			sum += g[i]
			size += math.Abs(g[i])
		}
		for i := range y {
			y[i], scale[i] = g[i]-math.Exp(r[i])*sum, math.Abs(g[i])+math.Exp(r[i])*size*(1+math.Abs(r[i]))
		}
	}),
}
