package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// LossArgs are the arguments that losses share.
type LossArgs struct {
	Reduction      string  `arg:"reduction"`
	IgnoreIndex    int64   `arg:"ignore_index"`
	LabelSmoothing float64 `arg:"label_smoothing"`
	Beta           float64 `arg:"beta"` // of smooth_l1_loss
	LogTarget      bool    `arg:"log_target"`
	Margin         float64 `arg:"margin"`
	P              float64 `arg:"p"`
	Swap           bool    `arg:"swap"`
	Eps            float64 `arg:"eps"`
	Delta          float64 `arg:"delta"` // of huber_loss
}

func (a *LossArgs) reduction() string { return a.Reduction }

// lossSig is the end of a loss's signature.
const lossSig = "reduction: str(none|mean|sum) = 'mean'"

// sameShape refuses what a loss would have to broadcast.
func (c *Call) sameShape(x, target *Tensor) {
	c.elementwise(x, target)
	if target.Size != x.Size {
		c.Fail("target of shape %v does not have the input's shape %v; broadcasting in a loss is not modelled", target.Size, x.Size)
	}
}

// reduceLoss is apply_loss_reduction: the mean, the sum or the tensor itself.
// The caller keeps its reference to t and owns the result.
func (c *Call) reduceLoss(t *Tensor) *Tensor {
	switch c.Args.(interface{ reduction() string }).reduction() {
	case "mean":
		return c.Do1(Mean, &ReduceArgs{}, t)
	case "sum":
		return c.Do1(Sum, &ReduceArgs{}, t)
	}
	return c.Keep(t)
}

// elementLoss is the Run of mse_loss and its like. With a reduction, PyTorch
// sizes the result like the input before it shrinks to a scalar: the storage
// of the loss stays as large as the input.
func elementLoss(c *Call) {
	c.sameShape(c.In[0], c.In[1])
	d, l := c.promoted(false), c.elementwise(c.In[0], c.In[1])
	if c.Args.(*LossArgs).Reduction == "none" {
		c.Return(c.New(l, d))
		return
	}
	n := tensor.Bytes(l.Numel() * d.Size())
	out := c.NewIn(n, tensor.Contiguous(tensor.D()), d)
	each := c.New(l, d)
	all := make([]bool, l.Rank())
	for i := range all {
		all[i] = true
	}
	reduceScratch(c, each, all, d.Accumulate().Size(), 4)
	c.Drop(each)
	c.Return(out)
}

// gradElementLoss is one kernel over gradient, input and target, into a
// row-major result.
func gradElementLoss(b *Back) {
	for i := range 2 {
		if b.Need(i) {
			b.Set(i, b.New(tensor.Contiguous(b.SavedIn(i).Size), b.SavedIn(0).DType))
		}
	}
}

// gradSameType is gradElementLoss where the kernel converts nothing.
func gradSameType(b *Back) {
	if x, y := b.InM[0].DType, b.InM[1].DType; x != y {
		b.Fail("the gradient takes an input and a target of one type, not %v and %v, PyTorch says; convert one", x, y)
	}
	gradElementLoss(b)
}

// The losses of the difference between input and target.
var (
	MSELoss = define(Op{
		Name: "mse_loss", Eval: evalMSE, Takes: (*Call).floats, Sig: "F.mse_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: CastFP32, Run: elementLoss,
		Save: []Save{In(0), In(1)}, Node: "MseLossBackward0", Grad: gradSameType,
		Source: "aten/src/ATen/native/Loss.cpp, BinaryOps",
	})
	SmoothL1 = define(Op{
		Name: "smooth_l1_loss", Takes: (*Call).floats, Args: &LossArgs{}, Cast: CastFP32, Run: elementLoss,
		Save: []Save{In(0), In(1)}, Node: "SmoothL1LossBackward0", Grad: gradElementLoss,
		Eval: distance(func(d float64, a *LossArgs) float64 { return array.SmoothL1(d, a.Beta) },
			func(d float64, a *LossArgs) float64 { return array.SmoothL1Slope(d, a.Beta) }).eval(),
		Source: "aten/src/ATen/native/Loss.cpp",
	})
	// F.smooth_l1_loss is l1_loss where beta is 0.
	SmoothL1Loss = define(Op{
		Name: "smooth_l1_loss.any", Sig: "F.smooth_l1_loss(input, target, *, " + lossSig + ", beta: float = 1.0)", Args: &LossArgs{}, Composite: true,
		Run: func(c *Call) {
			a := c.Args.(*LossArgs)
			switch {
			case a.Beta < 0:
				c.Fail("beta must not be negative")
			case a.Beta == 0:
				c.Return(c.Do1(L1Loss, a, c.In...))
			default:
				c.Return(c.Do1(SmoothL1, a, c.In...))
			}
		},
		Source: "torch/nn/functional.py: smooth_l1_loss",
	})
	L1Loss = define(Op{
		Name: "l1_loss", Takes: (*Call).floats, Sig: "F.l1_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: CastFP32, Composite: true,
		Run: func(c *Call) { // apply_loss_reduction((input - target).abs(), reduction)
			c.sameShape(c.In[0], c.In[1])
			diff := c.Do1(Sub, &BinaryArgs{}, c.In...)
			dist := c.Do1(Abs, nil, diff)
			c.Return(c.reduceLoss(dist))
			c.Drop(dist, diff)
		},
		Source: "aten/src/ATen/native/Loss.cpp: l1_loss",
	})
	HuberLoss = define(Op{
		Name: "huber_loss", Takes: (*Call).floats, Sig: "F.huber_loss(input, target, *, " + lossSig + ", delta: float = 1.0)", Args: &LossArgs{}, Cast: CastFP32,
		Run: func(c *Call) {
			c.sameShape(c.In[0], c.In[1])
			each := c.New(c.elementwise(c.In...), c.promoted(false))
			c.Return(c.reduceLoss(each))
			c.Drop(each)
		},
		Save: []Save{In(0), In(1)}, Node: "HuberLossBackward0", Grad: gradSameType,
		Eval: distance(func(d float64, a *LossArgs) float64 { return array.Huber(d, a.Delta) },
			func(d float64, a *LossArgs) float64 { return array.HuberSlope(d, a.Delta) }).eval(),
		Source: "aten/src/ATen/native/Loss.cpp: huber_loss, huber_loss_backward",
	})
)

// evalMSE has kernels for the mean or the sum, and for the gradient of the input.
var evalMSE = &Eval{
	Forward: func(m Machine, c *Call) error {
		scale, whole := lossScale(c.Args, int(c.In[0].Numel()))
		if !whole {
			return evalSquares.Forward(m, c)
		}
		y := c.Out[0]
		return m.Launch(kernel.MSE, []kernel.Tensor{m.At(y, (&ReduceArgs{}).Spread(y, c.In[0].Size)), as(m, c.In[0]), as(m, c.In[1])}, nil, scale)
	},
	Backward: func(m Machine, b *Back) error {
		scale, whole := lossScale(b.Args, int(b.SavedIn(0).Numel()))
		y := m.Wanted(b, 0)
		if !whole || y == nil || m.Wanted(b, 1) != nil {
			return evalSquares.Backward(m, b)
		}
		return m.Apply(kernel.MSEGrad, y, []*Tensor{b.Grads[0], b.SavedIn(0), b.SavedIn(1)}, scale)
	},
}

var evalSquares = distance(func(d float64, _ *LossArgs) float64 { return d * d }, func(d float64, _ *LossArgs) float64 { return 2 * d }).eval()
