package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// What derivatives are made of where a backward pass is recorded itself
// (create_graph). The kernel of a fused derivative is an operator with a derivative
// of its own.

// backwardKernel is the kernel of a derivative, over the gradient and what was saved.
type backwardKernel struct {
	name       string
	args       any
	savedFirst bool // what was saved is the kernel's first operand
	eval       op.Elements
	slope      string // the derivative with respect to what was saved, other: self is the gradient; "": zeros
}

func (k backwardKernel) define() *op.Op {
	run := func(c *op.Call, g, saved *op.Tensor) *op.Tensor {
		if k.savedFirst {
			return c.New(c.Elementwise(saved, g), g.DType)
		}
		return c.New(c.Elementwise(g, saved), g.DType)
	}
	save := []op.Save{op.In(1, 0)}
	slope := func(b *op.Back) { b.Set(1, b.NewLike(b.Grads[0])) }
	if k.slope != "" {
		formula := parseFormula(k.slope)
		save = []op.Save{op.In(0, 1), op.In(1)}
		slope = func(b *op.Back) { formula.Grad(b, 1) }
	}
	return define(op.Op{
		Name: k.name, Args: k.args, Eval: k.eval.Eval(), Run: func(c *op.Call) { c.Return(run(c, c.In[0], c.In[1])) },
		Save: save, Node: op.NodeName(k.name), Grad: func(b *op.Back) {
			if b.Need(0) {
				b.Set(0, run(&b.Call, b.Grads[0], b.SavedIn(1)))
			}
			if b.Need(1) {
				slope(b)
			}
		},
		Source: "tools/autograd/derivatives.yaml: " + k.name,
	})
}

// The kernels of derivatives.
var (
	thresholdBackward = backwardKernel{
		name: "threshold_backward", savedFirst: true,
		eval: op.Elements{
			Of: func(x [3]float64, _ float64) float64 { return x[0] * array.Truth(!(x[1] <= 0)) },
			Slopes: []op.Slope{
				func(x [3]float64, _, _ float64) float64 { return array.Truth(!(x[1] <= 0)) },
				func([3]float64, float64, float64) float64 { return 0 },
			},
		},
	}.define()
	leakyReluBackward = backwardKernel{
		name: "leaky_relu_backward", args: &SlopeArgs{}, savedFirst: true,
		eval: op.Elements{
			Of: func(x [3]float64, p float64) float64 { return x[0] * leak(x[1], p) },
			Slopes: []op.Slope{
				func(x [3]float64, _, p float64) float64 { return leak(x[1], p) },
				func([3]float64, float64, float64) float64 { return 0 },
			},
			Param: func(args any) float64 { return args.(*SlopeArgs).Slope },
		},
	}.define()
	sigmoidBackward = backwardKernel{
		name: "sigmoid_backward", slope: "grad * self * (-2 * other + 1)",
		eval: op.Elements{
			Of: func(x [3]float64, _ float64) float64 { return x[0] * x[1] * (1 - x[1]) },
			Slopes: []op.Slope{
				func(x [3]float64, _, _ float64) float64 { return x[1] * (1 - x[1]) },
				func(x [3]float64, _, _ float64) float64 { return x[0] * (1 - 2*x[1]) },
			},
		},
	}.define()
	tanhBackward = backwardKernel{
		name: "tanh_backward", slope: "grad * (-2 * other * self)",
		eval: op.Elements{
			Of: func(x [3]float64, _ float64) float64 { return x[0] * (1 - x[1]*x[1]) },
			Slopes: []op.Slope{
				func(x [3]float64, _, _ float64) float64 { return 1 - x[1]*x[1] },
				func(x [3]float64, _, _ float64) float64 { return -2 * x[0] * x[1] },
			},
		},
	}.define()
)

// leak is the slope of leaky_relu.
func leak(x, slope float64) float64 {
	if x > 0 {
		return 1
	}
	return slope
}

