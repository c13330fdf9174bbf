package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// mapOf is the Run of a pointwise kernel: one result over all inputs, in the
// type of the first.
func mapOf(c *op.Call) { c.Return(c.New(c.Elementwise(c.In...), c.In[0].DType)) }

// convertedMap makes a result of type d; an input of another one is converted
// first.
func convertedMap(c *op.Call, d tensor.DType) {
	x := c.In[0]
	if x.DType != d {
		c.Local(c.New(x.LikeDense(), d))
	}
	c.Return(c.New(c.Elementwise(x), d))
}

// gradMap is the derivative of a pointwise kernel with one fused backward
// kernel over the gradient and whatever was saved. The first operand decides
// the order of the result's dimensions.
func gradMap(b *op.Back) {
	ts := append([]*op.Tensor{b.Grads[0]}, b.Saved()...)
	b.Set(0, b.New(b.Elementwise(ts...), b.Grads[0].DType))
}

// gradMapSaved is gradMap for the kernels whose first operand is the saved
// tensor.
func gradMapSaved(b *op.Back) {
	ts := append(b.Saved(), b.Grads[0])
	b.Set(0, b.New(b.Elementwise(ts...), b.Grads[0].DType))
}

// unary defines a pointwise function of one tensor with a fused derivative.
func unary(name, sig string, args any, save op.Save, eval *op.Eval) *op.Op {
	return define(op.Op{
		Name: name, Sig: sig, Args: args, Run: mapOf, Save: []op.Save{save}, Grad: gradMap, Eval: eval, Node: op.NodeName(name),
		Source: "aten/src/ATen/native/cuda/Activation.cpp, UnaryOps.cpp; tools/autograd/derivatives.yaml",
	})
}

// inFloat32 puts a row on autocast's list of operators in float32.
func inFloat32(r *op.Op) *op.Op {
	r.Cast = op.CastFP32
	return r
}

// Neg is linear.
var Neg = define(op.Op{
	Name: "neg", Eval: evalNeg, Sig: "torch.neg(input)", Run: mapOf, Node: "NegBackward0", Grad: gradMap,
})

// evalNeg is linear: its derivative is it again.
var evalNeg = &op.Eval{
	Forward:  func(m op.Machine, c *op.Call) error { return m.Apply(kernel.Affine, c.Target(), c.In[:1], -1, 0) },
	Backward: func(m op.Machine, b *op.Back) error { return m.Apply(kernel.Affine, b.Results[0], b.Grads[:1], -1, 0) },
}

// floatOf is the type of a function of real numbers: integers become float32.
func floatOf(d tensor.DType) tensor.DType {
	if d.IsFloating() {
		return d
	}
	return tensor.Float32
}

// floatMap is mapOf for functions of real numbers.
func floatMap(c *op.Call) { c.Return(c.New(c.Elementwise(c.In[0]), floatOf(c.In[0].DType))) }

// ofFloats makes a row a function of real numbers.
func ofFloats(r *op.Op) *op.Op {
	r.Run = floatMap
	return r
}

