package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// The constants of gelu.
const (
	geluScale = math.Sqrt2 / (math.SqrtPi) // sqrt(2/pi)
	geluCube  = 0.044715
)

// geluTwice is twice what gelu takes the hyperbolic tangent t of: (1+t)/2 is the sigmoid of it.
func geluTwice(x float64) float64 { return 2 * geluScale * (x + geluCube*x*x*x) }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// normalCDF is the distribution function of the normal distribution.
func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// clamp keeps a NaN.
func clamp(x, low, high float64) float64 {
	if x < low {
		return low
	}
	if x > high {
		return high
	}
	return x
}

// sign is 0 of a NaN, as c10::sgn.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// logOnePlusExp is log(1+exp(-|x|)), which both log_sigmoid and the loss with
// logits need.
func logOnePlusExp(x float64) float64 { return math.Log1p(math.Exp(-math.Abs(x))) }

// unaryRows are functions of one operand: aten/src/ATen/native/cpu/Activation.cpp
// and UnaryOpsKernel.cpp.
var unaryRows = map[*kernel.Kernel]row{
	kernel.Neg:     unary(func(a float64) float64 { return -a }),
	kernel.Abs:     withIntegers(unary(math.Abs), func([]int64) func(a, b int64) int64 { return func(a, _ int64) int64 { return max(a, -a) } }),
	kernel.Exp:     unary(math.Exp),
	kernel.Log:     unary(math.Log),
	kernel.Sqrt:    unary(math.Sqrt),
	kernel.Rsqrt:   unary(func(a float64) float64 { return 1 / math.Sqrt(a) }),
	kernel.Sin:     unary(math.Sin),
	kernel.Cos:     unary(math.Cos),
	kernel.Tanh:    unary(math.Tanh),
	kernel.Sigmoid: unaryByExp(func(a float64, exp func(float64) float64) float64 { return 1 / (1 + exp(-a)) }),
	kernel.Floor:   unary(math.Floor),
	kernel.Relu: unary(func(a float64) float64 {
		if a < 0 {
			return 0
		}
		return a // a NaN too
	}).bySingles(loop(reluRun)),
	kernel.LeakyRelu: unaryOf(func(n []float64) func(float64) float64 {
		slope := n[0]
		return func(a float64) float64 {
			if a > 0 {
				return a
			}
			return a * slope
		}
	}),
	kernel.Elu: unaryOf(func(n []float64) func(float64) float64 {
		alpha := n[0]
		return func(a float64) float64 {
			if a > 0 {
				return a
			}
			return alpha * math.Expm1(a)
		}
	}),
	kernel.Gelu:     unary(func(a float64) float64 { return a * normalCDF(a) }),
	kernel.GeluTanh: unaryByExp(func(a float64, exp func(float64) float64) float64 { return a / (1 + exp(-geluTwice(a))) }),
	kernel.Silu:     unaryByExp(func(a float64, exp func(float64) float64) float64 { return a / (1 + exp(-a)) }),
	kernel.Softplus: unaryOf(func(n []float64) func(float64) float64 {
		beta, threshold := n[0], n[1]
		return func(a float64) float64 {
			if a*beta > threshold {
				return a
			}
			return math.Log1p(math.Exp(a*beta)) / beta
		}
	}),
	kernel.Hardtanh: unaryOf(func(n []float64) func(float64) float64 {
		low, high := n[0], n[1]
		return func(a float64) float64 { return clamp(a, low, high) }
	}),
	kernel.Hardswish:  unary(func(a float64) float64 { return a * clamp(a+3, 0, 6) / 6 }),
	kernel.Hardsigm:   unary(func(a float64) float64 { return clamp(a+3, 0, 6) / 6 }),
	kernel.PowScalar:  unaryOf(func(n []float64) func(float64) float64 { return power(n[0]) }),
	kernel.LogSigmoid: unary(func(a float64) float64 { return min(a, 0) - logOnePlusExp(a) }),
	kernel.Expm1:      unary(math.Expm1),
	kernel.Log1p:      unary(math.Log1p),
	kernel.Reciprocal: unary(func(a float64) float64 { return 1 / a }),
	kernel.PowBase: unaryOf(func(n []float64) func(float64) float64 {
		base := n[0]
		return func(a float64) float64 { return math.Pow(base, a) }
	}),
}

// Of numbers below zero, as bits, the first is the one nearest to it.
const (
	negativeZero = 1 << 31
	negatives    = 0xff800000 - negativeZero // how many there are, infinity the last
)

// reluRun decides by bits, so that there are no branches.
func reluRun(y, a, _ []float32) {
	for i, v := range a[:len(y)] {
		bits := math.Float32bits(v)
		if bits-negativeZero-1 < negatives {
			bits = 0
		}
		y[i] = math.Float32frombits(bits)
	}
}

