package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// unarySaved is unary with gradMapSaved.
func unarySaved(name, sig string, args any, save op.Save, eval *op.Eval) *op.Op {
	r := unary(name, sig, args, save, eval)
	r.Grad = gradMapSaved
	return r
}

// GeluArgs is whether gelu is computed by tanh.
type GeluArgs struct {
	Approximate string `arg:"approximate"`
}

// SlopeArgs is the slope of leaky_relu.
type SlopeArgs struct {
	Slope float64 `arg:"negative_slope"`
}

// RangeArgs are the bounds of hardtanh.
type RangeArgs struct {
	Min float64 `arg:"min_val"`
	Max float64 `arg:"max_val"`
}

// SoftplusArgs are the arguments of softplus.
type SoftplusArgs struct {
	Beta      float64 `arg:"beta"`
	Threshold float64 `arg:"threshold"`
}

// alpha is the number of elu and celu.
var alpha = op.NumbersOf(func(a *AlphaArgs) []float64 { return []float64{a.Alpha} })

// evalGelu computes one of two functions.
var evalGelu = func() *op.Eval {
	exact, tanh := op.Mapped(kernel.Gelu, kernel.GeluGrad, nil), op.Mapped(kernel.GeluTanh, kernel.GeluTanhGrad, nil)
	choose := func(args any) *op.Eval {
		if a, _ := args.(*GeluArgs); a != nil && a.Approximate == "tanh" {
			return tanh
		}
		return exact
	}
	return &op.Eval{
		Forward:  func(m op.Machine, c *op.Call) error { return choose(c.Args).Forward(m, c) },
		Backward: func(m op.Machine, b *op.Back) error { return choose(b.Args).Backward(m, b) },
	}
}()

// The activations and other functions whose derivative is one kernel. What
// they save decides what lives until the backward pass: the input, or the
// result, which the next operator often shares.
var (
	Gelu        = unary("gelu", "F.gelu(input, *, approximate: str(none|tanh) = 'none')", &GeluArgs{}, op.In(0), evalGelu).Taking(op.Floats)
	Silu        = unary("silu", "F.silu(input)", nil, op.In(0), op.Mapped(kernel.Silu, kernel.SiluGrad, nil)).Taking(op.Floats)
	Mish        = unary("mish", "F.mish(input)", nil, op.In(0), mish.Eval()).Taking(op.Floats)
	Softplus    = inFloat32(unary("softplus", "F.softplus(input, beta: float = 1.0, threshold: float = 20.0)", &SoftplusArgs{}, op.In(0), op.Mapped(kernel.Softplus, kernel.SoftplusGrad, op.NumbersOf(func(a *SoftplusArgs) []float64 { return []float64{a.Beta, a.Threshold} })))).Taking(op.Floats)
	Hardswish   = unary("hardswish", "F.hardswish(input)", nil, op.In(0), op.Mapped(kernel.Hardswish, kernel.HardswishGrad, nil)).Taking(op.Floats)
	Hardsigmoid = unary("hardsigmoid", "F.hardsigmoid(input)", nil, op.In(0), op.Mapped(kernel.Hardsigm, kernel.HardsigmGrad, nil)).Taking(op.Floats)
	Hardtanh    = unary("hardtanh", "F.hardtanh(input, min_val: float = -1.0, max_val: float = 1.0)", &RangeArgs{}, op.In(0), op.Mapped(kernel.Hardtanh, kernel.HardtanhGrad, op.NumbersOf(func(a *RangeArgs) []float64 { return []float64{a.Min, a.Max} })))
	Relu6       = unary("relu6", "F.relu6(input)", nil, op.In(0), op.Mapped(kernel.Hardtanh, kernel.HardtanhGrad, func(any) []float64 { return []float64{0, 6} }))
	Elu         = unary("elu", "F.elu(input, alpha: float = 1.0)", &AlphaArgs{}, op.In(0), op.Mapped(kernel.Elu, kernel.EluGrad, alpha)).Taking(op.Floats)
	LeakyRelu   = unarySaved("leaky_relu", "F.leaky_relu(input, negative_slope: float = 0.01)", &SlopeArgs{}, op.In(0), op.Mapped(kernel.LeakyRelu, kernel.LeakyReluGrad, op.NumbersOf(func(a *SlopeArgs) []float64 { return []float64{a.Slope} }))).Taking(op.Floats)

	LogSigmoid = unary("log_sigmoid", "F.logsigmoid(input)", nil, op.In(0), op.Mapped(kernel.LogSigmoid, kernel.LogSigmoidGrad, nil)).Taking(op.Floats)

	// Relu is at::relu: clamp_min forward, threshold_backward on the result.
	Relu    = unarySaved("relu", "F.relu(input)", nil, op.Out(0), op.Mapped(kernel.Relu, kernel.ReluGrad, nil))
	Sigmoid = ofFloats(unary("sigmoid", "torch.sigmoid(input)", nil, op.Out(0), op.Mapped(kernel.Sigmoid, kernel.SigmoidGrad, nil)))
	Tanh    = ofFloats(unary("tanh", "torch.tanh(input)", nil, op.Out(0), op.Mapped(kernel.Tanh, kernel.TanhGrad, nil)))
)

