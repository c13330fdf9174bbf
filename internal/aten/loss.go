package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
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

// Ignored is the class whose targets a loss leaves out.
func (a *LossArgs) Ignored() int64 { return a.IgnoreIndex }

func (a *LossArgs) reduction() string { return a.Reduction }

// lossSig is the end of a loss's signature.
const lossSig = "reduction: str(none|mean|sum) = 'mean'"

// sameShape refuses what a loss would have to broadcast.
func sameShape(c *op.Call, x, target *op.Tensor) {
	c.Elementwise(x, target)
	if target.Size != x.Size {
		c.Fail("target of shape %v does not have the input's shape %v; broadcasting in a loss is not modelled", target.Size, x.Size)
	}
}

// reduceLoss is apply_loss_reduction: the mean, the sum or the tensor itself.
// The caller keeps its reference to t and owns the result.
func reduceLoss(c *op.Call, t *op.Tensor) *op.Tensor {
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
func elementLoss(c *op.Call) {
	sameShape(c, c.In[0], c.In[1])
	d, l := promoted(c, false), c.Elementwise(c.In[0], c.In[1])
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
func gradElementLoss(b *op.Back) {
	for i := range 2 {
		if b.Need(i) {
			b.Set(i, b.New(tensor.Contiguous(b.SavedIn(i).Size), b.SavedIn(0).DType))
		}
	}
}

// gradSameType is gradElementLoss where the kernel converts nothing.
func gradSameType(b *op.Back) {
	if x, y := b.InM[0].DType, b.InM[1].DType; x != y {
		b.Fail("the gradient takes an input and a target of one type, not %v and %v, PyTorch says; convert one", x, y)
	}
	gradElementLoss(b)
}

// The losses of the difference between input and target.
var (
	MSELoss = define(op.Op{
		Name: "mse_loss", Eval: evalMSE, Takes: op.Floats, Sig: "F.mse_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: op.CastFP32, Run: elementLoss,
		Save: []op.Save{op.In(0), op.In(1)}, Node: "MseLossBackward0", Grad: gradSameType,
		Source: "aten/src/ATen/native/Loss.cpp, BinaryOps",
	})
	SmoothL1 = define(op.Op{
		Name: "smooth_l1_loss", Takes: op.Floats, Args: &LossArgs{}, Cast: op.CastFP32, Run: elementLoss,
		Save: []op.Save{op.In(0), op.In(1)}, Node: "SmoothL1LossBackward0", Grad: gradElementLoss,
		Eval: distance(func(d float64, a *LossArgs) float64 { return array.SmoothL1(d, a.Beta) },
			func(d float64, a *LossArgs) float64 { return array.SmoothL1Slope(d, a.Beta) }).eval(),
		Source: "aten/src/ATen/native/Loss.cpp",
	})
	// F.smooth_l1_loss is l1_loss where beta is 0.
	SmoothL1Loss = define(op.Op{
		Name: "smooth_l1_loss.any", Sig: "F.smooth_l1_loss(input, target, *, " + lossSig + ", beta: float = 1.0)", Args: &LossArgs{}, Composite: true,
		Run: func(c *op.Call) {
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
	L1Loss = define(op.Op{
		Name: "l1_loss", Takes: op.Floats, Sig: "F.l1_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: op.CastFP32, Composite: true,
		Run: func(c *op.Call) { // apply_loss_reduction((input - target).abs(), reduction)
			sameShape(c, c.In[0], c.In[1])
			diff := c.Do1(Sub, &BinaryArgs{}, c.In...)
			dist := c.Do1(Abs, nil, diff)
			c.Return(reduceLoss(c, dist))
			c.Drop(dist, diff)
		},
		Source: "aten/src/ATen/native/Loss.cpp: l1_loss",
	})
	HuberLoss = define(op.Op{
		Name: "huber_loss", Takes: op.Floats, Sig: "F.huber_loss(input, target, " + lossSig + ", delta: float = 1.0)", Args: &LossArgs{}, Cast: op.CastFP32,
		Run: func(c *op.Call) {
			sameShape(c, c.In[0], c.In[1])
			each := c.New(c.Elementwise(c.In...), promoted(c, false))
			c.Return(reduceLoss(c, each))
			c.Drop(each)
		},
		Save: []op.Save{op.In(0), op.In(1)}, Node: "HuberLossBackward0", Grad: gradSameType,
		Eval: distance(func(d float64, a *LossArgs) float64 { return array.Huber(d, a.Delta) },
			func(d float64, a *LossArgs) float64 { return array.HuberSlope(d, a.Delta) }).eval(),
		Source: "aten/src/ATen/native/Loss.cpp: huber_loss, huber_loss_backward",
	})
)

var evalMSE = wholeLoss(kernel.MSE, kernel.MSEGrad).Otherwise(evalSquares)

// wholeLoss is the mean or the sum of a loss of input and target that kernels compute, with
// the gradient of the input; not one with weights.
func wholeLoss(loss, grad *kernel.Kernel) *op.Eval {
	return &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			scale, whole := lossScale(c.Args, int(c.In[0].Numel()))
			if !whole || weighted(c.In) {
				return op.ErrView
			}
			y := c.Out[0]
			return m.Launch(loss, []kernel.Tensor{m.At(y, (&ReduceArgs{}).Spread(y, c.In[0].Size)), op.As(m, c.In[0]), op.As(m, c.In[1])}, nil, scale)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			scale, whole := lossScale(b.Args, int(b.SavedIn(0).Numel()))
			y := m.Wanted(b, 0)
			if !whole || y == nil || m.Wanted(b, 1) != nil || weighted(b.SavedIns()) {
				return op.ErrView
			}
			return m.Apply(grad, y, []*op.Tensor{b.Grads[0], b.SavedIn(0), b.SavedIn(1)}, scale)
		},
	}
}

// weighted reports whether a loss has more operands than input and target.
func weighted(ts []*op.Tensor) bool {
	return slices.ContainsFunc(ts[min(2, len(ts)):], func(t *op.Tensor) bool { return t != nil })
}

var evalSquares = distance(func(d float64, _ *LossArgs) float64 { return d * d }, func(d float64, _ *LossArgs) float64 { return 2 * d }).eval()

// The losses of independent probabilities. Inputs are input, target, weight
// and, with logits, pos_weight.
var (
	BinaryCrossEntropy = define(op.Op{
		Name: "binary_cross_entropy", Takes: op.Floats, Sig: "F.binary_cross_entropy(input, target, weight: tensor? = None, *, " + lossSig + ")", Args: &LossArgs{},
		Cast: op.CastForbidden, Run: func(c *op.Call) {
			x := c.In[0]
			sameShape(c, x, c.In[1])
			if c.In[1].DType != x.DType {
				c.Fail("target must be of the input's type %v, not %v", x.DType, c.In[1].DType)
			}
			broadcastWeight(c, x, c.Opt(2), "weight")
			loss := c.NewLike(x)
			if c.Args.(*LossArgs).Reduction != "none" { // the scalar is copied into the storage of the elements
				c.Drop(reduceLoss(c, loss))
				scalar := c.Alias(loss, tensor.Contiguous(tensor.D()), x.DType)
				c.Drop(loss)
				loss = scalar
			}
			c.Return(loss)
		},
		Save: []op.Save{op.In(0), op.In(1), op.In(2)}, Node: "BinaryCrossEntropyBackward0",
		Grad: func(b *op.Back) {
			for i := range 2 { // one buffer each, scaled in place
				if b.Need(i) {
					b.Set(i, b.NewLike(b.SavedIn(0)))
				}
			}
		},
		Eval: wholeLoss(kernel.Entropy, kernel.EntropyGrad).Otherwise(criterion{
			inputs: 3,
			of:     func(x []float64, _ any) float64 { return array.CrossEntropy(x[0], x[1], x[2]) },
			slopes: func(x []float64, _ any) (float64, float64) { return array.CrossEntropySlopes(x[0], x[1], x[2]) },
		}.eval()),
		Source: "aten/src/ATen/native/cuda/Loss.cu; torch/csrc/autograd/FunctionsManual.cpp: binary_cross_entropy_target_backward",
	})
	BinaryCrossEntropyWithLogits = define(op.Op{
		Name: "binary_cross_entropy_with_logits", Takes: op.Floats, Args: &LossArgs{}, Cast: op.CastFP32, Run: runBCEWithLogits,
		Sig:  "F.binary_cross_entropy_with_logits(input, target, weight: tensor? = None, *, " + lossSig + ", pos_weight: tensor? = None)",
		Save: []op.Save{op.In(3), op.In(0), op.In(1), op.In(2)}, Node: "BinaryCrossEntropyWithLogitsBackward0", Grad: gradBCEWithLogits,
		Eval: wholeLoss(kernel.BCE, kernel.BCEGrad).Otherwise(criterion{
			inputs: 4,
			of:     func(x []float64, _ any) float64 { return array.LogitEntropy(x[0], x[1], x[2], x[3]) },
			slopes: func(x []float64, _ any) (float64, float64) { return array.LogitEntropySlopes(x[0], x[1], x[2], x[3]) },
		}.eval()),
		Source: "aten/src/ATen/native/Loss.cpp; torch/csrc/autograd/FunctionsManual.cpp: binary_cross_entropy_with_logits_backward",
	})
)

// broadcastWeight refuses a weight that is not of the input's shape when
// broadcast.
func broadcastWeight(c *op.Call, x, weight *op.Tensor, name string) {
	if weight == nil {
		return
	}
	if size, err := tensor.Broadcast(x.Size, weight.Size); err != nil || size != x.Size {
		c.Fail("%s of shape %v does not broadcast to shape %v", name, weight.Size, x.Size)
	}
}

func runBCEWithLogits(c *op.Call) {
	x, target := c.In[0], c.In[1]
	sameShape(c, x, target)
	broadcastWeight(c, x, c.Opt(2), "weight")
	broadcastWeight(c, x, c.Opt(3), "pos_weight")
	logSigmoid := c.NewLike(x)
	if p := c.Opt(3); p != nil { // (pos_weight - 1).mul(target).add_(1)
		less := c.NewLike(p)
		factor := c.New(c.Elementwise(less, target), resultType(p, target, op.Number{}))
		c.Drop(less, factor)
	}
	loss := c.New(c.Elementwise(target), target.DType) // (1 - target).mul_(input).sub_(log_sigmoid)
	c.Return(reduceLoss(c, loss))
	c.Drop(loss, logSigmoid)
}

func gradBCEWithLogits(b *op.Back) {
	x, target, pos := b.SavedIn(0), b.SavedIn(1), b.SavedIn(3)
	if b.Need(0) {
		if pos == nil { // input.sigmoid().sub_(target).mul_(grad)
			b.Set(0, b.NewLike(x))
		} else { // t.add(1).sub_(target).mul_(input.sigmoid()).sub_(t), t = pos_weight * target
			t := b.Do1(MulTensor, nil, pos, target)
			b.Set(0, b.NewLike(t))
			sigmoid := b.NewLike(x)
			b.Drop(sigmoid, t)
		}
	}
	if b.Need(1) {
		minus := b.NewLike(x)
		if pos == nil { // -self * grad
			b.Set(1, b.Do1(MulTensor, nil, minus, b.Grads[0]))
		} else { // log_sigmoid(-self).sub_(log_sigmoid(self).mul_(pos_weight)).mul_(grad)
			b.Set(1, b.NewLike(minus))
			b.Drop(b.NewLike(x))
		}
		b.Drop(minus)
	}
}

// KLDivFunction is the divergence of the input, which is in logarithms, from the
// target. F.kl_div divides the sum by the batch itself for "batchmean".
var KLDivFunction = define(op.Op{
	Name: "kl_div.any", Args: &LossArgs{}, Composite: true,
	Sig: "F.kl_div(input, target, *, reduction: str(none|batchmean|sum|mean) = 'mean', log_target: bool = False)",
	Run: func(c *op.Call) {
		x, a := c.In[0], *c.Args.(*LossArgs)
		batch := a.Reduction == "batchmean"
		if batch {
			a.Reduction = "sum"
		}
		loss := c.Do1(klDiv, &a, c.In...)
		if batch && x.Rank() > 0 {
			sum := loss
			loss = c.Do1(Div, &BinaryArgs{Other: op.Number{Set: true, Value: float64(x.Dim(0))}}, sum)
			c.Drop(sum)
		}
		c.Return(loss)
	},
	Source: "torch/nn/functional.py: kl_div",
})

var klDiv = define(op.Op{
	Name: "kl_div", Takes: op.AllFloats, Args: &LossArgs{}, Cast: op.CastFP32, Composite: true, Run: func(c *op.Call) {
		x, target := c.In[0], c.In[1]
		sameShape(c, x, target)
		var left, right, each *op.Tensor
		if c.Args.(*LossArgs).LogTarget { // exp(target) * (target - input)
			right = c.Do1(Sub, &BinaryArgs{}, target, x)
			left = c.Do1(Exp, nil, target)
			each = c.Do1(Mul, &BinaryArgs{}, left, right)
		} else { // xlogy(target, target) - target * input
			right = c.Do1(Mul, &BinaryArgs{}, target, x)
			left = c.Do1(Xlogy, nil, target, target)
			each = c.Do1(Sub, &BinaryArgs{}, left, right)
		}
		c.Drop(left, right)
		c.Return(reduceLoss(c, each))
		c.Drop(each)
	},
	Source: "aten/src/ATen/native/Loss.cpp: kl_div",
})

// SqrtOfLoss is the root in place in cosine_embedding_loss.
var (
	SqrtOfLoss = define(op.Op{
		Name: "sqrt_.loss", Eval: Sqrt.Eval, Run: func(*op.Call) {}, InPlace: true, Save: []op.Save{op.Out(0)}, Node: "SqrtBackward0", Grad: Sqrt.Grad,
	})
)

// criterion is a loss of the elements x of its inputs: of gives it, slopes its
// derivatives by input and target. Further inputs are weights; one that is absent
// counts as 1.
type criterion struct {
	inputs int
	of     func(x []float64, args any) float64
	slopes func(x []float64, args any) (byInput, byTarget float64)
}

// lossScale says by what the sum of n losses is multiplied; whole reports whether there
// is a sum.
func lossScale(args any, n int) (scale float64, whole bool) {
	switch args.(interface{ reduction() string }).reduction() {
	case "mean":
		return 1 / float64(n), true
	case "sum":
		return 1, true
	}
	return 1, false
}

// reducedLosses are losses, or their mean or sum.
func reducedLosses(losses []float64, args any) []float64 {
	scale, whole := lossScale(args, len(losses))
	if !whole {
		return losses
	}
	sum := 0.0
	for _, v := range losses {
		sum += v
	}
	return []float64{sum * scale}
}

// gradOfLosses is what the gradient of a loss is of each of n losses.
func gradOfLosses(a op.Arrays, b *op.Back, n int) []float64 {
	g := a.Get(b.Grads[0])
	if scale, whole := lossScale(b.Args, n); whole {
		each := g[0] * scale
		g = make([]float64, n)
		for i := range g {
			g[i] = each
		}
	}
	return g
}

// operands reads the elements of the inputs.
func (l criterion) operands(a op.Arrays, ts []*op.Tensor) func(i int) []float64 {
	v := make([][]float64, l.inputs)
	for k := range v {
		v[k] = a.Like(op.Optional(ts, k), ts[0].Size)
	}
	x := make([]float64, l.inputs)
	return func(i int) []float64 {
		for k := range x {
			if x[k] = 1; v[k] != nil {
				x[k] = v[k][i]
			}
		}
		return x
	}
}

func (l criterion) eval() *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		x := l.operands(a, c.In)
		losses := make([]float64, c.In[0].Numel())
		for i := range losses {
			losses[i] = l.of(x(i), c.Args)
		}
		a.Put(c.Out[0], reducedLosses(losses, c.Args))
	}, func(a op.Arrays, b *op.Back) {
		x, g := l.operands(a, b.SavedIns()), gradOfLosses(a, b, int(b.SavedIn(0).Numel()))
		gx, gt := make([]float64, len(g)), make([]float64, len(g))
		for i := range g {
			byInput, byTarget := l.slopes(x(i), b.Args)
			gx[i], gt[i] = g[i]*byInput, g[i]*byTarget
		}
		a.Put(a.Wanted(b, 0), gx)
		a.Put(a.Wanted(b, 1), gt)
	})
}

// distance makes a loss of the difference d of input and target.
func distance(of, slope func(d float64, a *LossArgs) float64) criterion {
	return criterion{
		inputs: 2,
		of:     func(x []float64, args any) float64 { return of(x[0]-x[1], args.(*LossArgs)) },
		slopes: func(x []float64, args any) (float64, float64) {
			s := slope(x[0]-x[1], args.(*LossArgs))
			return s, -s
		},
	}
}
