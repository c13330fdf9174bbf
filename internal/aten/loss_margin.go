package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// The losses of distances between embeddings. Both are made of operators in
// C++; what an expression makes goes in reverse order at its end.
var (
	TripletMarginLoss = define(op.Op{
		Name: "triplet_margin_loss", Args: &LossArgs{}, Cast: op.CastFP32, Composite: true,
		Sig: "F.triplet_margin_loss(anchor, positive, negative, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, *, " + lossSig + ")",
		Run: func(c *op.Call) {
			a := c.Args.(*LossArgs)
			for _, t := range c.In[1:] {
				sameShape(c, c.In[0], t)
			}
			near := pairwiseDistance(c, c.In[0], c.In[1], a.P, a.Eps, false)
			far := pairwiseDistance(c, c.In[0], c.In[2], a.P, a.Eps, false)
			if a.Swap {
				swapped := pairwiseDistance(c, c.In[1], c.In[2], a.P, a.Eps, false)
				least := c.Do1(Minimum, nil, far, swapped)
				c.Drop(far, swapped)
				far = least
			}
			sum := scaled(c, Add, near, a.Margin)
			diff := c.Do1(Sub, &BinaryArgs{}, sum, far)
			out := c.Do1(ClampMin, atLeast(0), diff) // clamp_min(margin + near - far, 0)
			c.Drop(diff, sum)
			c.Return(reduceLoss(c, out))
			c.Drop(out, far, near)
		},
		Source: "aten/src/ATen/native/Loss.cpp: triplet_margin_loss",
	})
	TripletMarginWithDistanceLoss = define(op.Op{ // of pairwise_distance, the default
		Name: "triplet_margin_with_distance_loss", Args: &LossArgs{}, Composite: true,
		Sig: "F.triplet_margin_with_distance_loss(anchor, positive, negative, *, margin: float = 1.0, swap: bool = False, " + lossSig + ")",
		Run: func(c *op.Call) {
			a := c.Args.(*LossArgs)
			const eps = 1e-6 // of pairwise_distance, by default
			near := c.Local(pairwiseDistance(c, c.In[0], c.In[1], 2, eps, false))
			far := pairwiseDistance(c, c.In[0], c.In[2], 2, eps, false)
			var swapped *op.Tensor
			if a.Swap {
				swapped = pairwiseDistance(c, c.In[1], c.In[2], 2, eps, false)
				least := c.Do1(Minimum, nil, far, swapped)
				c.Drop(far)
				far = least
			}
			sum := scaled(c, Add, near, a.Margin)
			diff := c.Do1(Sub, &BinaryArgs{}, sum, far)
			c.Drop(sum)
			loss := c.Do1(ClampMin, atLeast(0), diff)
			c.Drop(diff)
			c.Return(reduceLoss(c, loss))
			c.Early(near)
			c.Drop(far, swapped, loss)
		},
		Source: "torch/nn/functional.py: triplet_margin_with_distance_loss",
	})
	CosineEmbeddingLoss = define(op.Op{
		Name: "cosine_embedding_loss", Args: &LossArgs{}, Cast: op.CastFP32, Composite: true,
		Sig:    "F.cosine_embedding_loss(input1, input2, target, margin: float = 0.0, *, " + lossSig + ")",
		Run:    cosineEmbeddingLoss,
		Source: "aten/src/ATen/native/Loss.cpp: cosine_embedding_loss",
	})
)

// pairwiseDistance is norm(x - y + eps, p) over the last dimension.
func pairwiseDistance(c *op.Call, x, y *op.Tensor, p, eps float64, keepDim bool) *op.Tensor {
	diff := c.Do1(Sub, &BinaryArgs{}, x, y)
	moved := scaled(c, Add, diff, eps)
	norm := c.Do1(Norm, &NormArgs{P: &p, ReduceArgs: ReduceArgs{Dim: []int64{-1}, KeepDim: keepDim}}, moved)
	c.Drop(moved, diff)
	return norm
}