// inPlace defines the in-place form of a pointwise function. Its derivative
// has the type of the out-of-place one.
func inPlace(of *op.Op, grad func(*op.Back)) *op.Op {
	return define(op.Op{
		Name: of.Name + "_", Of: of, Args: of.Args, Run: func(*op.Call) {}, InPlace: true, Save: []op.Save{op.Out(0)}, Grad: grad, Eval: of.Eval, Node: of.Node,
		Source: "tools/autograd/derivatives.yaml: the in-place forms that save their result",
	})
}

// The activations that nn modules offer with inplace=True.
var (
	ReluInPlace      = inPlace(Relu, gradMapSaved)
	LeakyReluInPlace = inPlace(LeakyRelu, gradMapSaved)
	EluInPlace       = inPlace(Elu, gradMap).Evaluated(eluOfResult.Eval())
)

// AlphaArgs is the scale of celu.
type AlphaArgs struct {
	Alpha float64 `arg:"alpha"`
}

// ThresholdArgs are the arguments of threshold.
type ThresholdArgs struct {
	Threshold float64 `arg:"threshold"`
	Value     float64 `arg:"value"`
}

// ShrinkArgs is the bound of hardshrink and softshrink.
type ShrinkArgs struct {
	Lambd float64 `arg:"lambd"`
}

// The rarer activations with a fused derivative.
var (
	Celu             = unary("celu", "F.celu(input, alpha: float = 1.0)", &AlphaArgs{}, op.In(0), celu.Eval()).Taking(op.Floats)
	Selu             = unary("selu", "F.selu(input)", nil, op.In(0), selu.Eval()).Taking(op.Floats)
	Threshold        = unarySaved("threshold", "F.threshold(input, threshold: float, value: float)", &ThresholdArgs{}, op.In(0), threshold.Eval())
	Hardshrink       = unary("hardshrink", "F.hardshrink(input, lambd: float = 0.5)", &ShrinkArgs{}, op.In(0), hardshrink.Eval()).Taking(op.Floats)
	Softshrink       = unary("softshrink", "F.softshrink(input, lambd: float = 0.5)", &ShrinkArgs{}, op.In(0), softshrink.Eval()).Taking(op.Floats)
	CeluInPlace      = inPlace(Celu, gradMap)
	SeluInPlace      = inPlace(Selu, gradMap)
	ThresholdInPlace = inPlaceOriginal(Threshold, gradMapSaved)
)

// RReLUArgs are the arguments of rrelu.
type RReLUArgs struct {
	Lower    float64 `arg:"lower"`
	Upper    float64 `arg:"upper"`
	Training *bool   `arg:"training"` // nil: the module's mode
}

