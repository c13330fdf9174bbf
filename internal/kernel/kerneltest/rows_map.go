package kerneltest

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// A function of numbers: what it is of the elements x and the call's numbers f.
type function func(x, f []float64) float64

// mapped is a row of a kernel of kind Map with one result. draws are those of
// the operands that are read; near 0 an element may be off as numbers of their
// size plus 1 may.
func mapped(fn function, floats []distribution, draws ...distribution) row {
	return row{draw: drawMapped(floats, draws), expect: expectMapped(fn, 1)}
}

// exact is a row of a kernel that rounds once, or as often as it adds.
func exact(fn function, floats []distribution, draws ...distribution) row {
	return row{draw: drawMapped(floats, draws), expect: expectMapped(fn, 0)}
}

func drawMapped(floats, draws []distribution) func(g *generator) {
	return func(g *generator) {
		size := g.shape()
		all := names(g.k)
		g.out(all[0], size...)
		for i, name := range all[1:] {
			g.in(name, draws[i], size...)
		}
		for i, name := range g.k.Floats {
			g.f[name] = floats[i](g.rng)
		}
	}
}

func expectMapped(fn function, least float64) func(c *calculation) {
	return func(c *calculation) {
		all := names(c.k)
		y := c.t[all[0]]
		x, f := make([]float64, len(all)-1), make([]float64, len(c.k.Floats))
		for i, name := range c.k.Floats {
			f[i] = c.f[name]
		}
		for n := range y.v {
			scale := least
			for i, name := range all[1:] {
				x[i] = c.t[name].v[n]
				if !math.IsInf(x[i], 0) {
					scale += math.Abs(x[i])
				}
			}
			y.v[n], y.scale[n] = fn(x, f), scale
		}
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func choose(condition bool, a, b float64) float64 {
	if condition {
		return a
	}
	return b
}

func clamp(x, low, high float64) float64 { return math.Min(math.Max(x, low), high) }

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// one makes a function of the first operand of one.
func one(f func(float64) float64) function {
	return func(x, _ []float64) float64 { return f(x[0]) }
}

var wide = func() distribution { // also where functions are flat
	return func(r rng) float64 { return r.NormFloat64() * []float64{0.3, 1, 4, 12}[r.IntN(4)] }
}()

var unaryRows = map[*kernel.Kernel]row{
	kernel.Fill: exact(func(_, f []float64) float64 { return f[0] }, []distribution{normal}),
	kernel.Copy: exact(one(func(x float64) float64 { return x }), nil, normal),
	kernel.Affine: {
		draw: drawMapped([]distribution{normal, normal}, []distribution{normal}),
		expect: func(c *calculation) {
			for n, a := range c.t["a"].v {
				c.t["y"].v[n], c.t["y"].scale[n] = a*c.f["scale"]+c.f["shift"], math.Abs(a*c.f["scale"])+math.Abs(c.f["shift"])
			}
		},
	},
	kernel.Neg:       exact(one(func(x float64) float64 { return -x }), nil, normal),
	kernel.Abs:       exact(one(math.Abs), nil, normal),
	kernel.Exp:       mapped(one(math.Exp), nil, wide),
	kernel.Log:       mapped(one(math.Log), nil, positive),
	kernel.Sqrt:      mapped(one(math.Sqrt), nil, positive),
	kernel.Rsqrt:     mapped(one(func(x float64) float64 { return 1 / math.Sqrt(x) }), nil, positive),
	kernel.Sin:       mapped(one(math.Sin), nil, wide),
	kernel.Cos:       mapped(one(math.Cos), nil, wide),
	kernel.Tanh:      mapped(one(math.Tanh), nil, wide),
	kernel.Sigmoid:   mapped(one(sigmoid), nil, wide),
	kernel.Floor:     exact(one(math.Floor), nil, wide),
	kernel.Relu:      exact(one(func(x float64) float64 { return choose(x < 0, 0, x) }), nil, normal),
	kernel.LeakyRelu: exact(func(x, f []float64) float64 { return choose(x[0] > 0, x[0], x[0]*f[0]) }, []distribution{unit}, normal),
	kernel.Elu:       mapped(func(x, f []float64) float64 { return choose(x[0] > 0, x[0], f[0]*math.Expm1(x[0])) }, []distribution{positive}, wide),
	kernel.Gelu:      mapped(one(func(x float64) float64 { return x * normalCDF(x) }), nil, wide),
	kernel.GeluTanh:  mapped(one(geluTanh), nil, wide),
	kernel.Silu:      mapped(one(func(x float64) float64 { return x * sigmoid(x) }), nil, wide),
	kernel.Softplus: mapped(func(x, f []float64) float64 {
		return choose(x[0]*f[0] > f[1], x[0], math.Log1p(math.Exp(x[0]*f[0]))/f[0])
	}, []distribution{among(1, 0.5, 2), among(20)}, wide),
	kernel.Hardtanh:  exact(func(x, f []float64) float64 { return clamp(x[0], f[0], f[1]) }, []distribution{among(-1), unit}, normal),
	kernel.Hardswish: exact(one(func(x float64) float64 { return x * clamp(x+3, 0, 6) / 6 }), nil, wide),
	kernel.Hardsigm:  mapped(one(func(x float64) float64 { return clamp(x+3, 0, 6) / 6 }), nil, wide),
	kernel.PowScalar: {
		draw:   drawMapped([]distribution{among(2, 3, 0.5, 1.7, -1, 0)}, []distribution{positive}),
		expect: expectMapped(func(x, f []float64) float64 { return math.Pow(x[0], f[0]) }, 1),
		factor: 64,
	},
	kernel.Expm1:      mapped(one(math.Expm1), nil, wide),
	kernel.Log1p:      mapped(one(math.Log1p), nil, positive),
	kernel.Reciprocal: mapped(one(func(x float64) float64 { return 1 / x }), nil, nonzero),
	kernel.PowBase: {
		draw:   drawMapped([]distribution{among(2, 0.5, 1.7, 1)}, []distribution{normal}),
		expect: expectMapped(func(x, f []float64) float64 { return math.Pow(f[0], x[0]) }, 1),
		factor: 64,
	},
	kernel.FloorDivide: {
		draw: func(g *generator) {
			size := g.shape()
			g.outAs("y", tensor.Int64, size...)
			g.inAs("a", []tensor.DType{tensor.Int64, tensor.Int32}[g.rng.IntN(2)], few, size...)
			g.f["value"] = among(1, 2, 3, -2)(g.rng)
		},
		expect: expectMapped(func(x, f []float64) float64 { return math.Floor(x[0] / f[0]) }, 0),
	},
	kernel.LogSigmoid: mapped(one(func(x float64) float64 { return math.Min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) }), nil, wide),
}

// gradRows are derivatives of functions of one operand: x[0] is the incoming
// gradient, x[1] what was saved.
var gradRows = map[*kernel.Kernel]row{
	kernel.Expm1Grad:      mapped(func(x, _ []float64) float64 { return x[0] * (x[1] + 1) }, nil, normal, normal),
	kernel.Log1pGrad:      mapped(func(x, _ []float64) float64 { return x[0] / (x[1] + 1) }, nil, normal, positive),
	kernel.ReciprocalGrad: mapped(func(x, _ []float64) float64 { return -x[0] * x[1] * x[1] }, nil, normal, unit),
	kernel.ClampGrad: exact(func(x, f []float64) float64 { return choose(x[1] >= f[0] && x[1] <= f[1], x[0], 0) },
		[]distribution{among(-1), among(0, 2)}, normal, few),
	kernel.MinimumGrad:   exact(func(x, _ []float64) float64 { return x[0] * choose(x[1] == x[2], 0.5, choose(x[1] < x[2], 1, 0)) }, nil, normal, few, few),
	kernel.NormGrad:      mapped(func(x, _ []float64) float64 { return choose(x[2] == 0, 0, x[0]*x[1]/x[2]) }, nil, normal, normal, func(r rng) float64 { return positive(r) * truth(r) }),
	kernel.ReluGrad:      exact(func(x, _ []float64) float64 { return choose(x[1] <= 0, 0, x[0]) }, nil, normal, normal),
	kernel.LeakyReluGrad: exact(func(x, f []float64) float64 { return choose(x[1] > 0, x[0], x[0]*f[0]) }, []distribution{unit}, normal, normal),
	kernel.EluGrad: mapped(func(x, f []float64) float64 { return choose(x[1] > 0, x[0], x[0]*f[0]*math.Exp(x[1])) },
		[]distribution{positive}, normal, wide),
	kernel.GeluGrad: scaled(func(x float64) float64 { return normalCDF(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi) }, 4),
	kernel.GeluTanhGrad: scaled(func(x float64) float64 {
		k := math.Sqrt(2 / math.Pi)
		t := math.Tanh(k * (x + 0.044715*x*x*x))
		return 0.5*(1+t) + 0.5*x*(1-t*t)*k*(1+3*0.044715*x*x)
	}, 4),
	kernel.SiluGrad: scaled(func(x float64) float64 { s := sigmoid(x); return s * (1 + x*(1-s)) }, 4),
	kernel.SoftplusGrad: mapped(func(x, f []float64) float64 { return choose(x[1]*f[0] > f[1], x[0], x[0]*sigmoid(x[1]*f[0])) },
		[]distribution{among(1, 0.5, 2), among(20)}, normal, wide),
	kernel.HardtanhGrad: exact(func(x, f []float64) float64 { return choose(x[1] <= f[0] || x[1] >= f[1], 0, x[0]) },
		[]distribution{among(-1), unit}, normal, normal),
	kernel.HardswishGrad: mapped(func(x, _ []float64) float64 {
		return choose(x[1] <= -3, 0, choose(x[1] >= 3, x[0], x[0]*(x[1]/3+0.5)))
	}, nil, normal, wide),
	kernel.HardsigmGrad: exact(func(x, _ []float64) float64 { return choose(x[1] > -3 && x[1] < 3, x[0]/6, 0) }, nil, normal, wide),
	kernel.TanhGrad:     mapped(func(x, _ []float64) float64 { return x[0] * (1 - x[1]*x[1]) }, nil, normal, unit),
	kernel.SigmoidGrad:  mapped(func(x, _ []float64) float64 { return x[0] * x[1] * (1 - x[1]) }, nil, normal, unit),
	kernel.SqrtGrad:     exact(func(x, _ []float64) float64 { return x[0] / (2 * x[1]) }, nil, normal, positive),
	kernel.RsqrtGrad:    mapped(func(x, _ []float64) float64 { return -0.5 * x[0] * x[1] * x[1] * x[1] }, nil, normal, positive),
	kernel.SinGrad:      scaled(math.Cos, 1),
	kernel.CosGrad:      scaled(func(x float64) float64 { return -math.Sin(x) }, 1),
	kernel.AbsGrad:      exact(func(x, _ []float64) float64 { return x[0] * sign(x[1]) }, nil, normal, normal),
	kernel.PowScalarGrad: {
		draw: drawMapped([]distribution{among(2, 3, 0.5, 1.7, -1, 0)}, []distribution{normal, positive}),
		expect: expectMapped(func(x, f []float64) float64 {
			return choose(f[0] == 0, 0, x[0]*f[0]*math.Pow(x[1], f[0]-1))
		}, 1),
		factor: 64,
	},
	kernel.LogSigmoidGrad: mapped(func(x, _ []float64) float64 { return x[0] * sigmoid(-x[1]) }, nil, normal, wide),
}

// scaled is a derivative that multiplies the gradient by a function of x whose
// parts are up to so large, beside x.
func scaled(d func(x float64) float64, part float64) row {
	return row{draw: drawMapped(nil, []distribution{normal, wide}), expect: func(c *calculation) {
		for n, g := range c.t["g"].v {
			x := c.t["x"].v[n]
			c.t["y"].v[n], c.t["y"].scale[n] = g*d(x), math.Abs(g)*(part+math.Abs(x))
		}
	}}
}

// Map is what a kernel of kind Map with one result must give of operands of one length.
func Map(k *kernel.Kernel, operands [][]float64, floats []float64) []float64 {
	c := newCalculation(k)
	all := names(k)
	for i, v := range operands {
		c.t[all[i+1]] = &operand{v: v}
	}
	y := empty(int64(len(operands[0])))
	c.t[all[0]] = y
	for i, name := range k.Floats {
		c.f[name] = floats[i]
	}
	rowOf(k).expect(&c)
	return y.v
}
