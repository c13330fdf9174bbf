package op

import (
	"github.com/memplan/memplan/internal/cub"
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
func (c *Call) lookup(idx, w *Tensor, a *EmbeddingArgs) {
	switch {
	case a.ByFreq:
		c.Fail("%s is not modelled", Arg("scale_grad_by_freq"))
	case a.Sparse:
		c.Fail("%s is not modelled: the size of a sparse gradient depends on the data", Arg("sparse"))
	case a.MaxNorm != nil:
		c.Do(embeddingRenorm, a, w, idx)
	}
}

// F.embedding of a table whose rows may be scaled first.
var EmbeddingFunction = define(Op{
	Name: "embedding.any", Args: &EmbeddingArgs{}, Composite: true,
	Sig: "F.embedding(input, weight, padding_idx: int? = None, max_norm: float? = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False)",
	Run: func(c *Call) {
		idx, a := c.In[0], c.Args.(*EmbeddingArgs)
		if a.MaxNorm != nil {
			idx = c.Local(c.Do1(Contiguous, nil, idx))
		}
		c.lookup(idx, c.In[1], a)
		c.Return(c.Do1(Embedding, a, idx, c.In[1]))
	},
	Source: "torch/nn/functional.py: embedding",
})

// Embedding looks up rows of a table; its gradient is a whole table.
var Embedding = define(Op{
	Name: "embedding", Indices: []Indices{indexing(0, 1, 0)}, Args: &EmbeddingArgs{}, Eval: evalEmbedding, Run: func(c *Call) {
		idx, w := c.In[0], c.In[1]
		if idx.DType != tensor.Int64 && idx.DType != tensor.Int32 {
			c.Fail("indices must be int64 or int32, not %v", idx.DType)
		}
		if w.Rank() != 2 {
			c.Fail("the table must be a matrix, not of shape %v", w.Size)
		}
		if _, flat := idx.View(tensor.D(idx.Numel())); !flat { // reshape(-1)
			c.contiguous(idx)
		}
		c.Return(c.grown(w.DType, append(idx.Size.Slice(), w.Dim(1))...)) // index_select, and a view
	},
	Rows: func(c *Call) (*Tensor, int64) { return c.In[0], c.In[1].Dim(0) },
	Save: []Save{In(0)}, Node: "EmbeddingBackward0", Grad: gradEmbedding,
	Source: "aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu",
})

// gradEmbedding is embedding_dense_backward: few indices are added into the
// table directly; many are sorted first, then summed by segments in the
// accumulation type.
func gradEmbedding(b *Back) {
	idx, g, w := b.SavedIn(0), b.Grads[0], b.InM[1]
	b.contiguous(idx)
	b.contiguous(g)
	b.Set(1, b.embeddingTable(g.DType, idx.DType, idx.Numel(), w.Dim(0), w.Dim(1)))
}

// embeddingTable makes the gradient of a table from n indices. The caller owns it.
func (c *Call) embeddingTable(d, index tensor.DType, n, vocab, width int64) *Tensor {
	k := tableKernel(embeddingRule, d, index, n, vocab, width)
	c.Kernel(k)
	return c.addedRows(&k)
}

// addedRows adds few indices directly, and sorts many.
func (c *Call) addedRows(k *Kernel) *Tensor {
	if n := k.In.Dim(0); n <= 3072 {
		return c.NewShape(k.DType, k.In.Dim(1), k.In.Dim(2))
	}
	return c.sortedRows(k)
}

// sortedRows is sumSorted.
func (c *Call) sortedRows(k *Kernel) *Tensor {
	return c.sumSorted(k.DType, k.Index, k.In.Dim(0), k.In.Dim(1), k.In.Dim(2))
}

// The kernels of tables: their operands are the indices, the rows and the width.
var (
	embeddingRule    = &KernelRule{Run: func(c *Call, k *Kernel) { c.addedRows(k) }}
	embeddingBagRule = &KernelRule{Run: func(c *Call, k *Kernel) { c.sortedRows(k) }}
)

func tableKernel(rule *KernelRule, d, index tensor.DType, n, vocab, width int64) Kernel {
	return Kernel{Rule: rule, In: tensor.Layout{Size: tensor.D(n, vocab, width)}, DType: d, Index: index}
}

// sumSorted sorts the indices, then sums gradients into a table by segments of
// equal indices (embedding_backward_cuda_kernel). The caller owns the table.
func (c *Call) sumSorted(d, index tensor.DType, n, vocab, width int64) *Tensor {
	if c.Env().FakeTensors {
		return c.NewShape(d, vocab, width)
	}
	defer c.DropTo(c.Mark())
	k := cub.Words64(c.Env().Arch)
	if index == tensor.Int32 {
		k = cub.Words32(c.Env().Arch)
	}
	vec := func(n int64) *Tensor { return c.NewShape(index, n) }
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