// withKernel records a derivative that is one kernel over the gradient and what was
// saved.
func withKernel(k *op.Op) func(b *op.Back) {
	return func(b *op.Back) { b.Set(0, b.Do1(k, b.Args, b.Grads[0], b.Saved()[0])) }
}

// recorded says how the derivative of a row is recorded.
func recorded(r *op.Op, graph func(b *op.Back)) *op.Op {
	r.GradGraph = graph
	return r
}

// asItIs says of a row that its derivative is made of operators that autograd records.
func asItIs(r *op.Op) *op.Op { return recorded(r, r.Grad) }

// The derivatives that are recorded.
var (
	_ = []*op.Op{
		asItIs(Add), asItIs(AddInPlace), asItIs(Expand), asItIs(Clone), recorded(View, gradReshape), recorded(UnsafeView, gradReshape),
		recorded(Relu, withKernel(thresholdBackward)), recorded(ReluInPlace, withKernel(thresholdBackward)),
		recorded(LeakyRelu, withKernel(leakyReluBackward)), recorded(LeakyReluInPlace, withKernel(leakyReluBackward)),
		recorded(Sigmoid, withKernel(sigmoidBackward)), recorded(SigmoidInPlace, withKernel(sigmoidBackward)),
		recorded(Tanh, withKernel(tanhBackward)), recorded(TanhInPlace, withKernel(tanhBackward)),
		recorded(Neg, func(b *op.Back) { b.Set(0, b.Do1(Neg, nil, b.Grads[0])) }),
		recorded(ToCopy, func(b *op.Back) { b.Set(0, b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0])) }),
		recorded(T, func(b *op.Back) { b.Set(0, b.Do1(T, nil, b.Grads[0])) }),
		recorded(Transpose, func(b *op.Back) { b.Set(0, b.Do1(Transpose, b.Args, b.Grads[0])) }),
		recorded(Permute, func(b *op.Back) {
			p := permutation(&b.Call, b.Args.(*PermuteArgs).Dims, b.InM[0].Rank())
			inverse := make([]int64, len(p))
			for i, d := range p {
				inverse[d] = int64(i)
			}
			b.Set(0, b.Do1(Permute, &PermuteArgs{Dims: inverse}, b.Grads[0]))
		}),
		recorded(Unsqueeze, func(b *op.Back) {
			b.Set(0, b.Do1(Squeeze, &SqueezeArgs{Dim: []int64{int64(b.Dim(b.Args.(*DimArgs).Dim, b.Grads[0].Rank()))}}, b.Grads[0]))
		}),
		recorded(Squeeze, func(b *op.Back) {
			dims := squeezed(&b.Call, b.InM[0].Size)
			if len(dims) == 0 {
				b.Pass(0)
				return
			}
			g := b.Grads[0]
			for i, d := range dims {
				if i > 0 {
					b.Local(g)
				}
				g = b.Do1(Unsqueeze, &DimArgs{Dim: d}, g)
			}
			b.Set(0, g)
		}),
		recorded(Addmm, func(b *op.Back) {
			if b.Need(1) {
				b.Set(1, recordLeft(b, b.SavedIn(2), b.InM[1]))
			}
			if b.Need(2) {
				b.Set(2, recordRight(b, b.SavedIn(1), b.InM[2]))
			}
			if b.Need(0) {
				b.Pass(0)
			}
		}),
		recorded(Mm, func(b *op.Back) {
			if b.Need(1) {
				b.Set(1, recordRight(b, b.SavedIn(0), b.InM[1]))
			}
			if b.Need(0) {
				b.Set(0, recordLeft(b, b.SavedIn(1), b.InM[0]))
			}
		}),
		recorded(Bmm, func(b *op.Back) {
			swapped := func(t *op.Tensor) *op.Tensor { return b.Local(b.Do1(Transpose, &TransposeArgs{Dim0: 1, Dim1: 2}, t)) }
			if b.Need(1) {
				b.Set(1, b.Do1(Bmm, nil, swapped(b.SavedIn(0)), b.Grads[0]))
			}
			if b.Need(0) {
				b.Set(0, b.Do1(Bmm, nil, b.Grads[0], swapped(b.SavedIn(1))))
			}
		}),
		recorded(Conv, func(b *op.Back) {
			switch a := b.Args.(*ConvArgs); {
			case a.Transposed || a.Groups != 1:
				b.Fail("create_graph through a convolution that is transposed or has groups is not modelled")
			case b.Need(1) || b.Need(2):
				b.Fail("create_graph of the gradients of a convolution's weight and bias is not modelled")
			}
			b.Set(0, b.Do1(convolutionBackward, b.Args, b.Grads[0], b.SavedIn(0), b.SavedIn(1)))
		}),
		recorded(Sub, func(b *op.Back) {
			a, _ := b.Args.(*BinaryArgs)
			if len(b.Needs) > 1 && b.Need(1) {
				b.Set(1, b.Do1(Neg, nil, b.Grads[0]))
			}
			switch {
			case b.Need(0) && a != nil && a.Left.Set:
				b.Set(0, b.Do1(Neg, nil, b.Grads[0]))
			case b.Need(0):
				b.Pass(0)
			}
		}),
		recorded(Mul, recordMul), recorded(MulInPlace, recordMul),
		recorded(Div, recordDiv), recorded(DivInPlace, recordDiv),
		recorded(FusedRMSNorm, rmsNormGraph),
		recorded(Sum, func(b *op.Back) { b.Set(0, recordExpand(b)) }),
		recorded(Mean, func(b *op.Back) {
			e := b.Local(recordExpand(b))
			n := float64(b.InM[0].Numel()) / float64(max(b.OutM[0].Numel(), 1))
			b.Set(0, b.Do1(Div, &BinaryArgs{Other: op.Number{Set: true, Value: n}}, e))
		}),
	}
)

