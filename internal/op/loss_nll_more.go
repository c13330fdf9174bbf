package op

import "math"

// PoissonArgs are the arguments of poisson_nll_loss.
type PoissonArgs struct {
	LossArgs
	LogInput bool    `arg:"log_input"`
	Full     bool    `arg:"full"`
	Eps      float64 `arg:"eps"`
}

// PoissonNLLLoss is exp(input) - target * input, or input - target * log(input +
// eps), and with full Stirling's approximation of the rest.
var PoissonNLLLoss = define(Op{
	Name: "poisson_nll_loss", Args: &PoissonArgs{}, Cast: CastFP32, Composite: true,
	Sig: "F.poisson_nll_loss(input, target, log_input: bool = True, full: bool = False, *, eps: float = 1e-08, " + lossSig + ")",
	Run: func(c *Call) {
		x, target, a := c.In[0], c.In[1], c.Args.(*PoissonArgs)
		c.sameShape(x, target)
		mark := c.Mark()
		var loss *Tensor
		if a.LogInput {
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, x))
			exp := c.Local(c.Do1(Exp, nil, x))
			loss = c.Do1(Sub, &BinaryArgs{}, exp, product)
		} else {
			sum := c.Local(c.scaled(Add, x, a.Eps))
			log := c.Local(c.Do1(Log, nil, sum))
			product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, log))
			loss = c.Do1(Sub, &BinaryArgs{}, x, product)
		}
		c.DropTo(mark)
		if a.Full {
			c.stirling(loss, target)
		}
		c.Local(loss)
		c.Return(c.reduceLoss(loss))
	},
	Source: "aten/src/ATen/native/Loss.cpp: poisson_nll_loss",
})

// stirling adds target * log(target) - target + 0.5 * log(2 * pi * target), where
// target is more than 1.
func (c *Call) stirling(loss, target *Tensor) {
	mark := c.Mark()
	circle := c.Local(c.scaled(Mul, target, 2*math.Pi))
	logCircle := c.Local(c.Do1(Log, nil, circle))
	half := c.Local(c.scaled(Mul, logCircle, 0.5))
	log := c.Local(c.Do1(Log, nil, target))
	product := c.Local(c.Do1(Mul, &BinaryArgs{}, target, log))
	diff := c.Local(c.Do1(Sub, &BinaryArgs{}, product, target))
	term := c.Do1(Add, &BinaryArgs{}, diff, half)
	c.DropTo(mark)
	c.Local(term)
	small := c.Local(c.Do1(LessEqual, &BinaryArgs{Other: Number{Set: true, Value: 1}}, target))
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
var GaussianNLLLoss = define(Op{
	Name: "gaussian_nll_loss", Args: &GaussianArgs{}, Composite: true,
	Sig: "F.gaussian_nll_loss(input, target, var, full: bool = False, eps: float = 1e-06, " + lossSig + ")",
	Run: func(c *Call) {
		x, target, v, a := c.In[0], c.In[1], c.In[2], c.Args.(*GaussianArgs)
		c.sameShape(x, target)
		below := c.Do1(Less, &BinaryArgs{Other: Number{Set: true}}, v)
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
		c.withoutGrad(func() { c.Drop(c.Do1(ClampMinInPlace, atLeast(a.Eps), v)) })
		log := c.Do1(Log, nil, v)
		diff := c.Do1(Sub, &BinaryArgs{}, x, target)
		square := c.Do1(PowScalar, &PowArgs{Exponent: Number{Set: true, Value: 2}}, diff)
		c.Drop(diff)
		share := c.Do1(Div, &BinaryArgs{}, square, v)
		c.Drop(square)
		sum := c.Do1(Add, &BinaryArgs{}, log, share)
		c.Drop(log, share)
		loss := c.scaled(Mul, sum, 0.5)
		c.Drop(sum)
		if a.Full {
			c.Drop(c.Do1(AddInPlace, float(0.5*math.Log(2*math.Pi)), loss))
		}
		c.Return(c.reduceLoss(loss))
		c.Drop(v, loss)
	},
	Source: "torch/nn/functional.py: gaussian_nll_loss",
})
