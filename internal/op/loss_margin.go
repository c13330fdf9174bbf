package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// The losses of margins that C++ composes of operators.
var (
	HingeEmbeddingLoss = define(Op{
		Name: "hinge_embedding_loss", Takes: (*Call).floats, Args: &LossArgs{}, Cast: CastFP32, Composite: true,
		Sig: "F.hinge_embedding_loss(input, target, *, margin: float = 1.0, " + lossSig + ")",
		Run: func(c *Call) {
			x, target := c.In[0], c.In[1]
			c.sameShape(x, target)
			zeros := c.Local(c.Do1(Zeros, &FillArgs{Size: x.Size.Slice(), DType: &x.DType}))
			diff := c.Local(c.Do1(Sub, &BinaryArgs{Left: Number{Set: true, Float: true, Value: c.Args.(*LossArgs).Margin}}, x))
			c.Drop(c.Do1(ClampMinInPlace, atLeast(0), diff))
			pick := func(not float64, t *Tensor) *Tensor {
				is := c.Do1(NotEqual, &BinaryArgs{Other: Number{Set: true, Value: not}}, target)
				defer c.Drop(is)
				return c.Local(c.Do1(WhereSelf, nil, is, t, zeros))
			}
			far := pick(1, diff)
			near := pick(-1, x)
			out := c.Local(c.Do1(Add, &BinaryArgs{}, far, near))
			c.Return(c.reduceLoss(out))
		},
		Source: "aten/src/ATen/native/Loss.cpp: hinge_embedding_loss",
	})
	MarginRankingLoss = define(Op{
		Name: "margin_ranking_loss", Args: &LossArgs{}, Cast: CastFP32, Composite: true,
		Sig: "F.margin_ranking_loss(input1, input2, target, *, margin: float = 0.0, " + lossSig + ")",
		Run: func(c *Call) { // (-target * (input1 - input2) + margin).clamp_min_(0)
			mark := c.Mark()
			diff := c.Local(c.Do1(Sub, &BinaryArgs{}, c.In[0], c.In[1]))
			minus := c.Local(c.Do1(Neg, nil, c.In[2]))
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, minus, diff))
			out := c.scaled(Add, product, c.Args.(*LossArgs).Margin)
			c.DropTo(mark)
			c.Local(out)
			c.Drop(c.Do1(ClampMinInPlace, atLeast(0), out))
			c.Return(c.reduceLoss(out))
		},
		Source: "aten/src/ATen/native/Loss.cpp: margin_ranking_loss",
	})
)

// MarginArgs are the arguments of multi_margin_loss.
type MarginArgs struct {
	Reduction string  `arg:"reduction"`
	P         int64   `arg:"p"`
	Margin    float64 `arg:"margin"`
}

func (a *MarginArgs) reduction() string { return a.Reduction }

func (a *MarginArgs) margin(weight []float64) *array.Margin {
	return &array.Margin{Margin: a.Margin, P: a.P, Weight: weight}
}