func cosineEmbeddingLoss(c *op.Call) {
	x, y, target := c.In[0], c.In[1], c.In[2]
	if target.Rank() > 1 || x.Rank() != target.Rank()+1 || (target.Rank() == 1 && target.Dim(0) != x.Dim(0)) {
		c.Fail("target of shape %v does not fit inputs of shape %v; it has one number for each row", target.Size, x.Size)
	}
	sameShape(c, x, y)
	dims := &ReduceArgs{Dim: []int64{int64(target.Rank())}}
	dot := func(x, y *op.Tensor) *op.Tensor {
		product := c.Do1(Mul, &BinaryArgs{}, x, y)
		sum := c.Do1(Sum, dims, product)
		c.Drop(product)
		return sum
	}
	square := func(x *op.Tensor) *op.Tensor { // (x * x).sum() + epsilon
		product := c.Do1(Mul, &BinaryArgs{}, x, x)
		sum := c.Do1(Sum, dims, product)
		const epsilon = 1e-12
		out := scaled(c, Add, sum, epsilon)
		c.Drop(sum, product)
		return out
	}
	prod, mag1, mag2 := dot(x, y), square(x), square(y)
	denom := c.Do1(Mul, &BinaryArgs{}, mag1, mag2)
	c.Drop(c.Do1(SqrtOfLoss, nil, denom))
	cos := c.Do1(Div, &BinaryArgs{}, prod, denom)
	zeros := c.Do1(Zeros, &FillArgs{Size: cos.Size.Slice(), DType: &cos.DType})
	pos := c.Do1(Sub, &BinaryArgs{Left: op.Number{Set: true, Value: 1}}, cos) // 1 - cos
	neg := scaled(c, Sub, cos, c.Args.(*LossArgs).Margin)
	c.Drop(c.Do1(ClampMinInPlace, atLeast(0), neg))
	where := func(sign float64, t *op.Tensor) *op.Tensor {
		is := c.Do1(Equal, &BinaryArgs{Other: op.Number{Set: true, Value: sign}}, target)
		out := c.Do1(WhereSelf, nil, is, t, zeros)
		c.Drop(is)
		return out
	}
	outPos := where(1, pos)
	outNeg := where(-1, neg)
	out := c.Do1(Add, &BinaryArgs{}, outPos, outNeg)
	c.Return(reduceLoss(c, out))
	c.Drop(out, outNeg, outPos, neg, pos, zeros, cos, denom, mag2, mag1, prod)
}

