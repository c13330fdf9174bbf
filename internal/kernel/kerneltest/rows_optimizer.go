package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// drawOptimizer draws a parameter, its gradient and states, which in step 1
// nothing is in yet.
func drawOptimizer(states map[string]distribution, optional func(g *generator, state string) bool, numbers func(g *generator)) func(g *generator) {
	return func(g *generator) {
		size := g.shape()
		g.i["step"] = int64(among(1, 2, 100)(g.rng))
		g.i["maximize"] = int64(truth(g.rng))
		g.f["lr"], g.f["weight_decay"] = among(0.1, 1e-3)(g.rng), among(0, 0.01)(g.rng)
		numbers(g)
		for _, name := range names(g.k) {
			switch draw := states[name]; {
			case name == "p":
				g.state(name, g.d, normal, size...)
			case name == "g":
				g.in(name, normal, size...)
			case !optional(g, name):
			case g.i["step"] == 1:
				g.out(name, size...)
				a := g.arrays[name]
				g.t[name] = a.operand()
			default:
				g.state(name, g.d, draw, size...)
			}
		}
	}
}

// state is an element of a state; before step 1 it is 0.
func (c *calculation) state(name string, n int) float64 {
	if c.i["step"] == 1 {
		return 0
	}
	return c.t[name].v[n]
}

// gradient is the one that is descended, with decay if it is of that kind.
func (c *calculation) gradient(n int, decay bool) float64 {
	g := c.t["g"].v[n] * choose(c.i["maximize"] != 0, -1, 1)
	if decay {
		g += c.f["weight_decay"] * c.t["p"].v[n]
	}
	return g
}

// sizes sets the scale of states and parameter to what was added.
func (c *calculation) sizes(n int, step float64) {
	g := math.Abs(c.t["g"].v[n]) + math.Abs(c.t["p"].v[n])
	for _, name := range []string{"p", "buf", "m", "v", "vmax"} {
		if t := c.t[name]; t != nil {
			t.scale[n] = g + math.Abs(step) + g*g
			if c.i["step"] != 1 {
				t.scale[n] += math.Abs(t.v[n])
			}
		}
	}
}

var optimizerRows = map[*kernel.Kernel]row{
	// torch/optim/sgd.py, _single_tensor_sgd
	kernel.SGD: {
		draw: drawOptimizer(map[string]distribution{"buf": normal}, func(g *generator, _ string) bool { return g.f["momentum"] != 0 },
			func(g *generator) {
				g.f["momentum"], g.f["dampening"] = among(0, 0.9)(g.rng), among(0, 0.1)(g.rng)
				if g.f["momentum"] != 0 && g.chance(2) {
					g.i["nesterov"], g.f["dampening"] = 1, 0
				}
			}),
		expect: func(c *calculation) {
			for n := range c.t["p"].v {
				g := c.gradient(n, true)
				if c.f["momentum"] != 0 {
					b := g
					if c.i["step"] > 1 {
						b = c.f["momentum"]*c.t["buf"].v[n] + (1-c.f["dampening"])*g
					}
					c.sizes(n, b)
					c.t["buf"].v[n] = b
					if c.i["nesterov"] != 0 {
						b = g + c.f["momentum"]*b
					}
					g = b
				} else {
					c.sizes(n, g)
				}
				c.t["p"].v[n] -= c.f["lr"] * g
			}
		},
	},
	// torch/optim/adam.py, _single_tensor_adam
	kernel.Adam: {
		draw: drawOptimizer(map[string]distribution{"m": normal, "v": unit, "vmax": unit},
			func(g *generator, state string) bool { return state != "vmax" || g.chance(2) },
			func(g *generator) {
				g.i["decoupled"] = int64(truth(g.rng))
				g.f["beta1"], g.f["beta2"], g.f["eps"] = 0.9, among(0.999, 0.95)(g.rng), among(1e-8, 1e-6)(g.rng)
			}),
		expect: func(c *calculation) {
			b1, b2, step := c.f["beta1"], c.f["beta2"], float64(c.i["step"])
			for n := range c.t["p"].v {
				g := c.gradient(n, c.i["decoupled"] == 0)
				m := b1*c.state("m", n) + (1-b1)*g
				v := b2*c.state("v", n) + (1-b2)*g*g
				most := v
				if c.t["vmax"] != nil {
					most = math.Max(c.state("vmax", n), v)
				}
				by := math.Sqrt(most)/math.Sqrt(1-math.Pow(b2, step)) + c.f["eps"]
				move := c.f["lr"] / (1 - math.Pow(b1, step)) * m / by
				c.sizes(n, move+c.f["lr"]/by)
				c.t["m"].v[n], c.t["v"].v[n] = m, v
				if c.t["vmax"] != nil {
					c.t["vmax"].v[n] = most
				}
				if c.i["decoupled"] != 0 {
					c.t["p"].v[n] *= 1 - c.f["lr"]*c.f["weight_decay"]
				}
				c.t["p"].v[n] -= move
			}
		},
	},
}
