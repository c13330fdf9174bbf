package op

import "github.com/memplan/memplan/internal/tensor"

// EmbeddingBagArgs are the arguments of embedding_bag.
type EmbeddingBagArgs struct {
	Mode string `arg:"mode"`
}

// F.embedding_bag of a matrix of indices: each row is a bag. The function's
// Python views the indices as a vector and counts out where the bags begin;
// its locals go when it returns.
var _ = define(Row{
	Name: "embedding_bag", Sig: "F.embedding_bag(input, weight, *, mode: str(mean|sum|max) = 'mean')", Args: &EmbeddingBagArgs{}, Composite: true,
	Run: func(c *Call) {
		idx, w := c.In[0], c.In[1]
		if idx.DType != tensor.Int64 && idx.DType != tensor.Int32 {
			c.Fail("indices must be int64 or int32, not %v", idx.DType)
		}
		if idx.Rank() != 2 || idx.Numel() == 0 {
			c.Fail("the indices must be a matrix with a bag in each row, not of shape %v; offsets are not modelled", idx.Size)
		}
		if w.Rank() != 2 {
			c.Fail("the table must be a matrix, not of shape %v", w.Size)
		}
		offsets := c.Do1(Row0("arange"), &ArangeArgs{End: idx.Dim(0), DType: &idx.DType})
		flat := c.Do1(Reshape, &ShapeArgs{Shape: []int64{-1}}, idx)
		outs := c.Do(embeddingBag, c.Args, flat, offsets, w)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2], flat, offsets) // "ret, _, _, _ =" keeps the last
		c.Drop(outs[3])
	},
	Source: "torch/nn/functional.py: embedding_bag; aten/src/ATen/native/EmbeddingBag.cpp: embedding_bag",
})

// embeddingBag returns the bags and three tensors of indices: the bag of each
// index, the size of each bag, and for a maximum where it was found.
var embeddingBag = define(Row{
	Name: "_embedding_bag", Args: &EmbeddingBagArgs{}, Run: func(c *Call) {
		idx, offsets, w := c.In[0], c.In[1], c.In[2]
		bags, width := offsets.Dim(0), w.Dim(1)
		sizes := c.NewShape(idx.DType, bags)
		bagOf := c.NewShape(idx.DType, idx.Numel())
		out := c.NewShape(w.DType, bags, width)
		where := []int64{0}
		if c.Args.(*EmbeddingBagArgs).Mode == "max" {
			where = []int64{bags, width}
		}
		c.Return(out, bagOf, sizes, c.NewShape(idx.DType, where...))
	},
	Save: []Save{In(0), In(1), Out(1), Out(2), Out(3)}, NoGrad: []int{1, 2, 3}, Node: "EmbeddingBagBackward0",
	Grad:   gradEmbeddingBag,
	Source: "aten/src/ATen/native/cuda/EmbeddingBag.cu: _embedding_bag_cuda",
})

// gradEmbeddingBag is _embedding_bag_dense_backward_cuda: the maximum adds into
// the table directly; sum and mean always sort the indices first.
func gradEmbeddingBag(b *Back) {
	idx, g, w := b.SavedIn[0], b.Grads[0], b.InM[2]
	b.contiguous(g)
	if b.Args.(*EmbeddingBagArgs).Mode == "max" {
		if b.Env().Deterministic {
			b.Fail("embedding_bag of mode max has no deterministic backward pass in PyTorch; it would raise an error")
		}
		if g.DType == tensor.BFloat16 {
			b.Fail("PyTorch has no backward pass of embedding_bag of mode max in bfloat16")
		}
		b.Set(2, b.NewShape(g.DType, w.Dim(0), w.Dim(1)))
		return
	}
	b.Set(2, b.sumSorted(g, idx, w.Dim(0), w.Dim(1)))
}
