package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// EmbeddingBagArgs are the arguments of embedding_bag.
type EmbeddingBagArgs struct {
	EmbeddingArgs
	Mode       string `arg:"mode"`
	LastOffset bool   `arg:"include_last_offset"`
}

// F.embedding_bag of a vector of indices and the offsets at which its bags
// begin, or of a matrix in which each row is a bag. For that the function's
// Python views the indices as a vector and counts out where the bags begin; its
// locals go when it returns.
var EmbeddingBag = define(op.Op{
	Name: "embedding_bag", Args: &EmbeddingBagArgs{}, Composite: true,
	Sig: "F.embedding_bag(input, weight, offsets: tensor? = None, max_norm: float? = None, norm_type: float = 2, scale_grad_by_freq: bool = False, " +
		"mode: str(mean|sum|max) = 'mean', sparse: bool = False, per_sample_weights: tensor? = None, include_last_offset: bool = False, padding_idx: int? = None)",
	Run: func(c *op.Call) {
		idx, w, offsets, weights, a := c.In[0], c.In[1], c.Opt(2), c.Opt(3), c.Args.(*EmbeddingBagArgs)
		if idx.DType != tensor.Int64 && idx.DType != tensor.Int32 {
			c.Fail("indices must be int64 or int32, not %v", idx.DType)
		}
		if w.Rank() != 2 {
			c.Fail("the table must be a matrix, not of shape %v", w.Size)
		}
		if weights != nil && (a.Mode != "sum" || weights.Size != idx.Size || weights.DType != w.DType) {
			c.Fail("per_sample_weights need mode 'sum', the indices' shape and the table's type, not mode %q, shape %v and %v", a.Mode, weights.Size, weights.DType)
		}
		switch {
		case idx.Rank() == 2 && idx.Numel() > 0 && offsets == nil:
			offsets = c.Do1(Arange, &ArangeArgs{
				Start: op.Number{Set: true}, End: op.Number{Set: true, Value: float64(idx.Numel())}, Step: op.Number{Set: true, Value: float64(idx.Dim(1))}, DType: &idx.DType,
			})
			idx = c.Do1(Reshape, &ShapeArgs{Shape: []int64{-1}}, idx)
			if weights != nil {
				weights = c.Do1(Reshape, &ShapeArgs{Shape: []int64{-1}}, weights)
			}
		case idx.Rank() == 1 && idx.Numel() > 0 && offsets != nil && offsets.Rank() == 1 && offsets.Numel() > 0:
			if offsets.DType != idx.DType {
				c.Fail("offsets of %v with indices of %v are not modelled; give both the same type", offsets.DType, idx.DType)
			}
			c.Keep(offsets)
			c.Keep(idx)
			if weights != nil {
				c.Keep(weights)
			}
		default:
			c.Fail("the indices must be a matrix with a bag in each row, or a vector with offsets, not of shape %v", idx.Size)
		}
		lookup(c, idx, w, &a.EmbeddingArgs)
		index, begins := c.Do1(Contiguous, nil, idx), c.Do1(Contiguous, nil, offsets)
		outs := c.Do(EmbeddingBagKernel, a, index, begins, w, weights)
		c.Drop(begins, index)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2], idx, offsets, weights) // "ret, _, _, _ =" keeps the last
		c.Drop(outs[3])
	},
	Source: "torch/nn/functional.py: embedding_bag; aten/src/ATen/native/EmbeddingBag.cpp: embedding_bag",
})

// EmbeddingBagKernel returns the bags and three tensors of indices: the bag of each
// index, the size of each bag, and for a maximum where it was found.
var EmbeddingBagKernel = define(op.Op{
	Name: "_embedding_bag", Eval: evalEmbeddingBag, Indices: bagIndices, Args: &EmbeddingBagArgs{}, Run: func(c *op.Call) {
		idx, offsets, w, a := c.In[0], c.In[1], c.In[2], c.Args.(*EmbeddingBagArgs)
		bags, width := offsets.Dim(0), w.Dim(1)
		sizes := c.NewShape(idx.DType, bags)
		if a.LastOffset {
			bags--
		}
		bagOf := c.NewShape(idx.DType, idx.Numel())
		out := c.NewShape(w.DType, bags, width)
		where := []int64{0}
		if a.Mode == "max" {
			where = []int64{bags, width}
		}
		c.Return(out, bagOf, sizes, c.NewShape(idx.DType, where...))
	},
	Save: []op.Save{op.In(0), op.In(1), op.In(3), op.In(2, 3), op.Out(1), op.Out(2), op.Out(3)}, NoGrad: []int{1, 2, 3}, Node: "EmbeddingBagBackward0",
	Grad:   gradEmbeddingBag,
	Source: "aten/src/ATen/native/cuda/EmbeddingBag.cu: _embedding_bag_cuda",
})