// recordLeft is gradLeft, recorded.
func recordLeft(b *op.Back, mat2 *op.Tensor, a op.Meta) *op.Tensor {
	turned := func(t *op.Tensor) *op.Tensor { return b.Local(b.Do1(T, nil, t)) }
	if a.Stride.At(0) == 1 && a.Stride.At(1) == a.Dim(0) {
		return b.Do1(T, nil, b.Local(b.Do1(Mm, nil, mat2, turned(b.Grads[0]))))
	}
	return b.Do1(Mm, nil, b.Grads[0], turned(mat2))
}

// recordRight is gradRight, recorded.
func recordRight(b *op.Back, mat1 *op.Tensor, m op.Meta) *op.Tensor {
	turned := func(t *op.Tensor) *op.Tensor { return b.Local(b.Do1(T, nil, t)) }
	if m.Stride.At(0) == 1 && m.Stride.At(1) == m.Dim(0) {
		return b.Do1(T, nil, b.Local(b.Do1(Mm, nil, turned(b.Grads[0]), mat1)))
	}
	return b.Do1(Mm, nil, turned(mat1), b.Grads[0])
}

// recordMul is mul_tensor_backward, recorded.
func recordMul(b *op.Back) {
	for i := len(b.Needs) - 1; i >= 0; i-- {
		switch {
		case !b.Need(i):
		case len(b.Needs) > 1 && b.SavedIn(1-i) != nil:
			b.Set(i, b.Do1(Mul, &BinaryArgs{}, b.Grads[0], b.SavedIn(1-i)))
		default:
			b.Set(i, b.Do1(Mul, b.Args, b.Grads[0]))
		}
	}
}

// recordDiv is div_tensor_other_backward and div_tensor_self_backward, recorded.
func recordDiv(b *op.Back) {
	g := b.Grads[0]
	if a, _ := b.Args.(*BinaryArgs); a != nil && a.Left.Set {
		b.Fail("create_graph through a number divided by a tensor is not modelled")
	}
	if b.Need(1) { // GCC computes the last argument first
		q := b.Local(b.Do1(Div, &BinaryArgs{}, b.SavedIn(0), b.SavedIn(1)))
		qq := b.Local(b.Do1(Div, &BinaryArgs{}, q, b.SavedIn(1)))
		neg := b.Local(b.Do1(Neg, nil, g))
		b.Set(1, b.Do1(Mul, &BinaryArgs{}, neg, qq))
		b.End()
	}
	if b.Need(0) {
		if b.SavedIn(1) != nil {
			b.Set(0, b.Do1(Div, &BinaryArgs{}, g, b.SavedIn(1)))
		} else {
			b.Set(0, b.Do1(Div, b.Args, g))
		}
	}
}

