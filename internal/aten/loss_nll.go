package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// NLLLoss is the negative log likelihood of (N, C) or (N, C, ...) inputs. What
// autocast converts is what it calls: after targets without gaps are made.
var NLLLoss = define(op.Op{
	Name: "nll_loss_nd", Args: &LossArgs{}, Composite: true,
	Sig: "F.nll_loss(input, target, weight: tensor? = None, *, ignore_index: int = -100, " + lossSig + ")",
	Run: func(c *op.Call) {
		x, target := c.In[0], c.In[1]
		want := tensor.D()
		if x.Rank() > 1 {
			want = x.Size.Remove(1)
		}
		if target.Size != want {
			c.Fail("target of shape %v does not fit input of shape %v; it must have shape %v", target.Size, x.Size, want)
		}
		if target.DType != tensor.Int64 && target.DType != tensor.Uint8 {
			c.Fail("target must be int64, not %v", target.DType)
		}
		checkClassWeight(c, x, c.Opt(2))
		switch x.Rank() {
		case 1, 2:
			c.Return(c.Do1(NLLLossOf, c.Args, x, target, c.Opt(2)))
		case 4:
			c.Return(c.Do1(nllLoss2d, c.Args, x, target, c.Opt(2)))
		default:
			nllSpatial(c, x, target)
		}
	},
	Source: "aten/src/ATen/native/LossNLL.cpp: nll_loss_nd",
})

// checkClassWeight refuses an input without a dimension of classes, and a
// weight that is not one number for each class.
func checkClassWeight(c *op.Call, x, weight *op.Tensor) {
	if x.Rank() == 0 {
		c.Fail("the input needs a dimension of classes; it is a single number")
	}
	classes := x.Dim(min(1, x.Rank()-1))
	if weight != nil && weight.Size != tensor.D(classes) {
		c.Fail("weight of shape %v is not one number for each of %d classes", weight.Size, classes)
	}
}

// nllOf defines a loss of one kernel, which returns the loss and drops the sum of
// the weights, which autograd keeps.
func nllOf(name string, forward *op.Op) *op.Op {
	return define(op.Op{
		Name: name, Args: &LossArgs{}, Composite: true, Cast: op.CastFP32, Run: func(c *op.Call) {
			outs := c.Do(forward, c.Args, c.In[0], c.In[1], c.Opt(2))
			c.Return(outs[0])
			c.Drop(outs[1])
		},
		Source: "aten/src/ATen/native/LossNLL.cpp: nll_loss, nll_loss2d; aten/src/ATen/autocast_mode.h: AT_FORALL_FP32",
	})
}

// nllSpatial views other numbers of dimensions as images of height 1.
func nllSpatial(c *op.Call, x, target *op.Tensor) {
	view := func(t *op.Tensor, shape ...int64) *op.Tensor {
		rows := c.Do1(Contiguous, nil, t)
		v := c.Local(c.Do1(View, &ShapeArgs{Shape: shape}, rows))
		c.Drop(rows)
		return v
	}
	if x.Numel() == 0 {
		c.Fail("a loss of no elements is not modelled")
	}
	size := target.Size
	x = view(x, x.Dim(0), x.Dim(1), 1, -1)
	target = view(target, target.Dim(0), 1, -1)
	c.Return(c.Do1(nllLoss2d, c.Args, x, target, c.Opt(2)))
	if out := c.Out[0]; c.Args.(*LossArgs).Reduction == "none" {
		c.Out[0] = c.Do1(View, &ShapeArgs{Shape: size.Slice()}, out)
		c.Drop(out)
	}
}

