package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
)

// The functions of single elements that operators and their in-place forms share.
var (
	celu = element{
		of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x/p[0])
		},
		slope: func(x, y float64, p []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return 1
			case math.IsNaN(x):
				return (y + p[0]) / p[0]
			}
			return math.Exp(x / p[0])
		},
		numbers: alpha,
	}
	eluOfResult = element{ // elu in place, of which the result is what is kept
		of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x)
		},
		slope: func(_, y float64, p []float64) float64 {
			if y > 0 {
				return 1
			}
			return y + p[0]
		},
		numbers: alpha,
	}
	selu = element{
		of: func(x float64, _ []float64) float64 {
			if x > 0 {
				return seluScale * x
			}
			return seluScale * seluAlpha * math.Expm1(x)
		},
		slope: func(x, y float64, _ []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return seluScale
			case math.IsNaN(x):
				return y + seluScale*seluAlpha
			}
			return seluScale * seluAlpha * math.Exp(x)
		},
	}
	mish = element{
		of: func(x float64, _ []float64) float64 { return x * math.Tanh(array.Softplus(x)) },
		slope: func(x, _ float64, _ []float64) float64 {
			t := math.Tanh(array.Softplus(x))
			return t + x*(1-t*t)/(1+math.Exp(-x))
		},
	}
	threshold = element{
		of: func(x float64, p []float64) float64 {
			if x <= p[0] {
				return p[1]
			}
			return x
		},
		slope:   func(x, _ float64, p []float64) float64 { return array.Truth(!(x <= p[0])) },
		numbers: numbersOf(func(a *ThresholdArgs) []float64 { return []float64{a.Threshold, a.Value} }),
	}
	hardshrink = element{
		of:      func(x float64, p []float64) float64 { return x * array.Truth(x < -p[0] || x > p[0]) },
		slope:   func(x, _ float64, p []float64) float64 { return array.Truth(x < -p[0] || x > p[0]) },
		numbers: lambd,
	}
	softshrink = element{
		of:      func(x float64, p []float64) float64 { return x - min(max(x, -p[0]), p[0]) },
		slope:   func(x, _ float64, p []float64) float64 { return array.Truth(x < -p[0] || x > p[0]) },
		numbers: lambd,
	}
	lambd = numbersOf(func(a *ShrinkArgs) []float64 { return []float64{a.Lambd} })
)

// The constants of selu (torch/nn/functional.py: selu).
const (
	seluAlpha = 1.6732632423543772848170429916717
	seluScale = 1.0507009873554804934193349852946
)