// recordExpand is gradExpand, recorded.
func recordExpand(b *op.Back) *op.Tensor {
	g, in := b.Grads[0], b.InM[0]
	a := b.Args.(*ReduceArgs)
	dims, _ := reducedDims(&b.Call, &in, a)
	if !a.KeepDim && g.Rank() != in.Rank() && len(a.Dim) > 0 {
		for i, red := range dims {
			if red {
				g = b.Local(b.Do1(Unsqueeze, &DimArgs{Dim: i}, g))
			}
		}
	}
	return b.Do1(Expand, &ShapeArgs{Shape: in.Size.Slice()}, g)
}

// convolutionBackward is the gradient of a convolution's input, of the gradient that
// came, the input and the weight. Those of weight and bias are not recorded.
var convolutionBackward = define(op.Op{
	Name: "convolution_backward", Args: &ConvArgs{},
	Run: func(c *op.Call) { c.WithoutGrad(func() { c.Return(convInputGrad(c)) }) },
	Eval: &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error {
		l := op.Launch{On: m}
		volumes(&l, c.In[2].Rank()-2, c.Out[0], c.In[0], c.In[2])
		l.Seen(nil)
		return l.Run(kernel.ConvInputGrad, c.Args.(*ConvArgs).ints())
	}},
	Save: []op.Save{op.In(0), op.In(1), op.In(2)}, Node: "ConvolutionBackwardBackward0", Grad: convDoubleBackward,
	Source: "aten/src/ATen/native/Convolution.cpp: convolution_backward, _convolution_double_backward",
})

// convInputGrad computes the gradient of the input as Conv's derivative does.
func convInputGrad(c *op.Call) *op.Tensor {
	g, x, w := c.In[0], c.In[1], c.In[2]
	b := &op.Back{
		Call: op.Call{Exec: c.Exec, Op: Conv, Args: c.Args}, Grads: []*op.Tensor{g}, InM: []op.Meta{*x.Meta(), *w.Meta(), {}}, OutM: []op.Meta{*g.Meta()},
		Needs: []bool{true, false, false}, Results: make([]*op.Tensor, 3),
	}
	b.Hold([]*op.Tensor{x, w, nil}, []*op.Tensor{nil})
	Conv.Grad(b)
	b.End()
	return b.Results[0]
}

// convDoubleBackward is _convolution_double_backward for the gradient of the input
// alone: that of the gradient is another convolution, that of the weight one whose
// filter is the gradient, summed over the batch.
func convDoubleBackward(b *op.Back) {
	a, gg, g, w := b.Args.(*ConvArgs), b.Grads[0], b.SavedIn(0), b.SavedIn(2)
	contiguous := func(t *op.Tensor) *op.Tensor { return b.Local(b.Do1(Contiguous, nil, t)) }
	b.Set(0, b.Do1(Conv, a, gg, contiguous(w), nil))
	mark := b.Mark()
	swapped := func(t *op.Tensor) *op.Tensor { return b.Local(b.ViewOf(t, t.Transpose(0, 1))) }
	filter, images := contiguous(swapped(g)), swapped(gg)
	over := &ConvArgs{Stride: a.Dilation, Padding: a.Padding, Dilation: a.Stride, OutputPadding: a.OutputPadding, Groups: 1}
	y := b.Local(b.Do1(Conv, over, images, filter, nil))
	l := y.Transpose(0, 1)
	for i := 2; i < l.Rank(); i++ {
		l = l.Narrow(i, 0, min(l.Dim(i), w.Dim(i)), 1)
	}
	b.Set(2, b.ViewOf(y, l))
	b.DropTo(mark)
}
