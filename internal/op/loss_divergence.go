package op

import "math"

// KLDiv is the divergence of the input, which is in logarithms, from the
// target. F.kl_div divides the sum by the batch itself for "batchmean".
var KLDivFunction = define(Op{
	Name: "kl_div.any", Args: &LossArgs{}, Composite: true,
	Sig: "F.kl_div(input, target, *, reduction: str(none|batchmean|sum|mean) = 'mean', log_target: bool = False)",
	Run: func(c *Call) {
		x, a := c.In[0], *c.Args.(*LossArgs)
		batch := a.Reduction == "batchmean"
		if batch {
			a.Reduction = "sum"
		}
		loss := c.Do1(klDiv, &a, c.In...)
		if batch && x.Rank() > 0 {
			sum := loss
			loss = c.Do1(Div, &BinaryArgs{Other: Number{Set: true, Value: float64(x.Dim(0))}}, sum)
			c.Drop(sum)
		}
		c.Return(loss)
	},
	Source: "torch/nn/functional.py: kl_div",
})

var klDiv = define(Op{
	Name: "kl_div", Takes: (*Call).allFloats, Args: &LossArgs{}, Cast: CastFP32, Composite: true, Run: func(c *Call) {
		x, target := c.In[0], c.In[1]
		c.sameShape(x, target)
		var left, right, each *Tensor
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
		c.Return(c.reduceLoss(each))
		c.Drop(each)
	},
	Source: "aten/src/ATen/native/Loss.cpp: kl_div",
})

var evalXlogy = two(
	func(x, y float64) float64 {
		switch {
		case math.IsNaN(y):
			return y
		case x == 0:
			return 0
		}
		return x * math.Log(y)
	},
	func(x [3]float64, _, _ float64) float64 {
		if x[0] == 0 && x[1] <= 0 {
			return 0
		}
		return math.Log(x[1])
	},
	func(x [3]float64, _, _ float64) float64 { return x[0] / x[1] },
).eval()

// Xlogy is x * log(y), and 0 where x is, unless y is no number.
var Xlogy = define(Op{
	Name: "xlogy", Eval: evalXlogy, Run: func(c *Call) { c.Return(c.New(c.elementwise(c.In...), resultType(c.In[0], c.In[1], Number{}))) },
	Save: []Save{In(1), In(0)}, Node: "XlogyBackward0",
	Grad: func(b *Back) {
		x, y, g := b.SavedIn(0), b.SavedIn(1), b.Grads[0]
		if b.Need(1) { // grad * self / other
			product := b.Do1(MulTensor, nil, g, x)
			b.Set(1, b.Do1(DivTensor, nil, product, y))
			b.Drop(product)
		}
		if b.Need(0) { // xlogy(grad, other).masked_fill((self == 0) & (other <= 0), 0)
			mark := b.Mark()
			all := b.Local(b.New(b.elementwise(g, y), g.DType))
			b.Local(b.Do1(LessEqual, &BinaryArgs{Other: Number{Set: true}}, y))
			zero := b.Local(b.Do1(Equal, &BinaryArgs{Other: Number{Set: true}}, x))
			mask := b.Local(b.New(b.elementwise(zero), zero.DType))
			b.Set(0, b.Do1(MaskedFill, nil, all, mask))
			b.DropTo(mark)
		}
	},
	Source: "tools/autograd/derivatives.yaml: xlogy.Tensor",
})
