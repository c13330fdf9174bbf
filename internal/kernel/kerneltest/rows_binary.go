package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// compared is a comparison of two operands or, if f has a number, of one with
// it. The elements are few small integers, so that some are equal.
func compared(holds func(a, b float64) bool) row {
	return row{
		draw: func(g *generator) {
			size := g.shape()
			g.outAs("y", tensor.Bool, size...)
			for _, name := range names(g.k)[1:] {
				g.in(name, few, size...)
			}
			for _, name := range g.k.Floats {
				g.f[name] = few(g.rng)
			}
		},
		expect: func(c *calculation) {
			for n, a := range c.t["a"].v {
				b := c.f["value"]
				if c.t["b"] != nil {
					b = c.t["b"].v[n]
				}
				c.t["y"].v[n] = choose(holds(a, b), 1, 0)
			}
		},
	}
}

// lossGrad is a derivative of a loss of two operands: x[0] is the gradient of
// the loss, scaled by f[0].
func lossGrad(d func(a, b float64) (v, scale float64), target distribution) row {
	return row{draw: drawMapped([]distribution{positive}, []distribution{normal, normal, target}), expect: func(c *calculation) {
		for n, g := range c.t["c"].v {
			v, scale := d(c.t["a"].v[n], c.t["b"].v[n])
			g *= c.f["scale"]
			c.t["y"].v[n], c.t["y"].scale[n] = g*v, math.Abs(g)*scale
		}
	}}
}

// masked is a kernel whose operand mask is bool.
func masked(expect func(c *calculation, n int) float64) row {
	return row{
		draw: func(g *generator) {
			size := g.shape()
			g.out("y", size...)
			for _, name := range names(g.k)[1:] {
				if name == "mask" {
					g.inAs(name, tensor.Bool, truth, size...)
				} else {
					g.in(name, normal, size...)
				}
			}
			for _, name := range g.k.Floats {
				g.f[name] = normal(g.rng)
			}
		},
		expect: func(c *calculation) {
			for n := range c.t["y"].v {
				c.t["y"].v[n] = expect(c, n)
			}
		},
	}
}

// triangular keeps the elements at whose row and column keep holds.
func triangular(keep func(row, column, diagonal int64) bool) row {
	return row{
		draw: func(g *generator) {
			size := g.dims(2 + g.rng.IntN(3))
			g.out("y", size...)
			g.in("a", normal, size...)
			g.i["diagonal"] = g.rng.Int64N(9) - 4
		},
		expect: func(c *calculation) {
			y := c.t["y"]
			rows, columns := y.size[len(y.size)-2], y.size[len(y.size)-1]
			for n, a := range c.t["a"].v {
				y.v[n] = choose(keep(int64(n)/columns%rows, int64(n)%columns, c.i["diagonal"]), a, 0)
			}
		},
	}
}

