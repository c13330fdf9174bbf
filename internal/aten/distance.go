package aten

import "github.com/memplan/memplan/internal/op"

// SimilarityArgs are the arguments of cosine_similarity and pairwise_distance.
type SimilarityArgs struct {
	Dim     int     `arg:"dim"`
	P       float64 `arg:"p"`
	Eps     float64 `arg:"eps"`
	KeepDim bool    `arg:"keepdim"`
}

// CosineSimilarity divides both by their norms, of which it changes clones
// outside of autograd, multiplies and sums.
var CosineSimilarity = define(op.Op{
	Name: "cosine_similarity", Sig: "F.cosine_similarity(x1, x2, dim: int = 1, eps: float = 1e-08)", Args: &SimilarityArgs{}, Cast: op.CastFP32, Composite: true,
	Run: func(c *op.Call) {
		a := c.Args.(*SimilarityArgs)
		l := c.Elementwise(c.In...)
		d := resultType(c.In[0], c.In[1], op.Number{})
		if !d.IsFloating() {
			c.Fail("cosine_similarity needs a floating type, not %v", d)
		}
		dim := int64(c.Dim(a.Dim, l.Rank()))
		two := 2.0
		expand := func(t *op.Tensor) *op.Tensor {
			same := c.Do1(To, &ToCopyArgs{DType: d}, t)
			defer c.Drop(same)
			return c.Local(c.Do1(Expand, &ShapeArgs{Shape: l.Size.Slice()}, same))
		}
		x1, x2 := expand(c.In[0]), expand(c.In[1])
		norm := func(t *op.Tensor) *op.Tensor {
			n := c.Do1(VectorNorm, &NormArgs{P: &two, ReduceArgs: ReduceArgs{Dim: []int64{dim}, KeepDim: true}}, t)
			defer c.Drop(n)
			clone := c.Local(c.Do1(Clone, nil, n))
			c.WithoutGrad(func() { c.Drop(c.Do1(ClampMinInPlace, atLeast(a.Eps), clone)) })
			return clone
		}
		n1, n2 := norm(x1), norm(x2)
		mark := c.Mark()
		right := c.Local(c.Do1(Div, &BinaryArgs{}, x2, n2))
		left := c.Local(c.Do1(Div, &BinaryArgs{}, x1, n1))
		product := c.Local(c.Do1(Mul, &BinaryArgs{}, left, right))
		c.Return(c.Do1(Sum, &ReduceArgs{Dim: []int64{dim}}, product))
		c.DropTo(mark)
	},
	Source: "aten/src/ATen/native/Distance.cpp: cosine_similarity",
})

// PairwiseDistance is the norm of the difference along the last dimension.
var PairwiseDistance = define(op.Op{
	Name: "pairwise_distance", Sig: "F.pairwise_distance(x1, x2, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False)", Args: &SimilarityArgs{},
	Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*SimilarityArgs)
		if c.In[0].Rank() == 0 || c.In[1].Rank() == 0 {
			c.Fail("pairwise_distance needs at least one dimension")
		}
		c.Return(pairwiseDistance(c, c.In[0], c.In[1], a.P, a.Eps, a.KeepDim))
	},
	Source: "aten/src/ATen/native/Distance.cpp: pairwise_distance",
})
