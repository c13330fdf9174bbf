package op

// The losses of distances between embeddings. Both are made of operators in
// C++; what an expression makes goes in reverse order at its end.
var (
	TripletMarginLoss = define(Op{
		Name: "triplet_margin_loss", Args: &LossArgs{}, Cast: CastFP32, Composite: true,
		Sig: "F.triplet_margin_loss(anchor, positive, negative, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, " + lossSig + ")",
		Run: func(c *Call) {
			a := c.Args.(*LossArgs)
			for _, t := range c.In[1:] {
				c.sameShape(c.In[0], t)
			}
			near := c.pairwiseDistance(c.In[0], c.In[1], a.P, a.Eps, false)
			far := c.pairwiseDistance(c.In[0], c.In[2], a.P, a.Eps, false)
			if a.Swap {
				swapped := c.pairwiseDistance(c.In[1], c.In[2], a.P, a.Eps, false)
				least := c.Do1(Minimum, nil, far, swapped)
				c.Drop(far, swapped)
				far = least
			}
			sum := c.scaled(Add, near, a.Margin)
			diff := c.Do1(Sub, &BinaryArgs{}, sum, far)
			out := c.Do1(ClampMin, atLeast(0), diff) // clamp_min(margin + near - far, 0)
			c.Drop(diff, sum)
			c.Return(c.reduceLoss(out))
			c.Drop(out, far, near)
		},
		Source: "aten/src/ATen/native/Loss.cpp: triplet_margin_loss",
	})
	TripletMarginWithDistanceLoss = define(Op{ // of pairwise_distance, the default
		Name: "triplet_margin_with_distance_loss", Args: &LossArgs{}, Composite: true,
		Sig: "F.triplet_margin_with_distance_loss(anchor, positive, negative, *, margin: float = 1.0, swap: bool = False, " + lossSig + ")",
		Run: func(c *Call) {
			a := c.Args.(*LossArgs)
			const eps = 1e-6 // of pairwise_distance, by default
			near := c.Local(c.pairwiseDistance(c.In[0], c.In[1], 2, eps, false))
			far := c.pairwiseDistance(c.In[0], c.In[2], 2, eps, false)
			var swapped *Tensor
			if a.Swap {
				swapped = c.pairwiseDistance(c.In[1], c.In[2], 2, eps, false)
				least := c.Do1(Minimum, nil, far, swapped)
				c.Drop(far)
				far = least
			}
			sum := c.scaled(Add, near, a.Margin)
			diff := c.Do1(Sub, &BinaryArgs{}, sum, far)
			c.Drop(sum)
			loss := c.Do1(ClampMin, atLeast(0), diff)
			c.Drop(diff)
			c.Return(c.reduceLoss(loss))
			c.Early(near)
			c.Drop(far, swapped, loss)
		},
		Source: "torch/nn/functional.py: triplet_margin_with_distance_loss",
	})
	CosineEmbeddingLoss = define(Op{
		Name: "cosine_embedding_loss", Args: &LossArgs{}, Cast: CastFP32, Composite: true,
		Sig:    "F.cosine_embedding_loss(input1, input2, target, *, margin: float = 0.0, " + lossSig + ")",
		Run:    cosineEmbeddingLoss,
		Source: "aten/src/ATen/native/Loss.cpp: cosine_embedding_loss",
	})
)

// pairwiseDistance is norm(x - y + eps, p) over the last dimension.
func (c *Call) pairwiseDistance(x, y *Tensor, p, eps float64, keepDim bool) *Tensor {
	diff := c.Do1(Sub, &BinaryArgs{}, x, y)
	moved := c.scaled(Add, diff, eps)
	norm := c.Do1(Norm, &NormArgs{P: &p, ReduceArgs: ReduceArgs{Dim: []int64{-1}, KeepDim: keepDim}}, moved)
	c.Drop(moved, diff)
	return norm
}

func cosineEmbeddingLoss(c *Call) {
	x, y, target := c.In[0], c.In[1], c.In[2]
	if target.Rank() > 1 || x.Rank() != target.Rank()+1 || (target.Rank() == 1 && target.Dim(0) != x.Dim(0)) {
		c.Fail("target of shape %v does not fit inputs of shape %v; it has one number for each row", target.Size, x.Size)
	}
	c.sameShape(x, y)
	dims := &ReduceArgs{Dim: []int64{int64(target.Rank())}}
	dot := func(x, y *Tensor) *Tensor {
		product := c.Do1(Mul, &BinaryArgs{}, x, y)
		sum := c.Do1(Sum, dims, product)
		c.Drop(product)
		return sum
	}
	square := func(x *Tensor) *Tensor { // (x * x).sum() + epsilon
		product := c.Do1(Mul, &BinaryArgs{}, x, x)
		sum := c.Do1(Sum, dims, product)
		const epsilon = 1e-12
		out := c.scaled(Add, sum, epsilon)
		c.Drop(sum, product)
		return out
	}
	prod, mag1, mag2 := dot(x, y), square(x), square(y)
	denom := c.Do1(Mul, &BinaryArgs{}, mag1, mag2)
	c.Drop(c.Do1(SqrtOfLoss, nil, denom))
	cos := c.Do1(Div, &BinaryArgs{}, prod, denom)
	zeros := c.Do1(Zeros, &FillArgs{Size: cos.Size.Slice(), DType: &cos.DType})
	pos := c.Do1(Sub, &BinaryArgs{Left: Number{Set: true, Value: 1}}, cos) // 1 - cos
	neg := c.scaled(Sub, cos, c.Args.(*LossArgs).Margin)
	c.Drop(c.Do1(ClampMinInPlace, atLeast(0), neg))
	where := func(sign float64, t *Tensor) *Tensor {
		is := c.Do1(Equal, &BinaryArgs{Other: Number{Set: true, Value: sign}}, target)
		out := c.Do1(WhereSelf, nil, is, t, zeros)
		c.Drop(is)
		return out
	}
	outPos := where(1, pos)
	outNeg := where(-1, neg)
	out := c.Do1(Add, &BinaryArgs{}, outPos, outNeg)
	c.Return(c.reduceLoss(out))
	c.Drop(out, outNeg, outPos, neg, pos, zeros, cos, denom, mag2, mag1, prod)
}

// SqrtOfLoss is the root in place in cosine_embedding_loss.
var (
	SqrtOfLoss = define(Op{
		Name: "sqrt_.loss", Eval: Sqrt.Eval, Run: func(*Call) {}, InPlace: true, Save: []Save{Out(0)}, Node: "SqrtBackward0", Grad: Sqrt.Grad,
	})
)
