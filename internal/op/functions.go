package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// floatOf is the type of a function of real numbers: integers become float32.
func floatOf(d tensor.DType) tensor.DType {
	if d.IsFloating() {
		return d
	}
	return tensor.Float32
}

// floatMap is mapOf for functions of real numbers.
func floatMap(c *Call) { c.Return(c.New(c.elementwise(c.In[0]), floatOf(c.In[0].DType))) }

// ofFloats makes a row a function of real numbers.
func ofFloats(r *Op) *Op {
	r.Run = floatMap
	return r
}

// function defines a pointwise function of one tensor with its derivative
// (tools/autograd/derivatives.yaml) and what autocast does to it.
func function(name string, of func(float64) float64, grad string, cast CastPolicy) *Op {
	derivative := parseFormula(grad)
	saved := In(0)
	if derivative.uses("result") {
		saved = Out(0)
	}
	return define(Op{
		Name: name, Sig: "torch." + name + "(input)", Cast: cast, Run: floatMap, Save: []Save{saved}, Node: nodeName(name),
		Grad: func(b *Back) { derivative.grad(b, 0) }, Eval: single(of).derived([3]*formula{derivative}), Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// byKernels makes a function one that kernels compute.
func byKernels(r *Op, forward, backward *kernel.Kernel) *Op {
	formula := r.Eval
	r.Eval = mapped(forward, backward, nil)
	r.Eval.byFormula = formula
	return r
}

// The functions of real numbers.
var (
	Acos    = function("acos", math.Acos, "grad * -((-self * self + 1).rsqrt())", CastFP32)
	Acosh   = function("acosh", math.Acosh, "grad * (self.pow(2) - 1).rsqrt()", CastNone)
	Asin    = function("asin", math.Asin, "grad * (-self * self + 1).rsqrt()", CastFP32)
	Asinh   = function("asinh", math.Asinh, "grad * (self.pow(2) + 1).rsqrt()", CastNone)
	Atan    = function("atan", math.Atan, "grad / (self * self + 1)", CastNone)
	Atanh   = function("atanh", math.Atanh, "grad * 1 / (1 - self.pow(2))", CastNone)
	Cosh    = function("cosh", math.Cosh, "grad * self.sinh()", CastFP32)
	Digamma = function("digamma", digamma, "grad * polygamma(1, self)", CastNone)
	Erf     = function("erf", math.Erf, "2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad", CastNone)
	Erfc    = function("erfc", math.Erfc, "-2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad", CastNone)
	Erfinv  = function("erfinv", math.Erfinv, "0.5 * sqrt(M_PI) * exp(self.erfinv().pow(2)) * grad", CastFP32)
	Exp2    = function("exp2", math.Exp2, "grad * result * M_LN2", CastNone)
	Expm1   = function("expm1", math.Expm1, "grad * (result + 1)", CastFP32)
	Lgamma  = function("lgamma", lgamma, "grad * digamma(self)", CastNone)
	Log10   = function("log10", math.Log10, "grad / (self * 2.3025850929940456)", CastFP32)
	Log1p   = function("log1p", math.Log1p, "grad / (self + 1)", CastFP32)
	Log2    = function("log2", math.Log2, "grad / (self * 0.6931471805599453)", CastFP32)
	Sinh    = function("sinh", math.Sinh, "grad * self.cosh()", CastFP32)
	Tan     = function("tan", math.Tan, "grad * (1 + result.pow(2))", CastFP32)

	Abs = byKernels(function("abs", math.Abs, "grad * self.sgn()", CastNone), kernel.Abs, kernel.AbsGrad).runs(func(c *Call) {
		mapOf(c)
		c.filled(c.In[0].DType)
	})
	Cos   = byKernels(function("cos", math.Cos, "grad * -self.sin()", CastNone), kernel.Cos, kernel.CosGrad)
	Exp   = byKernels(function("exp", math.Exp, "grad * result", CastFP32), kernel.Exp, kernel.Mul)
	Log   = byKernels(function("log", math.Log, "grad / self", CastFP32), kernel.Log, kernel.Div)
	Rsqrt = byKernels(function("rsqrt", rsqrt, "-0.5 * grad * result.pow(3)", CastFP32), kernel.Rsqrt, kernel.RsqrtGrad)
	Sin   = byKernels(function("sin", math.Sin, "grad * self.cos()", CastNone), kernel.Sin, kernel.SinGrad)
	Sqrt  = byKernels(function("sqrt", math.Sqrt, "grad / (2 * result)", CastNone), kernel.Sqrt, kernel.SqrtGrad)
)

// step defines a function that is constant between steps, whose gradient is
// zeros.
func step(name string, of func(float64) float64) *Op {
	return define(Op{
		Name: name, Sig: "torch." + name + "(input)", Run: mapOf, Node: nodeName(name),
		Grad:   func(b *Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Eval:   element{of: func(x float64, _ []float64) float64 { return of(x) }, slope: level}.eval(),
		Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// The steps.
var (
	Ceil  = step("ceil", math.Ceil)
	Floor = step("floor", math.Floor)
	Round = step("round", math.RoundToEven)
	Sign  = step("sign", array.Sign)
	Trunc = step("trunc", math.Trunc)
)

func rsqrt(x float64) float64 { return 1 / math.Sqrt(x) }

func lgamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}

// Functions whose gradient is the incoming one, or a multiple of it where the
// elements are finite.
var (
	Frac = define(Op{
		Name: "frac", Takes: (*Call).floats, Sig: "torch.frac(input)", Run: mapOf, Node: "FracBackward0", Grad: func(b *Back) { b.Pass(0) },
		Eval:   single(func(x float64) float64 { return x - math.Trunc(x) }).derived([3]*formula{parseFormula("grad")}),
		Source: "tools/autograd/derivatives.yaml: frac",
	})
	NanToNum = define(Op{
		Name: "nan_to_num", Args: &NanToNumArgs{}, Run: mapOf, Save: []Save{In(0)}, Node: "NanToNumBackward0",
		Sig:    "torch.nan_to_num(input, nan: float? = None, posinf: float? = None, neginf: float? = None)",
		Grad:   func(b *Back) { finite.grad(b, 0) },
		Eval:   &Eval{Forward: evalNanToNum, Backward: single(nil).derived([3]*formula{finite}).Backward},
		Source: "tools/autograd/derivatives.yaml: nan_to_num",
	})
	Logit = ofFloats(unary("logit", "torch.logit(input, eps: float? = None)", &LogitArgs{}, In(0), logit.eval()))

	finite = parseFormula("grad * isfinite(self)")
)

// evalNanToNum replaces what is no number; infinities by the largest numbers of the
// type.
func evalNanToNum(m Machine, c *Call) error {
	args, most := c.Args.(*NanToNumArgs), c.In[0].DType.Largest()
	nan, high, low := 0.0, most, -most
	for _, r := range []struct{ given, to *float64 }{{args.NaN, &nan}, {args.PosInf, &high}, {args.NegInf, &low}} {
		if r.given != nil {
			*r.to = *r.given
		}
	}
	return m.Aside(func(a Arrays) {
		in := a.Get(c.In[0])
		for i, v := range in {
			switch {
			case math.IsNaN(v):
				in[i] = nan
			case math.IsInf(v, 1):
				in[i] = high
			case math.IsInf(v, -1):
				in[i] = low
			}
		}
		a.Put(c.Target(), in)
	})
}

var logit = element{
	of: func(x float64, p []float64) float64 {
		if !math.IsNaN(p[0]) {
			x = min(max(x, p[0]), 1-p[0])
		}
		return math.Log(x / (1 - x))
	},
	slope: func(x, _ float64, p []float64) float64 {
		switch {
		case math.IsNaN(p[0]) && (x < 0 || x > 1):
			return math.NaN()
		case x < p[0] || x > 1-p[0]:
			return 0
		}
		return 1 / (x * (1 - x))
	},
	numbers: numbersOf(func(a *LogitArgs) []float64 { return []float64{orNaN(a.Eps)} }),
}

// LogitArgs is how far logit keeps from 0 and 1, if it does.
type LogitArgs struct {
	Eps *float64 `arg:"eps"`
}

// NanToNumArgs are what stands for what is no number.
type NanToNumArgs struct {
	NaN    *float64 `arg:"nan"`
	PosInf *float64 `arg:"posinf"`
	NegInf *float64 `arg:"neginf"`
}