// The losses of margins that C++ composes of operators.
var (
	HingeEmbeddingLoss = define(op.Op{
		Name: "hinge_embedding_loss", Takes: op.Floats, Args: &LossArgs{}, Cast: op.CastFP32, Composite: true,
		Sig: "F.hinge_embedding_loss(input, target, margin: float = 1.0, *, " + lossSig + ")",
		Run: func(c *op.Call) {
			x, target := c.In[0], c.In[1]
			sameShape(c, x, target)
			zeros := c.Local(c.Do1(Zeros, &FillArgs{Size: x.Size.Slice(), DType: &x.DType}))
			diff := c.Local(c.Do1(Sub, &BinaryArgs{Left: op.Number{Set: true, Float: true, Value: c.Args.(*LossArgs).Margin}}, x))
			c.Drop(c.Do1(ClampMinInPlace, atLeast(0), diff))
			pick := func(not float64, t *op.Tensor) *op.Tensor {
				is := c.Do1(NotEqual, &BinaryArgs{Other: op.Number{Set: true, Value: not}}, target)
				defer c.Drop(is)
				return c.Local(c.Do1(WhereSelf, nil, is, t, zeros))
			}
			far := pick(1, diff)
			near := pick(-1, x)
			out := c.Local(c.Do1(Add, &BinaryArgs{}, far, near))
			c.Return(reduceLoss(c, out))
		},
		Source: "aten/src/ATen/native/Loss.cpp: hinge_embedding_loss",
	})
	MarginRankingLoss = define(op.Op{
		Name: "margin_ranking_loss", Args: &LossArgs{}, Cast: op.CastFP32, Composite: true,
		Sig: "F.margin_ranking_loss(input1, input2, target, margin: float = 0.0, *, " + lossSig + ")",
		Run: func(c *op.Call) { // (-target * (input1 - input2) + margin).clamp_min_(0)
			mark := c.Mark()
			diff := c.Local(c.Do1(Sub, &BinaryArgs{}, c.In[0], c.In[1]))
			minus := c.Local(c.Do1(Neg, nil, c.In[2]))
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, minus, diff))
			out := scaled(c, Add, product, c.Args.(*LossArgs).Margin)
			c.DropTo(mark)
			c.Local(out)
			c.Drop(c.Do1(ClampMinInPlace, atLeast(0), out))
			c.Return(reduceLoss(c, out))
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
	MultiMarginLoss = define(op.Op{
		Name: "multi_margin_loss", Indices: op.Classes(-1), Args: &MarginArgs{}, Cast: op.CastFP32,
		Sig: "F.multi_margin_loss(input, target, p: int = 1, margin: float = 1.0, weight: tensor? = None, *, " + lossSig + ")",
		Run: func(c *op.Call) {
			x, target := c.In[0], c.In[1]
			classMargin(c, x)
			if rows := x.Size.Remove(x.Rank() - 1); target.DType != tensor.Int64 || target.Size != rows {
				c.Fail("target must be int64 of shape %v, not %v of shape %v", rows, target.DType, target.Size)
			}
			checkClassWeight(c, x, c.Opt(2))
			if w := c.Opt(2); w != nil && w.DType != x.DType {
				c.Fail("expected weight to have type %s but got %s, PyTorch says", x.DType, w.DType)
			}
			if p := c.Args.(*MarginArgs).P; p != 1 && p != 2 {
				c.Fail("p must be 1 or 2, not %d", p)
			}
			var out *op.Tensor
			each := c.Args.(*MarginArgs).Reduction == "none" && x.Rank() == 2
			if each {
				out = c.Grown(x.DType, x.Dim(0))
			} else {
				out = c.Grown(x.DType)
			}
			c.Contiguous(x)
			c.Contiguous(target)
			c.Contiguous(c.Opt(2))
			if !each && x.Rank() == 2 {
				summed(c, c.NewShape(x.DType, x.Dim(0)))
			}
			c.Return(out)
		},
		Save: []op.Save{op.In(0), op.In(1), op.In(2)}, Node: "MultiMarginLossBackward0",
		Grad: func(b *op.Back) {
			x := b.SavedIn(0)
			b.Set(0, b.Grown(x.DType, x.Size.Slice()...))
			b.Contiguous(x)
			b.Contiguous(b.SavedIn(1))
			b.Contiguous(b.Grads[0])
		},
		Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
			margin := c.Args.(*MarginArgs).margin(a.Get(c.Opt(2)))
			a.Put(c.Out[0], reducedLosses(margin.Losses(a.Array(c.In[0]), a.Get(c.In[1])), c.Args))
		}, func(a op.Arrays, b *op.Back) {
			if r := a.Wanted(b, 0); r != nil {
				x, target := a.Array(b.SavedIn(0)), a.Get(b.SavedIn(1))
				margin := b.Args.(*MarginArgs).margin(a.Get(b.SavedIn(2)))
				a.Put(r, margin.Grad(x, target, gradOfLosses(a, b, len(target))))
			}
		}),
		Source: "aten/src/ATen/native/cuda/MultiMarginLoss.cu",
	})
	MultilabelMarginLoss = define(op.Op{
		Name: "multilabel_margin_loss", Sig: "F.multilabel_margin_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Composite: true,
		Cast: op.CastFP32, Run: func(c *op.Call) {
			outs := c.Do(MultilabelMargin, c.Args, c.In...)
			c.Return(outs[0])
			c.Drop(outs[1])
		},
		Source: "aten/src/ATen/native/LossMultiLabelMargin.cpp: multilabel_margin_loss",
	})
	MultilabelMargin = define(op.Op{
		Name: "multilabel_margin_loss_forward", Indices: op.Classes(-1), Args: &LossArgs{}, Run: func(c *op.Call) {
			x, target := c.In[0], c.In[1]
			classMargin(c, x)
			if target.DType != tensor.Int64 || target.Size != x.Size {
				c.Fail("target must be int64 of the input's shape %v, not %v of shape %v", x.Size, target.DType, target.Size)
			}
			c.Contiguous(x)
			c.Contiguous(target)
			is := c.Grown(x.DType, x.Size.Slice()...)
			var out *op.Tensor
			switch {
			case x.Rank() == 1:
				out = c.Grown(x.DType)
			case c.Args.(*LossArgs).Reduction == "none":
				out = c.Grown(x.DType, x.Dim(0))
			default:
				each := c.NewShape(x.DType, x.Dim(0))
				out = c.Grown(x.DType)
				summed(c, each)
			}
			c.Return(out, is)
		},
		Save: []op.Save{op.In(0), op.In(1), op.Out(1)}, NoGrad: []int{1}, Node: "MultilabelMarginLossBackward0",
		Grad: func(b *op.Back) {
			x := b.SavedIn(0)
			b.Set(0, b.NewShape(x.DType, x.Size.Slice()...))
			b.Contiguous(x)
			b.Contiguous(b.SavedIn(1))
			b.Contiguous(b.Grads[0])
		},
		Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
			losses, is := array.Multilabel(a.Array(c.In[0]), a.Get(c.In[1]))
			a.Put(c.Out[0], reducedLosses(losses, c.Args))
			a.Put(c.Out[1], is)
		}, func(a op.Arrays, b *op.Back) {
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
func classMargin(c *op.Call, x *op.Tensor) {
	if x.Rank() < 1 || x.Rank() > 2 || x.Numel() == 0 {
		c.Fail("the input must be (classes) or (batch, classes), not of shape %v", x.Size)
	}
}

// summed is what it takes to sum the losses of all rows into a scalar that
// exists; they are freed.
func summed(c *op.Call, each *op.Tensor) {
	reduceScratch(c, each, []bool{true}, each.DType.Accumulate().Size(), 4)
	c.Drop(each)
}

// SoftMarginLoss works in place on one tensor of the input's shape, whose
// storage the scalar keeps.
var SoftMarginLoss = define(op.Op{
	Name: "soft_margin_loss", Takes: op.Floats, Sig: "F.soft_margin_loss(input, target, *, " + lossSig + ")", Args: &LossArgs{}, Cast: op.CastFP32, Run: func(c *op.Call) {
		x := c.In[0]
		sameShape(c, x, c.In[1])
		out := c.NewLike(x)
		if c.Args.(*LossArgs).Reduction != "none" {
			c.Drop(reduceLoss(c, out))
			scalar := c.Alias(out, tensor.Contiguous(tensor.D()), x.DType)
			c.Drop(out)
			out = scalar
		}
		c.Return(out)
	},
	Save: []op.Save{op.In(0), op.In(1)}, Node: "SoftMarginLossBackward0",
	Grad: func(b *op.Back) { // z = exp(-target * input); target * z, then in place
		minus := b.NewLike(b.SavedIn(1))
		product := b.Do1(MulTensor, nil, minus, b.SavedIn(0))
		z := b.Local(b.NewLike(product))
		b.Drop(product, minus)
		b.Set(0, b.New(b.Elementwise(b.SavedIn(1), z), b.SavedIn(0).DType))
	},
	Eval: criterion{
		inputs: 2,
		of:     func(x []float64, _ any) float64 { return array.Softplus(-x[1] * x[0]) },
		slopes: func(x []float64, _ any) (float64, float64) { return -x[1] * array.Logistic(-x[1]*x[0]), 0 }, // it has none by the target
	}.eval(),
	Source: "aten/src/ATen/native/Loss.cpp: soft_margin_loss_out, soft_margin_loss_backward_out",
})

// MultilabelSoftMarginLoss is composed in Python.
var MultilabelSoftMarginLoss = define(op.Op{
	Name: "multilabel_soft_margin_loss", Sig: "F.multilabel_soft_margin_loss(input, target, weight: tensor? = None, *, " + lossSig + ")",
	Args: &LossArgs{}, Composite: true, Run: func(c *op.Call) {
		x, target := c.In[0], c.In[1]
		sameShape(c, x, target)
		if x.Rank() == 0 {
			c.Fail("the input needs a dimension of classes; it is a single number")
		}
		broadcastWeight(c, x, c.Opt(2), "weight")
		likely := func(factor, input *op.Tensor) *op.Tensor { // factor * logsigmoid(input)
			log := c.Do1(LogSigmoid, nil, input)
			defer c.Drop(log)
			return c.Do1(Mul, &BinaryArgs{}, factor, log)
		}
		yes := likely(target, x)
		rest := c.Do1(Sub, &BinaryArgs{Left: op.Number{Set: true, Value: 1}}, target)
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
		each := c.Local(scaled(c, Div, classes, float64(x.Dim(-1))))
		c.Drop(classes, loss)
		c.Return(reduceLoss(c, each))
	},
	Source: "torch/nn/functional.py: multilabel_soft_margin_loss",
})

// PoissonArgs are the arguments of poisson_nll_loss.
type PoissonArgs struct {
	LossArgs
	LogInput bool    `arg:"log_input"`
	Full     bool    `arg:"full"`
	Eps      float64 `arg:"eps"`
}

// PoissonNLLLoss is exp(input) - target * input, or input - target * log(input +
// eps), and with full Stirling's approximation of the rest.
var PoissonNLLLoss = define(op.Op{
	Name: "poisson_nll_loss", Args: &PoissonArgs{}, Cast: op.CastFP32, Composite: true,
	Sig: "F.poisson_nll_loss(input, target, log_input: bool = True, full: bool = False, *, eps: float = 1e-08, " + lossSig + ")",
	Run: func(c *op.Call) {
		x, target, a := c.In[0], c.In[1], c.Args.(*PoissonArgs)
		sameShape(c, x, target)
		mark := c.Mark()
		var loss *op.Tensor
		if a.LogInput {
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, x))
			exp := c.Local(c.Do1(Exp, nil, x))
			loss = c.Do1(Sub, &BinaryArgs{}, exp, product)
		} else {
			sum := c.Local(scaled(c, Add, x, a.Eps))
			log := c.Local(c.Do1(Log, nil, sum))
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, log))
			loss = c.Do1(Sub, &BinaryArgs{}, x, product)
		}
		c.DropTo(mark)
		if a.Full {
			stirling(c, loss, target)
		}
		c.Local(loss)
		c.Return(reduceLoss(c, loss))
	},
	Source: "aten/src/ATen/native/Loss.cpp: poisson_nll_loss",
})

