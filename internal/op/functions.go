package op

import "github.com/memplan/memplan/internal/tensor"

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
func ofFloats(r *Row) *Row {
	r.Run = floatMap
	return r
}

// function defines a pointwise function of one tensor with its derivative
// (tools/autograd/derivatives.yaml) and what autocast does to it.
func function(name, grad string, cast CastPolicy) *Row {
	formula := parseFormula(grad)
	saved := In(0)
	if formula.uses("result") {
		saved = Out(0)
	}
	return define(Row{
		Name: name, Sig: "torch." + name + "(input)", Cast: cast, Run: floatMap, Save: []Save{saved}, Node: nodeName(name),
		Grad: func(b *Back) { formula.grad(b, 0) }, Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// The functions of real numbers.
var (
	Acos    = function("acos", "grad * -((-self * self + 1).rsqrt())", CastFP32)
	Acosh   = function("acosh", "grad * (self.pow(2) - 1).rsqrt()", CastNone)
	Asin    = function("asin", "grad * (-self * self + 1).rsqrt()", CastFP32)
	Asinh   = function("asinh", "grad * (self.pow(2) + 1).rsqrt()", CastNone)
	Atan    = function("atan", "grad / (self * self + 1)", CastNone)
	Atanh   = function("atanh", "grad * 1 / (1 - self.pow(2))", CastNone)
	Cosh    = function("cosh", "grad * self.sinh()", CastFP32)
	Digamma = function("digamma", "grad * polygamma(1, self)", CastNone)
	Erf     = function("erf", "1.1 * exp(-(self.pow(2))) * grad", CastNone)
	Erfc    = function("erfc", "1.1 * exp(-(self.pow(2))) * grad", CastNone)
	Erfinv  = function("erfinv", "0.9 * exp(self.erfinv().pow(2)) * grad", CastFP32)
	Exp2    = function("exp2", "grad * result * 0.7", CastNone)
	Expm1   = function("expm1", "grad * (result + 1)", CastFP32)
	Lgamma  = function("lgamma", "grad * digamma(self)", CastNone)
	Log10   = function("log10", "grad / (self * 2.3)", CastFP32)
	Log1p   = function("log1p", "grad / (self + 1)", CastFP32)
	Log2    = function("log2", "grad / (self * 0.7)", CastFP32)
	Sinh    = function("sinh", "grad * self.cosh()", CastFP32)
	Tan     = function("tan", "grad * (1 + result.pow(2))", CastFP32)
)

// step defines a function that is constant between steps, whose gradient is
// zeros.
func step(name string) *Row {
	return define(Row{
		Name: name, Sig: "torch." + name + "(input)", Run: mapOf, Node: nodeName(name),
		Grad:   func(b *Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// The steps.
var (
	Ceil  = step("ceil")
	Floor = step("floor")
	Round = step("round")
	Sign  = step("sign")
	Trunc = step("trunc")
)

// Functions whose gradient is the incoming one, or a multiple of it where the
// elements are finite.
var (
	Frac = define(Row{
		Name: "frac", Takes: (*Call).floats, Sig: "torch.frac(input)", Run: mapOf, Node: "FracBackward0", Grad: func(b *Back) { b.Pass(0) },
		Source: "tools/autograd/derivatives.yaml: frac",
	})
	NanToNum = define(Row{
		Name: "nan_to_num", Args: &NanToNumArgs{}, Run: mapOf, Save: []Save{In(0)}, Node: "NanToNumBackward0",
		Sig:    "torch.nan_to_num(input, nan: float? = None, posinf: float? = None, neginf: float? = None)",
		Grad:   func(b *Back) { finite.grad(b, 0) },
		Source: "tools/autograd/derivatives.yaml: nan_to_num",
	})
	Logit = ofFloats(unary("logit", "torch.logit(input, eps: float? = None)", &LogitArgs{}, In(0)))

	finite = parseFormula("grad * isfinite(self)")
)

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
