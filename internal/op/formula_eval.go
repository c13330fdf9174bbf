package op

import (
	"math"
	"strconv"
)

// point is what a formula is computed from, at one element: the incoming gradient, the
// result, the inputs and the number among the arguments; what is not there is NaN.
type point struct {
	grad, result float64
	in           [3]float64
	value        float64
}

// constants are the numbers that formulas name as C++ does.
var constants = map[string]float64{"M_PI": math.Pi, "M_LN2": math.Ln2}

// functionsOfFormulas are the functions that formulas call.
var functionsOfFormulas = map[string]func(x ...float64) float64{
	"neg": func(x ...float64) float64 { return -x[0] },
	"+":   func(x ...float64) float64 { return x[0] + x[1] },
	"-":   func(x ...float64) float64 { return x[0] - x[1] },
	"*":   func(x ...float64) float64 { return x[0] * x[1] },
	"/":   func(x ...float64) float64 { return x[0] / x[1] },

	"pow":        func(x ...float64) float64 { return math.Pow(x[0], x[1]) },
	"sqrt":       func(x ...float64) float64 { return math.Sqrt(x[0]) },
	"rsqrt":      func(x ...float64) float64 { return 1 / math.Sqrt(x[0]) },
	"reciprocal": func(x ...float64) float64 { return 1 / x[0] },
	"exp":        func(x ...float64) float64 { return math.Exp(x[0]) },
	"sinh":       func(x ...float64) float64 { return math.Sinh(x[0]) },
	"cosh":       func(x ...float64) float64 { return math.Cosh(x[0]) },
	"erfinv":     func(x ...float64) float64 { return math.Erfinv(x[0]) },
	"digamma":    func(x ...float64) float64 { return digamma(x[0]) },
	"polygamma":  func(x ...float64) float64 { return trigamma(x[1]) }, // of order 1
	"isfinite":   func(x ...float64) float64 { return is(isFiniteNumber(x[0])) },
	"div_trunc":  func(x ...float64) float64 { return math.Trunc(x[0] / x[1]) },
	"div_floor":  func(x ...float64) float64 { return math.Floor(x[0] / x[1]) },
}

// compute makes a function of the formula; one that names what it cannot is a
// programming error.
func (f *formula) compute() func(p *point) float64 {
	if len(f.args) == 0 {
		return f.leaf()
	}
	of := functionsOfFormulas[f.word]
	if of == nil {
		panic("op: formulas cannot compute " + f.word)
	}
	args := make([]func(p *point) float64, len(f.args))
	for i, a := range f.args {
		args[i] = a.compute()
	}
	if len(args) == 1 {
		return func(p *point) float64 { return of(args[0](p)) }
	}
	return func(p *point) float64 { return of(args[0](p), args[1](p)) }
}

func (f *formula) leaf() func(p *point) float64 {
	if v, is := constants[f.word]; is {
		return func(*point) float64 { return v }
	}
	if f.num {
		v, err := strconv.ParseFloat(f.word, 64)
		if err != nil {
			panic("op: number " + f.word)
		}
		return func(*point) float64 { return v }
	}
	switch i, isInput := operands[f.word]; {
	case f.word == "grad":
		return func(p *point) float64 { return p.grad }
	case f.word == "result":
		return func(p *point) float64 { return p.result }
	case f.word == "value":
		return func(p *point) float64 { return p.value }
	case isInput:
		return func(p *point) float64 { return p.in[i] }
	}
	panic("op: formulas know no " + f.word)
}

// derived is the derivative of f by the formulas of its inputs' gradients: what they
// allocate and what they compute is the same text. An input without one has none.
func (f elements) derived(formulas [3]*formula) *Eval {
	var grads [3]func(p *point) float64
	for i, g := range formulas {
		if g != nil {
			grads[i] = g.compute()
		}
	}
	return f.with(f.backward(func(k int, at *point) float64 { return grads[k](at) }))
}

// single makes a function of one tensor of one number.
func single(of func(x float64) float64) elements {
	return elements{of: func(x [3]float64, _ float64) float64 { return of(x[0]) }}
}

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