// The functions of (N, C) and of images, and their kernels.
var (
	NLLLossOf = nllOf("nll_loss", NLLLossForward)
	nllLoss2d = nllOf("nll_loss2d", NLLLoss2dForward)

	NLLLossForward = define(op.Op{
		Name: "nll_loss_forward", Indices: op.Classes(-1), Args: &LossArgs{}, Eval: evalNLL, Run: func(c *op.Call) {
			x, weight := c.In[0], c.Opt(2)
			if c.Args.(*LossArgs).Reduction == "none" && x.Rank() == 2 {
				out := c.NewShape(x.DType, x.Dim(0))
				c.Return(out, c.NewShape(x.DType))
				return
			}
			c.Return(c.NewShape(x.DType), c.NewShape(x.DType))
			c.Contiguous(x)
			c.Contiguous(c.In[1])
			c.Contiguous(weight)
		},
		Save: []op.Save{op.In(0), op.In(1), op.In(2), op.Out(1)}, NoGrad: []int{1}, Node: "NllLossBackward0",
		Grad:   gradNLL,
		Source: "aten/src/ATen/native/cuda/Loss.cu",
	})
	NLLLoss2dForward = define(op.Op{
		Name: "nll_loss2d_forward", Indices: op.Classes(1), Args: &LossArgs{}, Eval: evalNLL, Run: func(c *op.Call) {
			x := c.In[0]
			none := c.Args.(*LossArgs).Reduction == "none"
			if c.Env().Deterministic && !none {
				c.Fail("this loss over more than two dimensions has no deterministic form in PyTorch; it would raise an error")
			}
			total := c.Grown(x.DType) // resized before the loss is
			if none {
				c.Return(c.Grown(x.DType, x.Dim(0), x.Dim(2), x.Dim(3)), total)
				return
			}
			c.Return(c.Grown(x.DType), total)
			c.Contiguous(x)
			c.Contiguous(c.In[1])
		},
		Save: []op.Save{op.In(0), op.In(1), op.In(2), op.Out(1)}, NoGrad: []int{1}, Node: "NllLoss2DBackward0",
		Grad:   gradNLL,
		Source: "aten/src/ATen/native/cuda/NLLLoss2d.cu",
	})
)

// gradNLL scatters into zeros in row-major order. The kernels want a row-major
// target with a reduction, and without one, for rows, a row-major gradient.
func gradNLL(b *op.Back) {
	x := b.SavedIn(0)
	b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
	switch {
	case b.Args.(*LossArgs).Reduction != "none":
		b.Contiguous(b.SavedIn(1))
	case x.Rank() == 2:
		b.Contiguous(b.Grads[0])
	}
}

// CrossEntropy is log_softmax and nll_loss; the log-probabilities are what
// stays for the backward pass.
var CrossEntropy = define(op.Op{
	Name: "cross_entropy", Args: &LossArgs{}, Composite: true,
	Sig: "F.cross_entropy(input, target, weight: tensor? = None, *, ignore_index: int = -100, " + lossSig + ", label_smoothing: float = 0.0)",
	Run: func(c *op.Call) {
		x, target, a := c.In[0], c.In[1], c.Args.(*LossArgs)
		if a.LabelSmoothing < 0 || a.LabelSmoothing > 1 {
			c.Fail("label_smoothing must be between 0 and 1, not %v", a.LabelSmoothing)
		}
		checkClassWeight(c, x, c.Opt(2))
		class := min(1, x.Rank()-1)
		logp := c.Do1(LogSoftmax, &SoftmaxArgs{Dim: class, DType: &x.DType}, x)
		switch {
		case target.Size == x.Size:
			if !target.DType.IsFloating() {
				c.Fail("class probabilities as the target must be of a floating type, not %v", target.DType)
			}
			probTarget(c, logp, target, class)
		case a.LabelSmoothing > 0:
			smoothed(c, logp, target, class)
		default:
			c.Return(c.Do1(NLLLoss, a, logp, target, c.Opt(2)))
		}
		c.Drop(logp)
	},
	Source: "aten/src/ATen/native/LossNLL.cpp: cross_entropy_loss",
})

// classWeight views the weight so that it broadcasts along the classes of x.
func classWeight(c *op.Call, x, weight *op.Tensor, class int) *op.Tensor {
	shape := make([]int64, x.Rank())
	for i := range shape {
		shape[i] = 1
	}
	shape[class] = -1
	return c.Do1(View, &ShapeArgs{Shape: shape}, weight)
}

