package aten

import (
	"math"

	"github.com/memplan/memplan/internal/tensor"
)

func isFiniteNumber(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// digamma is the derivative of the logarithm of the gamma function: by reflection
// and recurrence to where an asymptotic series holds.
func digamma(x float64) float64 {
	switch {
	case x == 0:
		return math.Copysign(math.Inf(1), -x)
	case x < 0 && x == math.Trunc(x):
		return math.NaN()
	case x < 0:
		_, f := math.Modf(x)
		return digamma(1-x) - math.Pi/math.Tan(math.Pi*f)
	}
	sum := 0.0
	for ; x < 10; x++ {
		sum -= 1 / x
	}
	z := 1 / (x * x)
	series := z * (1.0/12 - z*(1.0/120-z*(1.0/252-z*(1.0/240-z*(1.0/132-z*(691.0/32760-z/12))))))
	return sum + math.Log(x) - 0.5/x - series
}

// trigamma is digamma's derivative.
func trigamma(x float64) float64 {
	if x < 0.5 {
		s := math.Sin(math.Pi * x)
		return math.Pi*math.Pi/(s*s) - trigamma(1-x)
	}
	sum := 0.0
	for ; x < 10; x++ {
		sum += 1 / (x * x)
	}
	z := 1 / (x * x)
	return sum + 1/x + z/2 + z/x*(1.0/6-z*(1.0/30-z*(1.0/42-z*(1.0/30-z*(5.0/66-z*(691.0/2730-z*7.0/6))))))
}

func roundUp(n, to int64) int64 { return tensor.DivUp(n, to) * to }
