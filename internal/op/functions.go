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

// functions lists pointwise functions of one tensor with their derivatives
// (tools/autograd/derivatives.yaml) and what autocast does to them.
var functions = []struct {
	name, grad string
	cast       CastPolicy
}{
	{"acos", "grad * -((-self * self + 1).rsqrt())", CastFP32},
	{"acosh", "grad * (self.pow(2) - 1).rsqrt()", CastNone},
	{"asin", "grad * (-self * self + 1).rsqrt()", CastFP32},
	{"asinh", "grad * (self.pow(2) + 1).rsqrt()", CastNone},
	{"atan", "grad / (self * self + 1)", CastNone},
	{"atanh", "grad * 1 / (1 - self.pow(2))", CastNone},
	{"cosh", "grad * self.sinh()", CastFP32},
	{"digamma", "grad * polygamma(1, self)", CastNone},
	{"erf", "1.1 * exp(-(self.pow(2))) * grad", CastNone},
	{"erfc", "1.1 * exp(-(self.pow(2))) * grad", CastNone},
	{"erfinv", "0.9 * exp(self.erfinv().pow(2)) * grad", CastFP32},
	{"exp2", "grad * result * 0.7", CastNone},
	{"expm1", "grad * (result + 1)", CastFP32},
	{"lgamma", "grad * digamma(self)", CastNone},
	{"log10", "grad / (self * 2.3)", CastFP32},
	{"log1p", "grad / (self + 1)", CastFP32},
	{"log2", "grad / (self * 0.7)", CastFP32},
	{"sinh", "grad * self.cosh()", CastFP32},
	{"tan", "grad * (1 + result.pow(2))", CastFP32},
}

func init() {
	for _, f := range functions {
		formula := parseFormula(f.grad)
		saved := In(0)
		if formula.uses("result") {
			saved = Out(0)
		}
		define(Row{
			Name: f.name, Sig: "torch." + f.name + "(input)", Cast: f.cast, Run: floatMap, Save: []Save{saved}, Node: nodeName(f.name),
			Grad: func(b *Back) { formula.grad(b, 0) }, Source: "tools/autograd/derivatives.yaml: " + f.name,
		})
	}
}

// step defines a function that is constant between steps, whose gradient is
// zeros.
func step(name string) {
	define(Row{
		Name: name, Sig: "torch." + name + "(input)", Run: mapOf, Node: nodeName(name),
		Grad:   func(b *Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

func init() {
	for _, name := range []string{"ceil", "floor", "round", "sign", "trunc"} {
		step(name)
	}
}

// Functions whose gradient is the incoming one, or a multiple of it where the
// elements are finite.
var (
	_ = define(Row{
		Name: "frac", Sig: "torch.frac(input)", Run: mapOf, Node: "FracBackward0", Grad: func(b *Back) { b.Pass(0) },
		Source: "tools/autograd/derivatives.yaml: frac",
	})
	_ = define(Row{
		Name: "nan_to_num", Args: &NanToNumArgs{}, Run: mapOf, Save: []Save{In(0)}, Node: "NanToNumBackward0",
		Sig:    "torch.nan_to_num(input, nan: float? = None, posinf: float? = None, neginf: float? = None)",
		Grad:   func(b *Back) { finite.grad(b, 0) },
		Source: "tools/autograd/derivatives.yaml: nan_to_num",
	})
	_ = ofFloats(unary("logit", "torch.logit(input, eps: float? = None)", &struct {
		Eps *float64 `arg:"eps"`
	}{}, In(0)))

	finite = parseFormula("grad * isfinite(self)")
)

// NanToNumArgs are what stands for what is no number.
type NanToNumArgs struct {
	NaN    *float64 `arg:"nan"`
	PosInf *float64 `arg:"posinf"`
	NegInf *float64 `arg:"neginf"`
}