// stirling adds target * log(target) - target + 0.5 * log(2 * pi * target), where
// target is more than 1.
func stirling(c *op.Call, loss, target *op.Tensor) {
	mark := c.Mark()
	circle := c.Local(scaled(c, Mul, target, 2*math.Pi))
	logCircle := c.Local(c.Do1(Log, nil, circle))
	half := c.Local(scaled(c, Mul, logCircle, 0.5))
	log := c.Local(c.Do1(Log, nil, target))
	product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, log))
	diff := c.Local(c.Do1(Sub, &BinaryArgs{}, product, target))
	term := c.Do1(Add, &BinaryArgs{}, diff, half)
	c.DropTo(mark)
	c.Local(term)
	small := c.Local(c.Do1(LessEqual, &BinaryArgs{Other: op.Number{Set: true, Value: 1}}, target))
	filled := c.Local(c.Do1(MaskedFill, nil, term, small))
	c.Drop(c.Do1(AddInPlace, &AddArgs{}, loss, filled))
	c.DropTo(mark)
}

// GaussianArgs are the arguments of gaussian_nll_loss.
type GaussianArgs struct {
	LossArgs
	Full bool    `arg:"full"`
	Eps  float64 `arg:"eps"`
}

// GaussianNLLLoss looks whether a variance is negative, which waits for the GPU,
// and clamps a clone of the variances outside of autograd.
var GaussianNLLLoss = define(op.Op{
	Name: "gaussian_nll_loss", Args: &GaussianArgs{}, Composite: true,
	Sig: "F.gaussian_nll_loss(input, target, var, full: bool = False, eps: float = 1e-06, " + lossSig + ")",
	Run: func(c *op.Call) {
		x, target, v, a := c.In[0], c.In[1], c.In[2], c.Args.(*GaussianArgs)
		sameShape(c, x, target)
		below := c.Do1(Less, &BinaryArgs{Other: op.Number{Set: true}}, v)
		any := c.Do1(Any, &ReduceArgs{}, below)
		c.Drop(below, any)
		v = c.Keep(v)
		switch n := x.Rank(); {
		case v.Size == x.Size:
		case n > 0 && v.Size == x.Size.Remove(n-1):
			wide := c.Do1(Unsqueeze, &DimArgs{Dim: -1}, v)
			c.Drop(v)
			v = wide
		case n == 0 || v.Rank() != n || v.Size != x.Size.Set(n-1, 1):
			c.Fail("var of shape %v does not fit input of shape %v", v.Size, x.Size)
		}
		clone := c.Do1(Clone, nil, v)
		c.Drop(v)
		v = clone
		c.WithoutGrad(func() { c.Drop(c.Do1(ClampMinInPlace, atLeast(a.Eps), v)) })
		log := c.Do1(Log, nil, v)
		diff := c.Do1(Sub, &BinaryArgs{}, x, target)
		square := c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Value: 2}}, diff)
		c.Drop(diff)
		share := c.Do1(Div, &BinaryArgs{}, square, v)
		c.Drop(square)
		sum := c.Do1(Add, &BinaryArgs{}, log, share)
		c.Drop(log, share)
		loss := scaled(c, Mul, sum, 0.5)
		c.Drop(sum)
		if a.Full {
			c.Drop(c.Do1(AddInPlace, float(0.5*math.Log(2*math.Pi)), loss))
		}
		c.Return(reduceLoss(c, loss))
		c.Drop(v, loss)
	},
	Source: "torch/nn/functional.py: gaussian_nll_loss",
})
