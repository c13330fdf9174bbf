package cpu

import "math"

// exp is the exponential function to some 13 digits, for results in float32; that of
// package math takes three times as long. A number is (64 k + j) ln 2 / 64 + r, so that its
// exponential is 2^k 2^(j/64) e^r, of which the second is in a table and the third
// four terms of its series.
func exp(x float64) float64 {
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

// exponential is the exponential function as results of type T need it.
func exponential[T float]() func(float64) float64 {
	if _, single := any(T(0)).(float32); single {
		return exp
	}
	return math.Exp
}
