package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// What torch/nn/functional.py composes of other operators.
var (
	Softmin = define(op.Op{
		Name: "softmin", Sig: "F.softmin(input, dim: int)", Args: &SoftmaxArgs{}, Composite: true, Run: func(c *op.Call) {
			minus := c.Local(c.Do1(Neg, nil, c.In[0]))
			c.Return(c.Do1(Softmax, c.Args, minus))
		},
		Source: "torch/nn/functional.py: softmin",
	})
	Softsign = define(op.Op{
		Name: "softsign", Sig: "F.softsign(input)", Composite: true, Run: func(c *op.Call) { // input / (input.abs() + 1)
			size := c.Do1(Abs, nil, c.In[0])
			sum := c.Local(c.Do1(Add, &BinaryArgs{Other: op.Number{Set: true, Value: 1}}, size))
			c.Drop(size)
			c.Return(c.Do1(Div, &BinaryArgs{}, c.In[0], sum))
		},
		Source: "torch/nn/functional.py: softsign",
	})
	Tanhshrink = define(op.Op{
		Name: "tanhshrink", Sig: "F.tanhshrink(input)", Composite: true, Run: func(c *op.Call) { // input - input.tanh()
			tanh := c.Local(c.Do1(Tanh, nil, c.In[0]))
			c.Return(c.Do1(Sub, &BinaryArgs{}, c.In[0], tanh))
		},
		Source: "torch/nn/functional.py: tanhshrink",
	})
)

// GumbelArgs are the arguments of gumbel_softmax.
type GumbelArgs struct {
	Tau  float64 `arg:"tau"`
	Hard bool    `arg:"hard"`
	Dim  int     `arg:"dim"`
}

// Samples of a distribution over classes; hard ones keep the gradient of the soft.
var _ = define(op.Op{
	Name: "gumbel_softmax", Takes: op.Floats, Sig: "F.gumbel_softmax(logits, tau: float = 1, hard: bool = False, *, dim: int = -1)", Args: &GumbelArgs{}, Composite: true,
	Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*GumbelArgs)
		dim := int64(c.Dim(a.Dim, x.Rank()))
		next := func(t, old *op.Tensor) *op.Tensor {
			c.Drop(old)
			return t
		}
		noise := c.NewShape(x.DType, x.Size.Slice()...)
		c.Drop(c.Do1(Exponential, nil, noise))
		noise = next(c.Do1(Log, nil, noise), noise)
		noise = next(c.Do1(Neg, nil, noise), noise)
		sum := c.Do1(Add, &BinaryArgs{}, x, noise)
		scaled := scaled(c, Div, sum, a.Tau)
		c.Drop(sum)
		noise = next(scaled, noise)
		soft := c.Do1(Softmax, &SoftmaxArgs{Dim: int(dim)}, noise)
		if !a.Hard {
			c.Return(soft)
			c.Drop(noise)
			return
		}
		best := c.Do(Max.Along, &ExtremeArgs{Dim: &dim, KeepDim: true}, soft)
		c.Drop(best[0])
		hard := c.Do1(Zeros, &FillArgs{Size: x.Size.Slice(), DType: &x.DType})
		c.Drop(c.Do1(ScatterNumber, &ScatterArgs{Dim: int(dim), Src: op.Number{Set: true, Float: true, Value: 1}}, hard, best[1]))
		plain := c.Do1(Detach, nil, soft)
		diff := c.Do1(Sub, &BinaryArgs{}, hard, plain)
		c.Drop(plain)
		c.Return(c.Do1(Add, &BinaryArgs{}, diff, soft))
		c.Drop(diff, noise, soft, best[1], hard)
	},
	Source: "torch/nn/functional.py: gumbel_softmax",
})

// maxCrossMaps is the size up to which the sum over a window of channels is a kernel
// without scratch.
const maxCrossMaps = 256

