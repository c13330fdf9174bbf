package op

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// NoArgs is the argument struct of operators without arguments.
type NoArgs struct{}

// mapOf is the Run of a pointwise kernel: one result over all inputs, in the
// type of the first.
func mapOf(c *Call) { c.Return(c.New(c.elementwise(c.In...), c.In[0].DType)) }

// convertedMap makes a result of type d; an input of another one is converted
// first.
func (c *Call) convertedMap(d tensor.DType) {
	x := c.In[0]
	if x.DType != d {
		c.Local(c.New(x.LikeDense(), d))
	}
	c.Return(c.New(c.elementwise(x), d))
}

// gradMap is the derivative of a pointwise kernel with one fused backward
// kernel over the gradient and whatever was saved. The first operand decides
// the order of the result's dimensions.
func gradMap(b *Back) {
	ts := append([]*Tensor{b.Grads[0]}, b.saved()...)
	b.Set(0, b.New(b.elementwise(ts...), b.Grads[0].DType))
}

// gradMapSaved is gradMap for the kernels whose first operand is the saved
// tensor.
func gradMapSaved(b *Back) {
	ts := append(b.saved(), b.Grads[0])
	b.Set(0, b.New(b.elementwise(ts...), b.Grads[0].DType))
}

// unary defines a pointwise function of one tensor with a fused derivative.
func unary(name, sig string, args any, save Save, eval *Eval) *Op {
	return define(Op{
		Name: name, Sig: sig, Args: args, Run: mapOf, Save: []Save{save}, Grad: gradMap, Eval: eval, Node: nodeName(name),
		Source: "aten/src/ATen/native/cuda/Activation.cpp, UnaryOps.cpp; tools/autograd/derivatives.yaml",
	})
}

// inFloat32 puts a row on autocast's list of operators in float32.
func inFloat32(r *Op) *Op {
	r.Cast = CastFP32
	return r
}

// unarySaved is unary with gradMapSaved.
func unarySaved(name, sig string, args any, save Save, eval *Eval) *Op {
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
var alpha = numbersOf(func(a *AlphaArgs) []float64 { return []float64{a.Alpha} })

// evalGelu computes one of two functions.
var evalGelu = func() *Eval {
	exact, tanh := mapped(kernel.Gelu, kernel.GeluGrad, nil), mapped(kernel.GeluTanh, kernel.GeluTanhGrad, nil)
	choose := func(args any) *Eval {
		if a, _ := args.(*GeluArgs); a != nil && a.Approximate == "tanh" {
			return tanh
		}
		return exact
	}
	return &Eval{
		Forward:  func(m Machine, c *Call) error { return choose(c.Args).Forward(m, c) },
		Backward: func(m Machine, b *Back) error { return choose(b.Args).Backward(m, b) },
	}
}()

// The activations and other functions whose derivative is one kernel. What
// they save decides what lives until the backward pass: the input, or the
// result, which the next operator often shares.
var (
	Gelu        = unary("gelu", "F.gelu(input, *, approximate: str(none|tanh) = 'none')", &GeluArgs{}, In(0), evalGelu).takes((*Call).floats)
	Silu        = unary("silu", "F.silu(input)", nil, In(0), mapped(kernel.Silu, kernel.SiluGrad, nil)).takes((*Call).floats)
	Mish        = unary("mish", "F.mish(input)", nil, In(0), mish.eval()).takes((*Call).floats)
	Softplus    = inFloat32(unary("softplus", "F.softplus(input, beta: float = 1.0, threshold: float = 20.0)", &SoftplusArgs{}, In(0), mapped(kernel.Softplus, kernel.SoftplusGrad, numbersOf(func(a *SoftplusArgs) []float64 { return []float64{a.Beta, a.Threshold} })))).takes((*Call).floats)
	Hardswish   = unary("hardswish", "F.hardswish(input)", nil, In(0), mapped(kernel.Hardswish, kernel.HardswishGrad, nil)).takes((*Call).floats)
	Hardsigmoid = unary("hardsigmoid", "F.hardsigmoid(input)", nil, In(0), mapped(kernel.Hardsigm, kernel.HardsigmGrad, nil)).takes((*Call).floats)
	Hardtanh    = unary("hardtanh", "F.hardtanh(input, min_val: float = -1.0, max_val: float = 1.0)", &RangeArgs{}, In(0), mapped(kernel.Hardtanh, kernel.HardtanhGrad, numbersOf(func(a *RangeArgs) []float64 { return []float64{a.Min, a.Max} })))
	Relu6       = unary("relu6", "F.relu6(input)", nil, In(0), mapped(kernel.Hardtanh, kernel.HardtanhGrad, func(any) []float64 { return []float64{0, 6} }))
	Elu         = unary("elu", "F.elu(input, alpha: float = 1.0)", &AlphaArgs{}, In(0), mapped(kernel.Elu, kernel.EluGrad, alpha)).takes((*Call).floats)
	LeakyRelu   = unarySaved("leaky_relu", "F.leaky_relu(input, negative_slope: float = 0.01)", &SlopeArgs{}, In(0), mapped(kernel.LeakyRelu, kernel.LeakyReluGrad, numbersOf(func(a *SlopeArgs) []float64 { return []float64{a.Slope} }))).takes((*Call).floats)

	LogSigmoid = unary("log_sigmoid", "F.logsigmoid(input)", nil, In(0), mapped(kernel.LogSigmoid, kernel.LogSigmoidGrad, nil)).takes((*Call).floats)

	// Relu is at::relu: clamp_min forward, threshold_backward on the result.
	Relu    = unarySaved("relu", "F.relu(input)", nil, Out(0), mapped(kernel.Relu, kernel.ReluGrad, nil))
	Sigmoid = ofFloats(unary("sigmoid", "torch.sigmoid(input)", nil, Out(0), mapped(kernel.Sigmoid, kernel.SigmoidGrad, nil)))
	Tanh    = ofFloats(unary("tanh", "torch.tanh(input)", nil, Out(0), mapped(kernel.Tanh, kernel.TanhGrad, nil)))
)

// inPlace defines the in-place form of a pointwise function. Its derivative
// has the type of the out-of-place one.
func inPlace(of *Op, grad func(*Back)) *Op {
	return define(Op{
		Name: of.Name + "_", Of: of, Args: of.Args, Run: func(*Call) {}, InPlace: true, Save: []Save{Out(0)}, Grad: grad, Eval: of.Eval, Node: of.Node,
		Source: "tools/autograd/derivatives.yaml: the in-place forms that save their result",
	})
}

// The activations that nn modules offer with inplace=True.
var (
	ReluInPlace      = inPlace(Relu, gradMapSaved)
	LeakyReluInPlace = inPlace(LeakyRelu, gradMapSaved)
	EluInPlace       = inPlace(Elu, gradMap).evaluated(eluOfResult.eval())
)

// Neg is linear.
var Neg = define(Op{
	Name: "neg", Eval: evalNeg, Sig: "torch.neg(input)", Run: mapOf, Node: "NegBackward0", Grad: gradMap,
})

// evalNeg is linear: its derivative is it again.
var evalNeg = &Eval{
	Forward:  func(m Machine, c *Call) error { return m.Apply(kernel.Affine, c.Target(), c.In[:1], -1, 0) },
	Backward: func(m Machine, b *Back) error { return m.Apply(kernel.Affine, b.Results[0], b.Grads[:1], -1, 0) },
}