func reluGradRun(y, g, r []float32) {
	g, r = g[:len(y)], r[:len(y)]
	for i := range y {
		bits, sign := math.Float32bits(g[i]), math.Float32bits(r[i])
		if sign-negativeZero <= negatives {
			bits = 0
		}
		if sign == 0 {
			bits = 0
		}
		y[i] = math.Float32frombits(bits)
	}
}

// power raises to a fixed exponent; the usual ones without a logarithm
// (pow_tensor_scalar in PowKernel.cpp).
func power(exponent float64) func(a float64) float64 {
	switch exponent {
	case 1:
		return func(a float64) float64 { return a }
	case 2:
		return func(a float64) float64 { return a * a }
	case 3:
		return func(a float64) float64 { return a * a * a }
	case 0.5:
		return math.Sqrt
	case -1:
		return func(a float64) float64 { return 1 / a }
	}
	return func(a float64) float64 { return math.Pow(a, exponent) }
}

// gradRows are their derivatives, of the gradient and what was saved: x, what
// was read, or r, the result (tools/autograd/derivatives.yaml and
// aten/src/ATen/native/cpu/Activation.cpp, BinaryOpsKernel.cpp).
var gradRows = map[*kernel.Kernel]row{
	kernel.ReluGrad: binary(func(g, r float64) float64 {
		if r <= 0 {
			return 0
		}
		return g
	}).bySingles(loop(reluGradRun)),
	kernel.LeakyReluGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		slope := n[0]
		return func(g, x float64) float64 {
			if x > 0 {
				return g
			}
			return g * slope
		}
	}),
	kernel.EluGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		alpha := n[0]
		return func(g, x float64) float64 {
			if x > 0 {
				return g
			}
			return g * alpha * math.Exp(x)
		}
	}),
	kernel.GeluGrad: binary(func(g, x float64) float64 {
		return g * (normalCDF(x) + x*math.Exp(-x*x/2)/(math.Sqrt2*math.SqrtPi))
	}),
	kernel.GeluTanhGrad: binaryByExp(func(g, x float64, exp func(float64) float64) float64 {
		s := 1 / (1 + exp(-geluTwice(x)))
		return g * (s + x*s*(1-s)*2*geluScale*(1+3*geluCube*x*x))
	}),
	kernel.SiluGrad: binaryByExp(func(g, x float64, exp func(float64) float64) float64 {
		s := 1 / (1 + exp(-x))
		return g * s * (1 + x*(1-s))
	}),
	kernel.SoftplusGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		beta, threshold := n[0], n[1]
		return func(g, x float64) float64 {
			if x*beta > threshold {
				return g
			}
			return g * sigmoid(x*beta)
		}
	}),
	kernel.Expm1Grad:      binary(func(g, r float64) float64 { return g * (r + 1) }),
	kernel.Log1pGrad:      binary(func(g, x float64) float64 { return g / (x + 1) }),
	kernel.ReciprocalGrad: binary(func(g, r float64) float64 { return -g * (r * r) }),
	kernel.ClampGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		low, high := n[0], n[1]
		return func(g, x float64) float64 {
			if x >= low && x <= high {
				return g
			}
			return 0
		}
	}),
	kernel.NormGrad: ternaryOf(func([]float64) func(g, x, r float64) float64 {
		return func(g, x, r float64) float64 {
			if r == 0 {
				return 0
			}
			return g * (x / r)
		}
	}),
	kernel.HardtanhGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		low, high := n[0], n[1]
		return func(g, x float64) float64 {
			if x <= low || x >= high {
				return 0
			}
			return g
		}
	}),
	kernel.HardswishGrad: binary(func(g, x float64) float64 {
		switch {
		case x <= -3:
			return 0
		case x < 3:
			return g * (x/3 + 0.5)
		}
		return g
	}),
	kernel.HardsigmGrad: binary(func(g, x float64) float64 {
		if x > -3 && x < 3 {
			return g / 6
		}
		return 0
	}),
	kernel.TanhGrad:    binary(func(g, r float64) float64 { return g * (1 - r*r) }),
	kernel.SigmoidGrad: binary(func(g, r float64) float64 { return g * (1 - r) * r }),
	kernel.SqrtGrad:    binary(func(g, r float64) float64 { return g / (2 * r) }),
	kernel.RsqrtGrad:   binary(func(g, r float64) float64 { return -0.5 * g * r * r * r }),
	kernel.SinGrad:     binary(func(g, x float64) float64 { return g * math.Cos(x) }),
	kernel.CosGrad:     binary(func(g, x float64) float64 { return -g * math.Sin(x) }),
	kernel.AbsGrad:     binary(func(g, x float64) float64 { return g * sign(x) }),
	kernel.PowScalarGrad: binaryOf(func(n []float64) func(g, x float64) float64 {
		exponent := n[0]
		if exponent == 0 {
			return func(_, _ float64) float64 { return 0 }
		}
		f := power(exponent - 1)
		return func(g, x float64) float64 { return g * exponent * f(x) }
	}),
	kernel.LogSigmoidGrad: binary(func(g, x float64) float64 { return g * sigmoid(-x) }),
}