// CrossMapNorm is the forward of nn.CrossMapLRN2d: its result, in which it computes
// squares first, and the scale.
var CrossMapNorm = define(op.Op{
	Name: "cross_map_lrn2d", Args: &ResponseNormArgs{}, Takes: op.Floats, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*ResponseNormArgs)
		switch {
		case x.Rank() != 4:
			c.Fail("Expected input to be 4D, got %dD instead", x.Rank())
		case a.Size > maxCrossMaps:
			c.Fail("a window of %d channels is not modelled, at most one of %d", a.Size, maxCrossMaps)
		case x.Numel() == 0:
			c.Fail("an input of shape %v is not modelled", x.Size)
		}
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Return(y, c.New(tensor.Contiguous(x.Size), x.DType))
	},
	Eval: op.OnHost(func(r op.Arrays, c *op.Call) {
		a, x := c.Args.(*ResponseNormArgs), c.In[0].Size
		y, scale := array.CrossMapNorm(r.Get(c.In[0]), int(x.At(0)), int(x.At(1)), int(x.At(2)*x.At(3)), int(a.Size), a.Alpha, a.Beta, a.K)
		r.Put(c.Out[0], y)
		r.Put(c.Out[1], scale)
	}, nil),
	Source: "torch/nn/modules/_functions.py: CrossMapLRN2d.forward",
})

// CrossMapNormBackward is its backward, of the gradient, the input, the result and the
// scale, which goes over the samples one by one.
var CrossMapNormBackward = define(op.Op{
	Name: "cross_map_lrn2d_backward", Args: &ResponseNormArgs{}, Takes: op.Floats, Run: func(c *op.Call) {
		x, a := c.In[1], c.Args.(*ResponseNormArgs)
		ratio := c.NewShape(x.DType, x.Dim(1)+a.Size-1, x.Dim(2), x.Dim(3))
		sum := c.NewShape(x.DType, x.Dim(2), x.Dim(3))
		out := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Drop(sum, ratio) // which a view that is declared later holds
		c.Return(out)
	},
	Eval: op.OnHost(func(r op.Arrays, c *op.Call) {
		a, x := c.Args.(*ResponseNormArgs), c.In[1].Size
		r.Put(c.Out[0], array.CrossMapNormGrad(r.Get(c.In[0]), r.Get(c.In[1]), r.Get(c.In[2]), r.Get(c.In[3]), int(x.At(0)), int(x.At(1)), int(x.At(2)*x.At(3)),
			int(a.Size), a.Alpha, a.Beta))
	}, nil),
	Source: "torch/nn/modules/_functions.py: CrossMapLRN2d.backward",
})

// ResponseNormArgs are the arguments of F.local_response_norm.
type ResponseNormArgs struct {
	Size  int64   `arg:"size"`
	Alpha float64 `arg:"alpha"`
	Beta  float64 `arg:"beta"`
	K     float64 `arg:"k"`
}

// LocalResponseNorm divides by a mean of squares over neighbouring channels.
var LocalResponseNorm = define(op.Op{
	Name: "local_response_norm", Sig: "F.local_response_norm(input, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
	Args: &ResponseNormArgs{}, Composite: true, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*ResponseNormArgs)
		if x.Rank() < 4 || a.Size < 1 || a.Size > op.MaxGeometry || x.Numel() == 0 {
			c.Fail("local_response_norm of shape %v over %d channels is not modelled; it needs (N, C, H, W)", x.Size, a.Size)
		}
		div := c.Do1(Mul, &BinaryArgs{}, x, x)
		next := func(r *op.Op, args any) {
			y := c.Do1(r, args, div)
			c.Drop(div)
			div = y
		}
		next(View, &ShapeArgs{Shape: []int64{x.Dim(0), 1, x.Dim(1), x.Dim(2), -1}})
		next(ConstantPad, &PadArgs{Pad: []int64{0, 0, 0, 0, a.Size / 2, (a.Size - 1) / 2}})
		next(AvgPool3d, &PoolArgs{Kernel: []int64{a.Size, 1, 1}, Stride: []int64{1, 1, 1}, Padding: []int64{0, 0, 0}, Dilation: []int64{1, 1, 1}})
		next(Squeeze, &SqueezeArgs{Dim: []int64{1}})
		next(View, &ShapeArgs{Shape: x.Size.Slice()})
		scaled := c.Do1(Mul, float(a.Alpha), div) // one expression: its temporaries are freed before the variable is rebound
		plus := c.Do1(Add, float(a.K), scaled)
		c.Drop(scaled)
		power := c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Float: true, Value: a.Beta}}, plus)
		c.Drop(plus, div)
		div = power
		c.Variable(div)
		c.Return(c.Do1(Div, &BinaryArgs{}, x, div))
	},
	Source: "torch/nn/functional.py: local_response_norm",
})