// RReLU draws a slope for each element, in any mode; autograd keeps them.
var (
	RReLU = define(op.Op{
		Name: "rrelu", Takes: op.Floats, Sig: "F.rrelu(input, lower: float = 0.125, upper: float = 0.3333333333333333, training: bool? = None)", Args: &RReLUArgs{},
		Composite: true, Run: func(c *op.Call) {
			noise := c.Local(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			c.Return(c.Do1(RreluNoise, c.Args, c.In[0], noise))
		},
		Source: "aten/src/ATen/native/Activation.cpp: rrelu",
	})
	_ = define(op.Op{
		Name: "rrelu_", Of: RReLU, Args: &RReLUArgs{}, Composite: true, Run: func(c *op.Call) {
			noise := c.Local(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			c.Return(c.Do1(RreluNoiseInPlace, c.Args, c.In[0], noise))
		},
		Source: "aten/src/ATen/native/Activation.cpp: rrelu_",
	})
	RreluNoise = define(op.Op{
		Name: "rrelu_with_noise", Eval: evalRrelu, Args: &RReLUArgs{}, Run: func(c *op.Call) {
			c.Return(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			if draws(c) {
				c.Contiguous(c.In[0])
			}
		},
		Save: []op.Save{op.In(1), op.In(0)}, Node: "RreluWithNoiseBackward0", Grad: gradRrelu,
		Source: "aten/src/ATen/native/cuda/RreluWithNoise.cu",
	})
	RreluNoiseInPlace = define(op.Op{
		Name: "rrelu_with_noise_", Eval: evalRrelu, Of: RreluNoise, Args: &RReLUArgs{}, Run: func(c *op.Call) {
			if draws(c) { // it reads from one copy and writes to another
				c.Contiguous(c.In[0])
				c.Contiguous(c.In[0])
			}
		}, InPlace: true, Save: []op.Save{op.In(1), op.Out(0)}, Node: "RreluWithNoiseBackward1", Grad: gradRrelu,
		Source: "aten/src/ATen/native/cuda/RreluWithNoise.cu",
	})
)

// draws reports whether slopes are drawn.
func draws(c *op.Call) bool {
	a := c.Args.(*RReLUArgs)
	return a.Training == nil && c.Env().Training || a.Training != nil && *a.Training
}

// gradRrelu is the gradient times the noise.
func gradRrelu(b *op.Back) {
	b.Set(0, b.New(b.Elementwise(b.SavedIn(1), b.Grads[0]), b.Grads[0].DType))
}

// inPlaceOriginal defines the in-place form of a pointwise function whose
// derivative needs what was overwritten: autograd clones the input first.
func inPlaceOriginal(of *op.Op, grad func(*op.Back)) *op.Op {
	return define(op.Op{
		Name: of.Name + "_", Of: of, Args: of.Args, Run: func(*op.Call) {}, InPlace: true, Save: []op.Save{op.In(0)}, Grad: grad, Eval: of.Eval, Node: of.Node,
		Source: "tools/autograd/derivatives.yaml: no formula of its own in terms of the result; gen_variable_type.py: original_self",
	})
}

// The in-place forms of activations that save a copy of their input.
var (
	HardtanhInPlace    = inPlaceOriginal(Hardtanh, gradMap)
	HardswishInPlace   = inPlaceOriginal(Hardswish, gradMap)
	HardsigmoidInPlace = inPlaceOriginal(Hardsigmoid, gradMap)
	SiluInPlace        = inPlaceOriginal(Silu, gradMap)
	MishInPlace        = inPlaceOriginal(Mish, gradMap)
)

// PReLU has a slope for all channels or for each.
var PReLU = define(op.Op{
	Name: "prelu", Takes: op.OneType, Sig: "F.prelu(input, weight)", Composite: true, Cast: op.CastLower, Run: func(c *op.Call) {
		x, w := c.In[0], c.In[1]
		n := w.Numel()
		if w.Rank() > 1 || (n != 1 && (x.Rank() < 2 || x.Dim(1) != n)) || n == 0 {
			c.Fail("a slope of shape %v does not fit shape %v", w.Size, x.Size)
		}
		if w.DType != x.DType {
			c.Fail("the slope has type %v, the input %v", w.DType, x.DType)
		}
		if x.Rank() != w.Rank() {
			shape := make([]int64, x.Rank())
			for i := range shape {
				shape[i] = 1
			}
			if x.Rank() > 1 {
				shape[1] = n
			}
			w = c.Local(c.Do1(Reshape, &ShapeArgs{Shape: shape}, w))
		}
		c.Return(c.Do1(PreluKernel, nil, x, w))
	},
	Source: "aten/src/ATen/native/Activation.cpp: prelu",
})

// PreluKernel is the kernel of prelu.
var PreluKernel = define(op.Op{
	Name: "_prelu_kernel", Run: func(c *op.Call) { c.Return(c.NewLike(c.In[0])) },
	Save: []op.Save{op.In(0), op.In(1)}, Node: "PreluKernelBackward0",
	Grad: func(b *op.Back) { // one kernel makes both, the slope's at the input's size
		l := b.Elementwise(b.SavedIn(0), b.SavedIn(1), b.Grads[0])
		for i := range 2 {
			b.Set(i, b.New(l, b.Grads[0].DType))
		}
	},
	Eval: op.Two(
		func(x, w float64) float64 {
			if x > 0 {
				return x
			}
			return w * x
		},
		func(x [3]float64, _, _ float64) float64 {
			if x[0] > 0 {
				return 1
			}
			return x[1]
		},
		func(x [3]float64, _, _ float64) float64 { return x[0] * array.Truth(!(x[0] > 0)) },
	).Eval(),
	Source: "aten/src/ATen/native/Activation.cpp: _prelu_kernel_backward",
})

// The functions of single elements that operators and their in-place forms share.
var (
	celu = op.Element{
		Of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x/p[0])
		},
		Slope: func(x, y float64, p []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return 1
			case math.IsNaN(x):
				return (y + p[0]) / p[0]
			}
			return math.Exp(x / p[0])
		},
		Numbers: alpha,
	}
	eluOfResult = op.Element{ // elu in place, of which the result is what is kept
		Of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x)
		},
		Slope: func(_, y float64, p []float64) float64 {
			if y > 0 {
				return 1
			}
			return y + p[0]
		},
		Numbers: alpha,
	}
	selu = op.Element{
		Of: func(x float64, _ []float64) float64 {
			if x > 0 {
				return seluScale * x
			}
			return seluScale * seluAlpha * math.Expm1(x)
		},
		Slope: func(x, y float64, _ []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return seluScale
			case math.IsNaN(x):
				return y + seluScale*seluAlpha
			}
			return seluScale * seluAlpha * math.Exp(x)
		},
	}
	mish = op.Element{
		Of: func(x float64, _ []float64) float64 { return x * math.Tanh(array.Softplus(x)) },
		Slope: func(x, _ float64, _ []float64) float64 {
			t := math.Tanh(array.Softplus(x))
			return t + x*(1-t*t)/(1+math.Exp(-x))
		},
	}
	threshold = op.Element{
		Of: func(x float64, p []float64) float64 {
			if x <= p[0] {
				return p[1]
			}
			return x
		},
		Slope:   func(x, _ float64, p []float64) float64 { return array.Truth(!(x <= p[0])) },
		Numbers: op.NumbersOf(func(a *ThresholdArgs) []float64 { return []float64{a.Threshold, a.Value} }),
	}
	hardshrink = op.Element{
		Of:      func(x float64, p []float64) float64 { return x * array.Truth(x < -p[0] || x > p[0]) },
		Slope:   func(x, _ float64, p []float64) float64 { return array.Truth(x < -p[0] || x > p[0]) },
		Numbers: lambd,
	}
	softshrink = op.Element{
		Of:      func(x float64, p []float64) float64 { return x - min(max(x, -p[0]), p[0]) },
		Slope:   func(x, _ float64, p []float64) float64 { return array.Truth(x < -p[0] || x > p[0]) },
		Numbers: lambd,
	}
	lambd = op.NumbersOf(func(a *ShrinkArgs) []float64 { return []float64{a.Lambd} })
)

