// Package approx has functions of package math that are as exact as results in float32
// need, and faster.
package approx

import "math"

// Exp is the exponential function to some 13 digits; that of
// package math takes three times as long. A number is (64 k + j) ln 2 / 64 + r, so that its
// exponential is 2^k 2^(j/64) e^r, of which the second is in a table and the third
// four terms of its series.
func Exp(x float64) float64 {
	const step, whole = math.Ln2 / 64, 0x1.8p52 // added, whole leaves the nearest integer in the low bits
	if !(x > -700 && x < 700) {
		return math.Exp(x)
	}
	t := x*(1/step) + whole
	n, r := int64(math.Float64bits(t)<<12)>>12, x-(t-whole)*step
	return math.Float64frombits(rootPowers[n&63]+uint64(n>>6)<<52) * (1 + r*(1+r*(1./2+r*(1./6+r*(1./24)))))
}

// rootPowers are the bits of 2^(j/64).
var rootPowers = func() (p [64]uint64) {
	for j := range p {
		p[j] = math.Float64bits(math.Exp2(float64(j) / 64))
	}
	return p
}()

// ExpFor is the exponential function as results of type T need it.
func ExpFor[T float32 | float64]() func(float64) float64 {
	if single[T]() {
		return Exp
	}
	return math.Exp
}

// TanhFor is the hyperbolic tangent as results of type T need it.
func TanhFor[T float32 | float64]() func(float64) float64 {
	if single[T]() {
		return Tanh
	}
	return math.Tanh
}

func single[T float32 | float64]() bool {
	_, is := any(T(0)).(float32)
	return is
}

// Tanh is the hyperbolic tangent to some 9 digits. Near to 0, where 1 - 2/(1+exp(2x)) loses
// them, it is x but for a third of its cube.
func Tanh(x float64) float64 {
	if math.Abs(x) < 0x1p-10 {
		return x * (1 - x*x*(1./3))
	}
	return 1 - 2/(1+Exp(2*x))
}