// function defines a pointwise function of one tensor with its derivative
// (tools/autograd/derivatives.yaml) and what autocast does to it.
func function(name string, of func(float64) float64, grad string, cast op.CastPolicy) *op.Op {
	derivative := parseFormula(grad)
	saved := op.In(0)
	if derivative.Uses("result") {
		saved = op.Out(0)
	}
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(input)", Cast: cast, Run: floatMap, Save: []op.Save{saved}, Node: op.NodeName(name),
		Grad: func(b *op.Back) { derivative.Grad(b, 0) }, Eval: op.Single(of).Derived([3]*op.Formula{derivative}), Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// byKernels makes a function one that kernels compute.
func byKernels(r *op.Op, forward, backward *kernel.Kernel) *op.Op {
	formula := r.Eval
	r.Eval = op.Mapped(forward, backward, nil)
	r.Eval.ByFormula = formula
	return r
}

// mapping is a kernel of all inputs, where it can compute what they are.
func mapping(k *kernel.Kernel, holds func(c *op.Call) bool) *op.Eval {
	return (&op.Eval{
		Single:  true,
		Forward: func(m op.Machine, c *op.Call) error { return m.Apply(k, c.Target(), c.In) },
	}).When(holds)
}

// alike holds of inputs, from one on, of the type of the result, or of what kernels
// convert to it.
func alike(from int) func(c *op.Call) bool {
	return func(c *op.Call) bool {
		d := c.Target().DType
		for _, t := range c.In[from:] {
			if t == nil || t.DType != d && !(d.IsFloating() && t.DType.IsFloating()) {
				return false
			}
		}
		return true
	}
}

// bools holds of two tensors of bools.
func bools(c *op.Call) bool {
	return c.Opt(1) != nil && c.In[0].DType == tensor.Bool && c.In[1].DType == tensor.Bool
}

// ofReals makes a function one that kernels compute of floating numbers. Without a backward
// one the derivative stays what it is.
func ofReals(r *op.Op, forward, backward *kernel.Kernel) *op.Op {
	formula := r.Eval
	e := op.Mapped(forward, backward, nil)
	if backward == nil {
		e.Backward = nil
	}
	r.Eval = e.When(func(c *op.Call) bool { return c.In[0].DType.IsFloating() }).Otherwise(formula)
	if backward != nil {
		r.Eval.ByFormula = formula
	}
	return r
}

// The functions of real numbers.
var (
	Acos    = function("acos", math.Acos, "grad * -((-self * self + 1).rsqrt())", op.CastFP32)
	Acosh   = function("acosh", math.Acosh, "grad * (self.pow(2) - 1).rsqrt()", op.CastNone)
	Asin    = function("asin", math.Asin, "grad * (-self * self + 1).rsqrt()", op.CastFP32)
	Asinh   = function("asinh", math.Asinh, "grad * (self.pow(2) + 1).rsqrt()", op.CastNone)
	Atan    = function("atan", math.Atan, "grad / (self * self + 1)", op.CastNone)
	Atanh   = function("atanh", math.Atanh, "grad * 1 / (1 - self.pow(2))", op.CastNone)
	Cosh    = function("cosh", math.Cosh, "grad * self.sinh()", op.CastFP32)
	Digamma = function("digamma", digamma, "grad * polygamma(1, self)", op.CastNone)
	Erf     = function("erf", math.Erf, "2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad", op.CastNone)
	Erfc    = function("erfc", math.Erfc, "-2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad", op.CastNone)
	Erfinv  = function("erfinv", math.Erfinv, "0.5 * sqrt(M_PI) * exp(self.erfinv().pow(2)) * grad", op.CastFP32)
	Exp2    = function("exp2", math.Exp2, "grad * result * M_LN2", op.CastNone)
	Expm1   = ofReals(function("expm1", math.Expm1, "grad * (result + 1)", op.CastFP32), kernel.Expm1, kernel.Expm1Grad)
	Lgamma  = function("lgamma", lgamma, "grad * digamma(self)", op.CastNone)
	Log10   = function("log10", math.Log10, "grad / (self * 2.3025850929940456)", op.CastFP32)
	Log1p   = ofReals(function("log1p", math.Log1p, "grad / (self + 1)", op.CastFP32), kernel.Log1p, kernel.Log1pGrad)
	Log2    = function("log2", math.Log2, "grad / (self * 0.6931471805599453)", op.CastFP32)
	Sinh    = function("sinh", math.Sinh, "grad * self.cosh()", op.CastFP32)
	Tan     = function("tan", math.Tan, "grad * (1 + result.pow(2))", op.CastFP32)

	Abs = byKernels(function("abs", math.Abs, "grad * self.sgn()", op.CastNone), kernel.Abs, kernel.AbsGrad).Runs(func(c *op.Call) {
		mapOf(c)
		c.Filled(c.In[0].DType)
	})
	Cos   = byKernels(function("cos", math.Cos, "grad * -self.sin()", op.CastNone), kernel.Cos, kernel.CosGrad)
	Exp   = byKernels(function("exp", math.Exp, "grad * result", op.CastFP32), kernel.Exp, kernel.Mul)
	Log   = byKernels(function("log", math.Log, "grad / self", op.CastFP32), kernel.Log, kernel.Div)
	Rsqrt = byKernels(function("rsqrt", rsqrt, "-0.5 * grad * result.pow(3)", op.CastFP32), kernel.Rsqrt, kernel.RsqrtGrad)
	Sin   = byKernels(function("sin", math.Sin, "grad * self.cos()", op.CastNone), kernel.Sin, kernel.SinGrad)
	Sqrt  = byKernels(function("sqrt", math.Sqrt, "grad / (2 * result)", op.CastNone), kernel.Sqrt, kernel.SqrtGrad)
)

// step defines a function that is constant between steps, whose gradient is
// zeros.
func step(name string, of func(float64) float64) *op.Op {
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(input)", Run: mapOf, Node: op.NodeName(name),
		Grad:   func(b *op.Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Eval:   op.Element{Of: func(x float64, _ []float64) float64 { return of(x) }, Slope: op.SlopeZero}.Eval(),
		Source: "tools/autograd/derivatives.yaml: " + name,
	})
}

