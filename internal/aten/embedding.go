package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// EmbeddingArgs are the arguments of embedding.
type EmbeddingArgs struct {
	PaddingIdx *int64   `arg:"padding_idx"`
	MaxNorm    *float64 `arg:"max_norm"`
	NormType   float64  `arg:"norm_type"`
	ByFreq     bool     `arg:"scale_grad_by_freq"`
	Sparse     bool     `arg:"sparse"`
}

// lookup checks the arguments of an embedding and, with max_norm, scales the
// rows that are used before they are looked up.
func lookup(c *op.Call, idx, w *op.Tensor, a *EmbeddingArgs) {
	switch {
	case a.ByFreq:
		c.Fail("%s is not modelled", op.Arg("scale_grad_by_freq"))
	case a.Sparse:
		c.Fail("%s is not modelled: the size of a sparse gradient depends on the data", op.Arg("sparse"))
	case a.MaxNorm != nil:
		c.Do(embeddingRenorm, a, w, idx)
	}
}

// F.embedding of a table whose rows may be scaled first.
var EmbeddingFunction = define(op.Op{
	Name: "embedding.any", Args: &EmbeddingArgs{}, Composite: true,
	Sig: "F.embedding(input, weight, padding_idx: int? = None, max_norm: float? = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False)",
	Run: func(c *op.Call) {
		idx, a := c.In[0], c.Args.(*EmbeddingArgs)
		if a.MaxNorm != nil {
			idx = c.Local(c.Do1(Contiguous, nil, idx))
		}
		lookup(c, idx, c.In[1], a)
		c.Return(c.Do1(Embedding, a, idx, c.In[1]))
	},
	Source: "torch/nn/functional.py: embedding",
})

// Embedding looks up rows of a table; its gradient is a whole table.
var Embedding = define(op.Op{
	Name: "embedding", Indices: []op.Indices{op.Indexing(0, 1, 0)}, Args: &EmbeddingArgs{}, Eval: evalEmbedding, Run: func(c *op.Call) {
		idx, w := c.In[0], c.In[1]
		if idx.DType != tensor.Int64 && idx.DType != tensor.Int32 {
			c.Fail("indices must be int64 or int32, not %v", idx.DType)
		}
		if w.Rank() != 2 {
			c.Fail("the table must be a matrix, not of shape %v", w.Size)
		}
		if _, flat := idx.View(tensor.D(idx.Numel())); !flat { // reshape(-1)
			c.Contiguous(idx)
		}
		c.Return(c.Grown(w.DType, append(idx.Size.Slice(), w.Dim(1))...)) // index_select, and a view
	},
	Rows: func(c *op.Call) (*op.Tensor, int64) { return c.In[0], c.In[1].Dim(0) },
	Save: []op.Save{op.In(0)}, Node: "EmbeddingBackward0", Grad: gradEmbedding,
	Source: "aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu",
})

// gradEmbedding is embedding_dense_backward: few indices are added into the
// table directly; many are sorted first, then summed by segments in the
// accumulation type.
func gradEmbedding(b *op.Back) {
	idx, g, w := b.SavedIn(0), b.Grads[0], b.InM[1]
	b.Contiguous(idx)
	b.Contiguous(g)
	b.Set(1, embeddingTable(&b.Call, g.DType, idx.DType, idx.Numel(), w.Dim(0), w.Dim(1)))
}

// embeddingTable makes the gradient of a table from n indices. The caller owns it.
func embeddingTable(c *op.Call, d, index tensor.DType, n, vocab, width int64) *op.Tensor {
	k := tableKernel(embeddingRule, d, index, n, vocab, width)
	c.Kernel(k)
	return addedRows(c, &k)
}

// addedRows adds few indices directly, and sorts many.
func addedRows(c *op.Call, k *op.Kernel) *op.Tensor {
	if n := k.In.Dim(0); n <= 3072 {
		return c.NewShape(k.DType, k.In.Dim(1), k.In.Dim(2))
	}
	return sortedRows(c, k)
}

// sortedRows is sumSorted.
func sortedRows(c *op.Call, k *op.Kernel) *op.Tensor {
	return sumSorted(c, k.DType, k.Index, k.In.Dim(0), k.In.Dim(1), k.In.Dim(2))
}

// The kernels of tables: their operands are the indices, the rows and the width.
var (
	embeddingRule    = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) { addedRows(c, k) }}
	embeddingBagRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) { sortedRows(c, k) }}
)

func tableKernel(rule *op.KernelRule, d, index tensor.DType, n, vocab, width int64) op.Kernel {
	return op.Kernel{Rule: rule, In: tensor.Layout{Size: tensor.D(n, vocab, width)}, DType: d, Index: index}
}