// scaled is t * number, t / number, or another operator between the two.
func scaled(c *op.Call, r *op.Op, t *op.Tensor, number float64) *op.Tensor {
	return c.Do1(r, float(number), t)
}

// float is a number of Python's type float on the right-hand side of an operator.
func float(v float64) *BinaryArgs {
	return &BinaryArgs{Other: op.Number{Set: true, Float: true, Value: v}}
}

// probTarget is the loss against class probabilities
// (cross_entropy_loss_prob_target).
func probTarget(c *op.Call, logp, target *op.Tensor, class int) {
	a := c.Args.(*LossArgs)
	target = c.Keep(target)
	if a.LabelSmoothing > 0 { // target * (1 - smoothing) + smoothing / classes
		mixed := scaled(c, Mul, target, 1-a.LabelSmoothing)
		c.Drop(target)
		target = scaled(c, Add, mixed, a.LabelSmoothing/float64(logp.Dim(class)))
		c.Drop(mixed)
	}
	weight := c.Opt(2)
	if weight != nil {
		weight = classWeight(c, logp, weight, class)
	}
	// -(input * target * weight).sum() / rows: what is made here lives to the
	// end of the expression and goes in the reverse order.
	temps := []*op.Tensor{c.Do1(Mul, &BinaryArgs{}, logp, target)}
	last := func(t *op.Tensor) { temps = append(temps, t) }
	if weight != nil {
		last(c.Do1(Mul, &BinaryArgs{}, temps[0], weight))
	}
	dims := &ReduceArgs{}
	if a.Reduction == "none" {
		dims.Dim = []int64{int64(class)}
	}
	last(c.Do1(Sum, dims, temps[len(temps)-1]))
	last(c.Do1(Neg, nil, temps[len(temps)-1]))
	if a.Reduction == "mean" {
		last(scaled(c, Div, temps[len(temps)-1], float64(logp.Numel()/max(logp.Dim(class), 1))))
	}
	c.Return(temps[len(temps)-1])
	for i := len(temps) - 2; i >= 0; i-- {
		c.Drop(temps[i])
	}
	c.Drop(weight, target)
}

// smoothed mixes the loss of the target class with that of all classes equally
// (cross_entropy_loss_label_smoothing). C++ computes the right-hand side of an
// operator first.
func smoothed(c *op.Call, logp, target *op.Tensor, class int) {
	a, weight := c.Args.(*LossArgs), c.Opt(2)
	if weight != nil && a.Reduction == "mean" {
		c.Fail("label_smoothing with weight and reduction 'mean' is not modelled: the number of targets that it selects depends on the data")
	}
	nll := c.Do1(NLLLoss, a, logp, target, weight)
	dims := &ReduceArgs{Dim: []int64{int64(class)}}
	var smooth *op.Tensor
	if weight == nil {
		sum := c.Do1(Sum, dims, logp)
		smooth = c.Do1(Neg, nil, sum)
		c.Drop(sum)
	} else {
		weight = classWeight(c, logp, weight, class)
		weighted := c.Do1(Mul, &BinaryArgs{}, logp, weight)
		sum := c.Do1(Sum, dims, weighted)
		smooth = c.Do1(Neg, nil, sum)
		c.Drop(sum, weighted, weight)
	}
	ignored := c.Do1(Equal, &BinaryArgs{Other: op.Number{Set: true, Value: float64(a.IgnoreIndex)}}, target)
	c.Drop(c.Do1(FillByMask, nil, smooth, ignored))

	var ret *op.Tensor
	switch a.Reduction {
	case "mean": // smooth.sum() / (~ignored).sum()
		kept := c.Do1(BitwiseNot, nil, ignored)
		n := c.Do1(Sum, &ReduceArgs{}, kept)
		sum := c.Do1(Sum, &ReduceArgs{}, smooth)
		ret = c.Do1(Div, &BinaryArgs{}, sum, n)
		c.Drop(sum, n, kept)
	case "sum":
		ret = c.Do1(Sum, &ReduceArgs{}, smooth)
	default:
		ret = c.Keep(smooth)
	}
	even := scaled(c, Mul, ret, a.LabelSmoothing/float64(logp.Dim(class)))
	hard := scaled(c, Mul, nll, 1-a.LabelSmoothing)
	c.Return(c.Do1(Add, &BinaryArgs{}, hard, even))
	c.Drop(hard, even, ret, ignored, smooth, nll)
}