// The losses of margins between classes, by kernels of their own.
var (
	MultiMarginLoss = define(Op{
		Name: "multi_margin_loss", Indices: classes(-1), Args: &MarginArgs{}, Cast: CastFP32,
		Sig: "F.multi_margin_loss(input, target, p: int = 1, margin: float = 1.0, weight: tensor? = None, *, " + lossSig + ")",
		Run: func(c *Call) {
			x, target := c.In[0], c.In[1]
			c.classMargin(x)
			if rows := x.Size.Remove(x.Rank() - 1); target.DType != tensor.Int64 || target.Size != rows {
				c.Fail("target must be int64 of shape %v, not %v of shape %v", rows, target.DType, target.Size)
			}
			c.checkClassWeight(x, c.Opt(2))
			if w := c.Opt(2); w != nil && w.DType != x.DType {
				c.Fail("expected weight to have type %s but got %s, PyTorch says", x.DType, w.DType)
			}
			if p := c.Args.(*MarginArgs).P; p != 1 && p != 2 {
				c.Fail("p must be 1 or 2, not %d", p)
			}
			var out *Tensor
			each := c.Args.(*MarginArgs).Reduction == "none" && x.Rank() == 2
			if each {
				out = c.grown(x.DType, x.Dim(0))
			} else {
				out = c.grown(x.DType)
			}
			c.contiguous(x)
			c.contiguous(target)
			c.contiguous(c.Opt(2))
			if !each && x.Rank() == 2 {
				c.summed(c.NewShape(x.DType, x.Dim(0)))
			}
			c.Return(out)
		},
		Save: []Save{In(0), In(1), In(2)}, Node: "MultiMarginLossBackward0",
		Grad: func(b *Back) {
			x := b.SavedIn(0)
			b.Set(0, b.grown(x.DType, x.Size.Slice()...))
			b.contiguous(x)
			b.contiguous(b.SavedIn(1))
			b.contiguous(b.Grads[0])
		},
		Eval: aside(func(a Arrays, c *Call) {
			margin := c.Args.(*MarginArgs).margin(a.Get(c.Opt(2)))
			a.Put(c.Out[0], reducedLosses(margin.Losses(a.Array(c.In[0]), a.Get(c.In[1])), c.Args))
		}, func(a Arrays, b *Back) {
			if r := a.Wanted(b, 0); r != nil {
				x, target := a.Array(b.SavedIn(0)), a.Get(b.SavedIn(1))
				margin := b.Args.(*MarginArgs).margin(a.Get(b.SavedIn(2)))
				a.Put(r, margin.Grad(x, target, gradOfLosses(a, b, len(target))))
			}
		}),
		Source: "aten/src/ATen/native/cuda/MultiMarginLoss.cu",
	})
	MultilabelMarginLoss = define(Op{
		Name: "multilabel_margin_loss", Sig: "F.multilabel_margin_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Composite: true,
		Cast: CastFP32, Run: func(c *Call) {
			outs := c.Do(MultilabelMargin, c.Args, c.In...)
			c.Return(outs[0])
			c.Drop(outs[1])
		},
		Source: "aten/src/ATen/native/LossMultiLabelMargin.cpp: multilabel_margin_loss",
	})
	MultilabelMargin = define(Op{
		Name: "multilabel_margin_loss_forward", Indices: classes(-1), Args: &LossArgs{}, Run: func(c *Call) {
			x, target := c.In[0], c.In[1]
			c.classMargin(x)
			if target.DType != tensor.Int64 || target.Size != x.Size {
				c.Fail("target must be int64 of the input's shape %v, not %v of shape %v", x.Size, target.DType, target.Size)
			}
			c.contiguous(x)
			c.contiguous(target)
			is := c.grown(x.DType, x.Size.Slice()...)
			var out *Tensor
			switch {
			case x.Rank() == 1:
				out = c.grown(x.DType)
			case c.Args.(*LossArgs).Reduction == "none":
				out = c.grown(x.DType, x.Dim(0))
			default:
				each := c.NewShape(x.DType, x.Dim(0))
				out = c.grown(x.DType)
				c.summed(each)
			}
			c.Return(out, is)
		},
		Save: []Save{In(0), In(1), Out(1)}, NoGrad: []int{1}, Node: "MultilabelMarginLossBackward0",
		Grad: func(b *Back) {
			x := b.SavedIn(0)
			b.Set(0, b.NewShape(x.DType, x.Size.Slice()...))
			b.contiguous(x)
			b.contiguous(b.SavedIn(1))
			b.contiguous(b.Grads[0])
		},
		Eval: aside(func(a Arrays, c *Call) {
			losses, is := array.Multilabel(a.Array(c.In[0]), a.Get(c.In[1]))
			a.Put(c.Out[0], reducedLosses(losses, c.Args))
			a.Put(c.Out[1], is)
		}, func(a Arrays, b *Back) {
			if r := a.Wanted(b, 0); r != nil {
				x := a.Array(b.SavedIn(0))
				rows := len(x.V) / x.Size[len(x.Size)-1]
				a.Put(r, array.MultilabelGrad(x, a.Get(b.SavedIn(1)), gradOfLosses(a, b, rows)))
			}
		}),
		Source: "aten/src/ATen/native/cuda/MultiLabelMarginCriterion.cu",
	})
)