// stepByKernel makes a function of steps one that a kernel computes of floating numbers.
func stepByKernel(r *op.Op, k *kernel.Kernel) *op.Op {
	formula := r.Eval
	r.Eval = (&op.Eval{
		Single: true,
		Forward: func(m op.Machine, c *op.Call) error {
			if !c.In[0].DType.IsFloating() {
				return op.ErrView
			}
			return m.Apply(k, c.Target(), c.In[:1])
		},
		Backward: func(op.Machine, *op.Back) error { return op.ErrView },
	}).Otherwise(formula)
	return r
}

// The steps.
var (
	Ceil  = step("ceil", math.Ceil)
	Floor = stepByKernel(step("floor", math.Floor), kernel.Floor)
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
	Frac = define(op.Op{
		Name: "frac", Takes: op.Floats, Sig: "torch.frac(input)", Run: mapOf, Node: "FracBackward0", Grad: func(b *op.Back) { b.Pass(0) },
		Eval:   op.Single(func(x float64) float64 { return x - math.Trunc(x) }).Derived([3]*op.Formula{parseFormula("grad")}),
		Source: "tools/autograd/derivatives.yaml: frac",
	})
	NanToNum = define(op.Op{
		Name: "nan_to_num", Args: &NanToNumArgs{}, Run: mapOf, Save: []op.Save{op.In(0)}, Node: "NanToNumBackward0",
		Sig:    "torch.nan_to_num(input, nan: float? = None, posinf: float? = None, neginf: float? = None)",
		Grad:   func(b *op.Back) { finite.Grad(b, 0) },
		Eval:   &op.Eval{Forward: evalNanToNum, Backward: op.Single(nil).Derived([3]*op.Formula{finite}).Backward},
		Source: "tools/autograd/derivatives.yaml: nan_to_num",
	})
	Logit = ofFloats(unary("logit", "torch.logit(input, eps: float? = None)", &LogitArgs{}, op.In(0), logit.Eval()))

	finite = parseFormula("grad * isfinite(self)")
)

// evalNanToNum replaces what is no number; infinities by the largest numbers of the
// type.
func evalNanToNum(m op.Machine, c *op.Call) error {
	args, most := c.Args.(*NanToNumArgs), c.In[0].DType.Largest()
	nan, high, low := 0.0, most, -most
	for _, r := range []struct{ given, to *float64 }{{args.NaN, &nan}, {args.PosInf, &high}, {args.NegInf, &low}} {
		if r.given != nil {
			*r.to = *r.given
		}
	}
	return m.OnHost(func(a op.Arrays) {
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

var logit = op.Element{
	Of: func(x float64, p []float64) float64 {
		if !math.IsNaN(p[0]) {
			x = min(max(x, p[0]), 1-p[0])
		}
		return math.Log(x / (1 - x))
	},
	Slope: func(x, _ float64, p []float64) float64 {
		switch {
		case math.IsNaN(p[0]) && (x < 0 || x > 1):
			return math.NaN()
		case x < p[0] || x > 1-p[0]:
			return 0
		}
		return 1 / (x * (1 - x))
	},
	Numbers: op.NumbersOf(func(a *LogitArgs) []float64 { return []float64{op.OrNaN(a.Eps)} }),
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

// Reciprocal is 1 / x.
var Reciprocal = ofReals(define(op.Op{
	Name: "reciprocal", Sig: "torch.reciprocal(input)", Cast: op.CastFP32, Run: floatMap, Save: []op.Save{op.Out(0)}, Node: "ReciprocalBackward0",
	Grad: func(b *op.Back) { // -grad * (result * result)
		res := b.SavedOut(0)
		square := b.Local(b.Do1(MulTensor, nil, res, res))
		neg := b.Local(b.NewLike(b.Grads[0]))
		b.Set(0, b.Do1(MulTensor, nil, neg, square))
	},
	Eval:   op.Single(func(x float64) float64 { return 1 / x }).Derived([3]*op.Formula{parseFormula("-grad * (result * result)")}),
	Source: "tools/autograd/derivatives.yaml: reciprocal",
}), kernel.Reciprocal, kernel.ReciprocalGrad)
