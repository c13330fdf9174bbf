package array

import "math"

// Truth is 1 where b holds, else 0.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Logistic is the sigmoid function.
func Logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// Softplus is log(1 + exp(x)).
func Softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// logSigmoid is the logarithm of the sigmoid function.
func logSigmoid(x float64) float64 { return -Softplus(-x) }

// Sign is -1, 0 or 1.
func Sign(x float64) float64 { return Truth(x > 0) - Truth(x < 0) }

// Scaled is a gradient times a slope; where that is 0 the gradient does not count,
// infinite or not.
func Scaled(g, slope float64) float64 {
	if slope == 0 {
		return 0
	}
	return g * slope
}