// classMargin checks the input of a loss of margins between classes.
func (c *Call) classMargin(x *Tensor) {
	if x.Rank() < 1 || x.Rank() > 2 || x.Numel() == 0 {
		c.Fail("the input must be (classes) or (batch, classes), not of shape %v", x.Size)
	}
}

// summed is what it takes to sum the losses of all rows into a scalar that
// exists; they die.
func (c *Call) summed(each *Tensor) {
	reduceScratch(c, each, []bool{true}, each.DType.Accumulate().Size(), 4)
	c.Drop(each)
}

// SoftMarginLoss works in place on one tensor of the input's shape, whose
// storage the scalar keeps.
var SoftMarginLoss = define(Op{
	Name: "soft_margin_loss", Takes: (*Call).floats, Sig: "F.soft_margin_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: CastFP32, Run: func(c *Call) {
		x := c.In[0]
		c.sameShape(x, c.In[1])
		out := c.NewLike(x)
		if c.Args.(*LossArgs).Reduction != "none" {
			c.Drop(c.reduceLoss(out))
			scalar := c.Alias(out, tensor.Contiguous(tensor.D()), x.DType)
			c.Drop(out)
			out = scalar
		}
		c.Return(out)
	},
	Save: []Save{In(0), In(1)}, Node: "SoftMarginLossBackward0",
	Grad: func(b *Back) { // z = exp(-target * input); target * z, then in place
		minus := b.NewLike(b.SavedIn(1))
		product := b.Do1(MulTensor, nil, minus, b.SavedIn(0))
		z := b.Local(b.NewLike(product))
		b.Drop(product, minus)
		b.Set(0, b.New(b.elementwise(b.SavedIn(1), z), b.SavedIn(0).DType))
	},
	Eval: criterion{
		inputs: 2,
		of:     func(x []float64, _ any) float64 { return array.Softplus(-x[1] * x[0]) },
		slopes: func(x []float64, _ any) (float64, float64) { return -x[1] * array.Logistic(-x[1]*x[0]), 0 }, // it has none by the target
	}.eval(),
	Source: "aten/src/ATen/native/Loss.cpp: soft_margin_loss_out, soft_margin_loss_backward_out",
})

// MultilabelSoftMarginLoss is composed in Python.
var MultilabelSoftMarginLoss = define(Op{
	Name: "multilabel_soft_margin_loss", Sig: "F.multilabel_soft_margin_loss(input, target, weight: tensor? = None, *, " + lossSig + ")",
	Args: &LossArgs{}, Composite: true, Run: func(c *Call) {
		x, target := c.In[0], c.In[1]
		c.sameShape(x, target)
		if x.Rank() == 0 {
			c.Fail("the input needs a dimension of classes; it is a single number")
		}
		c.broadcastWeight(x, c.Opt(2), "weight")
		likely := func(factor, input *Tensor) *Tensor { // factor * logsigmoid(input)
			log := c.Do1(LogSigmoid, nil, input)
			defer c.Drop(log)
			return c.Do1(Mul, &BinaryArgs{}, factor, log)
		}
		yes := likely(target, x)
		rest := c.Do1(Sub, &BinaryArgs{Left: Number{Set: true, Value: 1}}, target)
		minus := c.Do1(Neg, nil, x)
		log := c.Do1(LogSigmoid, nil, minus)
		c.Drop(minus)
		no := c.Do1(Mul, &BinaryArgs{}, rest, log)
		c.Drop(rest, log)
		sum := c.Do1(Add, &BinaryArgs{}, yes, no)
		c.Drop(yes, no)
		loss := c.Do1(Neg, nil, sum)
		c.Drop(sum)
		if w := c.Opt(2); w != nil {
			weighted := c.Do1(Mul, &BinaryArgs{}, loss, w)
			c.Drop(loss)
			loss = weighted
		}
		classes := c.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, loss)
		each := c.Local(c.scaled(Div, classes, float64(x.Dim(-1))))
		c.Drop(classes, loss)
		c.Return(c.reduceLoss(each))
	},
	Source: "torch/nn/functional.py: multilabel_soft_margin_loss",
})
