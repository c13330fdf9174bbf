package op

// CrossEntropy is log_softmax and nll_loss; the log-probabilities are what
// stays for the backward pass.
var CrossEntropy = define(Op{
	Name: "cross_entropy", Args: &LossArgs{}, Composite: true,
	Sig: "F.cross_entropy(input, target, weight: tensor? = None, *, ignore_index: int = -100, " + lossSig + ", label_smoothing: float = 0.0)",
	Run: func(c *Call) {
		x, target, a := c.In[0], c.In[1], c.Args.(*LossArgs)
		if a.LabelSmoothing < 0 || a.LabelSmoothing > 1 {
			c.Fail("label_smoothing must be between 0 and 1, not %v", a.LabelSmoothing)
		}
		c.checkClassWeight(x, c.Opt(2))
		class := min(1, x.Rank()-1)
		logp := c.Do1(LogSoftmax, &SoftmaxArgs{Dim: class, DType: &x.DType}, x)
		switch {
		case target.Size == x.Size:
			if !target.DType.IsFloating() {
				c.Fail("class probabilities as the target must be of a floating type, not %v", target.DType)
			}
			c.probTarget(logp, target, class)
		case a.LabelSmoothing > 0:
			c.smoothed(logp, target, class)
		default:
			c.Return(c.Do1(NLLLoss, a, logp, target, c.Opt(2)))
		}
		c.Drop(logp)
	},
	Source: "aten/src/ATen/native/LossNLL.cpp: cross_entropy_loss",
})

// classWeight views the weight so that it broadcasts along the classes of x.
func (c *Call) classWeight(x, weight *Tensor, class int) *Tensor {
	shape := make([]int64, x.Rank())
	for i := range shape {
		shape[i] = 1
	}
	shape[class] = -1
	return c.Do1(View, &ShapeArgs{Shape: shape}, weight)
}

// scaled is t * number, t / number, or another operator between the two.
func (c *Call) scaled(r *Op, t *Tensor, number float64) *Tensor {
	return c.Do1(r, float(number), t)
}

// float is a number of Python's type float on the right-hand side of an operator.
func float(v float64) *BinaryArgs {
	return &BinaryArgs{Other: Number{Set: true, Float: true, Value: v}}
}

// probTarget is the loss against class probabilities
// (cross_entropy_loss_prob_target).
func (c *Call) probTarget(logp, target *Tensor, class int) {
	a := c.Args.(*LossArgs)
	target = c.Keep(target)
	if a.LabelSmoothing > 0 { // target * (1 - smoothing) + smoothing / classes
		mixed := c.scaled(Mul, target, 1-a.LabelSmoothing)
		c.Drop(target)
		target = c.scaled(Add, mixed, a.LabelSmoothing/float64(logp.Dim(class)))
		c.Drop(mixed)
	}
	weight := c.Opt(2)
	if weight != nil {
		weight = c.classWeight(logp, weight, class)
	}
	// -(input * target * weight).sum() / rows: what is made here lives to the
	// end of the expression and goes in the reverse order.
	temps := []*Tensor{c.Do1(Mul, &BinaryArgs{}, logp, target)}
	last := func(t *Tensor) { temps = append(temps, t) }
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
		last(c.scaled(Div, temps[len(temps)-1], float64(logp.Numel()/max(logp.Dim(class), 1))))
	}
	c.Return(temps[len(temps)-1])
	for i := len(temps) - 2; i >= 0; i-- {
		c.Drop(temps[i])
	}
	c.Drop(weight, target)
}

// smoothed mixes the loss of the target class with that of all classes alike
// (cross_entropy_loss_label_smoothing). C++ computes the right-hand side of an
// operator first.
func (c *Call) smoothed(logp, target *Tensor, class int) {
	a, weight := c.Args.(*LossArgs), c.Opt(2)
	if weight != nil && a.Reduction == "mean" {
		c.Fail("label_smoothing with weight and reduction 'mean' is not modelled: it selects targets, how many depends on the data")
	}
	nll := c.Do1(NLLLoss, a, logp, target, weight)
	dims := &ReduceArgs{Dim: []int64{int64(class)}}
	var smooth *Tensor
	if weight == nil {
		sum := c.Do1(Sum, dims, logp)
		smooth = c.Do1(Neg, nil, sum)
		c.Drop(sum)
	} else {
		weight = c.classWeight(logp, weight, class)
		weighted := c.Do1(Mul, &BinaryArgs{}, logp, weight)
		sum := c.Do1(Sum, dims, weighted)
		smooth = c.Do1(Neg, nil, sum)
		c.Drop(sum, weighted, weight)
	}
	ignored := c.Do1(Equal, &BinaryArgs{Other: Number{Set: true, Value: float64(a.IgnoreIndex)}}, target)
	c.Drop(c.Do1(FillByMask, nil, smooth, ignored))

	var ret *Tensor
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
	even := c.scaled(Mul, ret, a.LabelSmoothing/float64(logp.Dim(class)))
	hard := c.scaled(Mul, nll, 1-a.LabelSmoothing)
	c.Return(c.Do1(Add, &BinaryArgs{}, hard, even))
	c.Drop(hard, even, ret, ignored, smooth, nll)
}