// bagIndices are the rows, and the offsets; those are all 0, so that all bags but the last
// are empty.
var bagIndices = []op.Indices{op.Indexing(0, 2, 0), {In: 1, Below: func(*op.Call) int64 { return 1 }}}

// evalEmbeddingBag sums, averages or takes the largest of the rows of bags. There are no kernels
// for a maximum, for other indices than int64, and for the gradient of weights.
var evalEmbeddingBag = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a := c.Args.(*EmbeddingBagArgs)
		if a.Mode == "max" || a.LastOffset || c.In[0].DType != tensor.Int64 || c.In[1].DType != tensor.Int64 {
			return op.ErrView
		}
		l := op.Launch{On: m}
		l.Add(c.Out[:3]...)
		l.Add(c.In[2], c.In[0], c.In[1], c.Opt(3))
		return l.Run(kernel.EmbeddingBag, a.numbers(c.In[2].Dim(0)))
	},
	Backward: func(m op.Machine, b *op.Back) error {
		a, y := b.Args.(*EmbeddingBagArgs), m.Wanted(b, 2)
		if a.Mode == "max" || a.LastOffset || b.SavedIn(0).DType != tensor.Int64 || y == nil || m.Wanted(b, 3) != nil {
			return op.ErrView
		}
		l := op.Launch{On: m}
		l.Add(y, b.Grads[0], b.SavedIn(0), b.SavedOut(1), b.SavedOut(2), op.Optional(b.SavedIns(), 3))
		return l.Run(kernel.EmbeddingBagGrad, a.numbers(y.Dim(0)))
	},
}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
	args, w, n := c.Args.(*EmbeddingBagArgs), a.Array(c.In[2]), int(c.Out[0].Dim(0))
	y, bagOf, counts, best, err := args.bags(a, c.In, w.Size[0]).Sum(w, n)
	if err != nil {
		a.Fail(err)
		return
	}
	a.Put(c.Out[0], y)
	a.Put(c.Out[1], bagOf)
	a.Put(c.Out[2], append(counts, make([]float64, int(c.Out[2].Numel())-n)...))
	if args.Mode == "max" {
		a.Put(c.Out[3], best)
	}
}, func(a op.Arrays, b *op.Back) {
	args, g, rows := b.Args.(*EmbeddingBagArgs), a.Array(b.Grads[0]), int(b.InM[2].Dim(0))
	if args.Mode == "max" {
		a.Put(a.Wanted(b, 2), array.MaxGrad(g, rows, a.Get(b.SavedOut(3))))
		return
	}
	gw, gs, err := args.bags(a, b.SavedIns(), rows).SumGrad(g, rows, a.Get(b.SavedOut(2)), a.Array(b.SavedIn(2)))
	if err != nil {
		a.Fail(err)
		return
	}
	a.Put(a.Wanted(b, 2), gw)
	a.Put(a.Wanted(b, 3), gs)
}))

// numbers are those of the kernels, for a table of so many rows.
func (a *EmbeddingBagArgs) numbers(rows int64) []int64 {
	return []int64{op.Flag(a.Mode == "mean"), a.padding(rows)}
}

func (a *EmbeddingBagArgs) bags(arrays op.Arrays, in []*op.Tensor, rows int) *array.Bags {
	b := &array.Bags{Index: arrays.Get(in[0]), Offsets: arrays.Get(in[1]), Mode: a.Mode, Weights: arrays.Get(op.Optional(in, 3))}
	b.Padding = int(a.padding(int64(rows)))
	return b
}

// gradEmbeddingBag is _embedding_bag_dense_backward_cuda: the maximum adds into
// the table directly; sum and mean always sort the indices first.
func gradEmbeddingBag(b *op.Back) {
	idx, g, w := b.SavedIn(0), b.Grads[0], b.InM[2]
	if b.Need(3) {
		b.Set(3, b.NewShape(g.DType, idx.Numel()))
	}
	if !b.Need(2) {
		return
	}
	b.Contiguous(g)
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
	b.Set(2, embeddingBagTable(&b.Call, g.DType, idx.DType, idx.Numel(), w.Dim(0), w.Dim(1)))
}

// embeddingBagTable is embeddingTable for bags, whose indices are always sorted.
func embeddingBagTable(c *op.Call, d, index tensor.DType, n, vocab, width int64) *op.Tensor {
	k := tableKernel(embeddingBagRule, d, index, n, vocab, width)
	c.Kernel(k)
	return sortedRows(c, &k)
}