var binaryRows = map[*kernel.Kernel]row{
	kernel.Add: {
		draw: drawMapped([]distribution{among(1, -1, 0.3)}, []distribution{normal, normal}),
		expect: func(c *calculation) {
			for n, a := range c.t["a"].v {
				b := c.f["alpha"] * c.t["b"].v[n]
				c.t["y"].v[n], c.t["y"].scale[n] = a+b, math.Abs(a)+math.Abs(b)
			}
		},
	},
	kernel.Mul:     exact(func(x, _ []float64) float64 { return x[0] * x[1] }, nil, normal, normal),
	kernel.Div:     exact(func(x, _ []float64) float64 { return x[0] / x[1] }, nil, normal, nonzero),
	kernel.Maximum: exact(func(x, _ []float64) float64 { return math.Max(x[0], x[1]) }, nil, normal, normal),
	kernel.Minimum: exact(func(x, _ []float64) float64 { return math.Min(x[0], x[1]) }, nil, normal, normal),
	kernel.Pow: {
		draw:   drawMapped(nil, []distribution{positive, normal}),
		expect: expectMapped(func(x, _ []float64) float64 { return math.Pow(x[0], x[1]) }, 1),
		factor: 64,
	},
	kernel.DivGrad: mapped(func(x, _ []float64) float64 { return -x[0] * x[1] / (x[2] * x[2]) }, nil, normal, normal, nonzero),
	kernel.Xlogy: mapped(func(x, _ []float64) float64 {
		return choose(x[0] == 0, 0, x[0]*math.Log(x[1]))
	}, nil, func(r rng) float64 { return normal(r) * truth(r) }, positive),

	kernel.Eq: compared(func(a, b float64) bool { return a == b }), kernel.EqScalar: compared(func(a, b float64) bool { return a == b }),
	kernel.Ne: compared(func(a, b float64) bool { return a != b }), kernel.NeScalar: compared(func(a, b float64) bool { return a != b }),
	kernel.Lt: compared(func(a, b float64) bool { return a < b }), kernel.LtScalar: compared(func(a, b float64) bool { return a < b }),
	kernel.Le: compared(func(a, b float64) bool { return a <= b }), kernel.LeScalar: compared(func(a, b float64) bool { return a <= b }),
	kernel.Gt: compared(func(a, b float64) bool { return a > b }), kernel.GtScalar: compared(func(a, b float64) bool { return a > b }),
	kernel.Ge: compared(func(a, b float64) bool { return a >= b }), kernel.GeScalar: compared(func(a, b float64) bool { return a >= b }),

	kernel.MaskedFill: masked(func(c *calculation, n int) float64 { return choose(c.t["mask"].v[n] != 0, c.f["value"], c.t["a"].v[n]) }),
	kernel.Where: masked(func(c *calculation, n int) float64 {
		return choose(c.t["mask"].v[n] != 0, c.t["a"].v[n], c.t["b"].v[n])
	}),
	kernel.MaskScale: masked(func(c *calculation, n int) float64 {
		return choose(c.t["mask"].v[n] != 0, c.t["a"].v[n]*c.f["scale"], 0)
	}),

	kernel.MSEGrad: lossGrad(func(a, b float64) (float64, float64) { return 2 * (a - b), 2 * (math.Abs(a) + math.Abs(b)) }, normal),
	kernel.L1Grad:  lossGrad(func(a, b float64) (float64, float64) { return sign(a - b), 0 }, normal),
	kernel.BCEGrad: lossGrad(func(a, b float64) (float64, float64) { return sigmoid(a) - b, 2 }, unit),
	kernel.EntropyGrad: {
		draw: drawMapped([]distribution{positive}, []distribution{normal, unit, unit}),
		expect: func(c *calculation) {
			for n, g := range c.t["c"].v {
				a, b := c.t["a"].v[n], c.t["b"].v[n]
				by := g * c.f["scale"] / (a * (1 - a))
				c.t["y"].v[n], c.t["y"].scale[n] = by*(a-b), math.Abs(by)*(1/(1-a))
			}
		},
	},

	kernel.Tril: triangular(func(row, column, diagonal int64) bool { return column-row <= diagonal }),
	kernel.Triu: triangular(func(row, column, diagonal int64) bool { return column-row >= diagonal }),
}

// keeps reports whether dropout keeps an element.
func keeps(seed, place int64, p float64) bool {
	return kernel.Uniform(uint64(seed), place) >= float32(p)
}

// filled is a row of a kernel that fills with a function of random numbers.
func filled(of func(u float64, f map[string]float64) float64, floats ...distribution) row {
	return row{
		draw: func(g *generator) {
			g.outAs("y", []tensor.DType{g.d, g.d, tensor.Float64}[g.rng.IntN(3)], g.shape()...)
			g.i["seed"] = int64(g.rng.Uint64())
			for i, name := range g.k.Floats {
				g.f[name] = floats[i](g.rng)
			}
		},
		expect: func(c *calculation) {
			for n := range c.t["y"].v {
				c.t["y"].v[n] = of(float64(kernel.Uniform(uint64(c.i["seed"]), int64(n))), c.f)
			}
		},
	}
}

var randomRows = map[*kernel.Kernel]row{
	kernel.RandomUniform: filled(func(u float64, f map[string]float64) float64 { return f["from"] + (f["to"]-f["from"])*u },
		among(0, 1, -0.5), among(1, 1.5)),
	kernel.RandomBernoulli: filled(func(u float64, f map[string]float64) float64 { return choose(u < f["p"], 1, 0) }, among(0.1, 0.5, 0, 1, 0.9)),
	kernel.Dropout: {
		draw: func(g *generator) {
			size := g.shape()
			g.out("y", size...)
			g.outAs("mask", tensor.Bool, size...)
			g.in("a", normal, size...)
			g.i["seed"], g.f["p"] = int64(g.rng.Uint64()), among(0.1, 0.5, 0, 1, 0.9)(g.rng)
		},
		expect: func(c *calculation) {
			for n, a := range c.t["a"].v {
				keep := keeps(c.i["seed"], int64(n), c.f["p"])
				c.t["mask"].v[n] = choose(keep, 1, 0)
				c.t["y"].v[n] = choose(keep, a/(1-c.f["p"]), 0)
			}
		},
	},
	kernel.Arange: {
		draw: func(g *generator) {
			d := []tensor.DType{g.d, tensor.Int64, tensor.Int32}[g.rng.IntN(3)]
			g.outAs("y", d, g.dims(1)...)
			g.f["start"], g.f["step"] = few(g.rng), among(1, 2, -3)(g.rng)
			if d == g.d {
				g.f["step"] = among(1, 0.5, -0.3)(g.rng)
			}
		},
		expect: func(c *calculation) {
			for n := range c.t["y"].v {
				step := float64(n) * c.f["step"]
				c.t["y"].v[n], c.t["y"].scale[n] = c.f["start"]+step, math.Abs(c.f["start"])+math.Abs(step)
			}
		},
	},
}