// reductions are those of losses as kernels number them.
var reductions = map[string]int64{"none": kernel.ReduceNone, "mean": kernel.ReduceMean, "sum": kernel.ReduceSum}

// seenClasses adds the input of nll_loss as [N, C, S].
func seenClasses(l *op.Launch, t *op.Tensor) {
	switch t.Rank() {
	case 1:
		l.Seen(t, 1, t.Dim(0), 1)
	case 2:
		l.Seen(t, t.Dim(0), t.Dim(1), 1)
	default:
		images(l, t)
	}
}

// targets adds the target of nll_loss, or a loss of each, as [N, S].
func targets(l *op.Launch, t *op.Tensor) {
	if t.Rank() == 0 {
		l.Seen(t, 1, 1)
		return
	}
	l.Seen(t, t.Dim(0), t.Numel()/max(t.Dim(0), 1))
}

// losses adds the result of a loss, or its gradient.
func losses(l *op.Launch, t *op.Tensor, a *LossArgs) {
	if a.Reduction == "none" {
		targets(l, t)
		return
	}
	l.Seen(t, 1, 1)
}

// evalNLL is nll_loss. Its kernels take indices of int64.
var evalNLL = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		if c.In[1].DType != tensor.Int64 {
			return op.ErrView
		}
		a := c.Args.(*LossArgs)
		l := op.Launch{On: m}
		losses(&l, c.Out[0], a)
		l.Seen(c.Out[1], 1)
		seenClasses(&l, c.In[0])
		targets(&l, c.In[1])
		l.Add(c.Opt(2))
		return l.Run(kernel.NLLLoss, []int64{reductions[a.Reduction], a.IgnoreIndex})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		if b.SavedIn(1).DType != tensor.Int64 {
			return op.ErrView
		}
		a := b.Args.(*LossArgs)
		l := op.Launch{On: m}
		seenClasses(&l, b.Results[0])
		losses(&l, b.Grads[0], a)
		targets(&l, b.SavedIn(1))
		l.Add(b.SavedIn(2))
		l.Seen(b.SavedOut(1), 1)
		return l.Run(kernel.NLLLossGrad, []int64{reductions[a.Reduction], a.IgnoreIndex})
	},
}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
	args, x, target := c.Args.(*LossArgs), a.Get(c.In[0]), a.Get(c.In[1])
	losses, total := make([]float64, len(target)), 0.0
	err := array.Likelihood(c.In[0].Size.Ints(), target, a.Get(c.Opt(2)), args.IgnoreIndex, func(i, at int, w float64) {
		losses[i] = -w * x[at]
		total += w
	})
	if err != nil {
		a.Fail(err)
	}
	if args.Reduction != "none" {
		sum := 0.0
		for _, v := range losses {
			sum += v
		}
		if args.Reduction == "mean" {
			sum /= total
		}
		losses = []float64{sum}
	}
	a.Put(c.Out[0], losses)
	a.Put(c.Out[1], []float64{total})
}, func(a op.Arrays, b *op.Back) {
	r := a.Wanted(b, 0)
	if r == nil {
		return
	}
	args, g := b.Args.(*LossArgs), a.Get(b.Grads[0])
	out, scale := make([]float64, r.Numel()), 1.0
	if args.Reduction == "mean" {
		scale = 1 / a.Get(b.SavedOut(1))[0]
	}
	err := array.Likelihood(r.Size.Ints(), a.Get(b.SavedIn(1)), a.Get(b.SavedIn(2)), args.IgnoreIndex, func(i, at int, w float64) {
		out[at] = -w * scale * g[i%len(g)]
	})
	if err != nil {
		a.Fail(err)
	}
	a.Put(r, out)
}))