// sumSorted sorts the indices, then sums gradients into a table by segments of
// equal indices (embedding_backward_cuda_kernel). The caller owns the table.
func sumSorted(c *op.Call, d, index tensor.DType, n, vocab, width int64) *op.Tensor {
	if c.Env().NoKernels() {
		return c.NewShape(d, vocab, width)
	}
	defer c.DropTo(c.Mark())
	k := cub.Words64(c.Env().Arch)
	if index == tensor.Int32 {
		k = cub.Words32(c.Env().Arch)
	}
	vec := func(n int64) *op.Tensor { return c.NewShape(index, n) }
	temp := func(bytes int64) { c.Drop(c.NewShape(tensor.Uint8, bytes)) }
	sorted, orig := c.Local(vec(n)), c.Local(vec(n))
	_, _ = sorted, orig
	positions := vec(n)
	temp(k.RadixSort(n))
	c.Drop(positions)

	table := c.NewShape(d, vocab, width)
	c.Local(vec(n))                   // segment_offsets
	c.Local(c.NewShape(tensor.Int64)) // num_of_segments
	dummy := vec(n)
	temp(k.UniqueByKey(n))
	c.Drop(dummy)
	segments := min(n, vocab)
	c.Local(vec(segments)) // partials_per_segment
	c.Local(vec(segments)) // partials_per_segment_offset
	temp(k.Scan(segments))
	c.Local(c.NewShape(tensor.Int64)) // num_of_partial_segments
	const rowsPerThread = 10
	partials := n/rowsPerThread + segments
	c.Local(vec(partials)) // partial_segment_offset
	c.Local(c.NewShape(d.Accumulate(), partials, width))
	return table
}

// embeddingRenorm is embedding_renorm_: it scales the rows of a table that a step
// uses to a norm, each once. For that it sorts the indices and picks the
// different ones; the table is changed in place, outside of autograd.
var embeddingRenorm = define(op.Op{
	Name: "embedding_renorm_", Args: &EmbeddingArgs{}, Composite: true, Run: func(c *op.Call) {
		idx := c.In[1]
		if idx.Rank() == 0 || idx.Numel() == 0 {
			c.Fail("max_norm with indices of shape %v is not modelled", idx.Size)
		}
		outs := c.Do(Sort, &SortArgs{Dim: -1}, idx)
		c.Drop(outs[1])
		rows := outs[0]
		unique := c.NewShape(idx.DType, idx.Numel())
		count := c.NewShape(tensor.Int64)
		if !c.Env().NoKernels() {
			c.Drop(c.NewShape(tensor.Uint8, cub.Unique(c.Env().Arch, idx.DType.Size(), idx.Numel())))
		}
		c.Drop(count, unique, rows)
		c.Drop(c.Do1(RenormInPlace, c.Args, c.In...))
	},
	Source: "aten/src/ATen/native/cuda/Embedding.cu: embedding_renorm_cuda_",
})

// RenormInPlace is the change that it makes.
var RenormInPlace = define(op.Op{
	Name: "embedding_renorm_.table", Args: &EmbeddingArgs{}, Run: func(*op.Call) {}, InPlace: true,
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		args, w := c.Args.(*EmbeddingArgs), a.Array(c.In[0])
		if err := w.Renorm(a.Get(c.In[1]), args.NormType, *args.MaxNorm); err != nil {
			a.Fail(err)
		}
		a.Put(c.In[0], w.V)
	}, nil),
})

// padding is the row that padding_idx names of so many; -1: none.
func (a *EmbeddingArgs) padding(rows int64) int64 {
	if a.PaddingIdx == nil {
		return -1
	}
	return int64(array.Dim(int(*a.PaddingIdx), int(rows)))
}

// lookedUp are the sizes of an index as if it had two dimensions.
func lookedUp(index *op.Tensor) (rows, each int64) {
	if index.Rank() < 2 {
		return 1, index.Numel()
	}
	return index.Dim(0), index.Numel() / max(index.Dim(0), 1)
}

// evalEmbedding looks up rows. Its kernels take indices of int64 without gaps.
var evalEmbedding = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		idx, w := c.In[0], c.In[1]
		if idx.DType != tensor.Int64 {
			return op.ErrView
		}
		l := op.Launch{On: m}
		rows, each := lookedUp(idx)
		l.Seen(c.Out[0], rows, each, w.Dim(1))
		l.Add(w)
		l.Seen(idx, rows, each)
		return l.Run(kernel.Embedding, nil)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		idx, y := b.SavedIn(0), b.Results[1]
		if idx.DType != tensor.Int64 {
			return op.ErrView
		}
		l := op.Launch{On: m}
		rows, each := lookedUp(idx)
		l.Add(y)
		l.Seen(b.Grads[0], rows, each, y.Dim(1))
		l.Seen(idx, rows, each)
		return l.Run(kernel.EmbeddingGrad, []int64{b.Args.(*EmbeddingArgs).padding(y.Dim(0))})
	},
}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
	index, w := a.Get(c.In[0]), a.Get(c.In[1])
	rows, n := int(c.In[1].Dim(0)), int(c.In[1].Dim(1))
	y := make([]float64, len(index)*n)
	for i, v := range index {
		if v < 0 || int(v) >= rows {
			a.Fail(array.Outside(int(v), rows))
			return
		}
		copy(y[i*n:(i+1)*n], w[int(v)*n:])
	}
	a.Put(c.Out[0], y)
}, func(a op.Arrays, b *op.Back) {
	r := a.Wanted(b, 1)
	if r == nil {
		return
	}
	index, g, n := a.Get(b.SavedIn(0)), a.Get(b.Grads[0]), int(r.Dim(1))
	padding := int(b.Args.(*EmbeddingArgs).padding(r.Dim(0)))
	out := make([]float64, r.Numel())
	for i, v := range index {
		if int(v) != padding {
			for j := range n {
				out[int(v)*n+j] += g[i*n+j]
			}
		}
	}
	a.Put(r, out)
}))