// The constants of selu (torch/nn/functional.py: selu).
const (
	seluAlpha = 1.6732632423543772848170429916717
	seluScale = 1.0507009873554804934193349852946
)

// In-place functions that keep their result.
var (
	SigmoidInPlace = inPlace(Sigmoid, gradMap)
	TanhInPlace    = inPlace(Tanh, gradMap)
	ExpInPlace     = inPlace(Exp, gradMap)
)

// rrelu: below 0 each element has a slope of its own, which the second input keeps;
// without training one for all (aten/src/ATen/native/Activation.cpp).
var evalRrelu = (&op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.OnHost(func(a op.Arrays) {
		args, x := c.Args.(*RReLUArgs), a.Get(c.In[0])
		noise := array.Each(len(x), func(int) float64 { return 1 })
		slope := func() float64 { return (args.Lower + args.Upper) / 2 }
		if draws(c) {
			s := kernel.NewStream(uint64(m.Draw()))
			slope = func() float64 { return args.Lower + (args.Upper-args.Lower)*s.Uniform() }
		}
		for i, v := range x {
			if !(v > 0) {
				noise[i] = slope()
			}
			x[i] = v * noise[i]
		}
		a.Put(c.In[1], noise)
		a.Put(c.Target(), x)
	})
}}).WithBackward(func(a op.Arrays, b *op.Back) {
	if r := a.Wanted(b, 0); r != nil {
		g, noise := a.Like(b.Grads[0], r.Size), a.Like(b.SavedIn(1), r.Size)
		a.Put(r, array.Each(len(g), func(i int) float64 { return g[i] * noise[i] }))
	}
})
