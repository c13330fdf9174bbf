package op

import "github.com/memplan/memplan/internal/tensor"

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
	Name: "embedding", Args: &EmbeddingArgs{}, Run: func(c *Call) {
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
	Save: []Save{In(0)}, Node: "EmbeddingBackward0", Grad: gradEmbedding,
	Source: "aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu",
})

// gradEmbedding is embedding_dense_backward: few indices are added into the
// table directly; many are sorted first, then summed by segments in the
// accumulation type.
func gradEmbedding(b *Back) {
	idx, g, w := b.SavedIn[0], b.Grads[0], b.InM[1]
	b.contiguous(idx)
	b.contiguous(g)
	b.Set(1, b.embeddingTable(g.DType, idx.DType, idx.Numel(), w.Dim(0), w.Dim(1)))
}

// embeddingTable makes the gradient of a table from n indices. The caller owns it.
func (b *Back) embeddingTable(d, index tensor.DType, n, vocab, width int64) *Tensor {
	b.Kernel(tableKernel(embeddingRule, d, index, n, vocab, width))
	if n <= 3072 {
		return b.NewShape(d, vocab, width)
	}
	return b.sumSorted(d, index, n, vocab, width)
}

func tableKernel(rule kernelRule, d, index tensor.DType, n, vocab, width int64) Kernel {
	return Kernel{rule: rule, in: tensor.Layout{Size: tensor.D(n, vocab, width)}, dtype: d, index: index}
}

// sumSorted sorts the indices, then sums gradients into a table by segments of
// equal indices (embedding_backward_cuda_kernel). The caller owns the table.
func (b *Back) sumSorted(d, index tensor.DType, n, vocab, width int64) *Tensor {
	if b.Env().FakeTensors {
		return b.NewShape(d, vocab, width)
	}
	defer b.DropTo(b.Mark())
	k := cubFor(b.Env())
	if index == tensor.Int32 {
		k = cub32For(b.Env())
	}
	vec := func(n int64) *Tensor { return b.NewShape(index, n) }
	temp := func(bytes int64) { b.Drop(b.NewShape(tensor.Uint8, bytes)) }
	sorted, orig := b.Local(vec(n)), b.Local(vec(n))
	_, _ = sorted, orig
	positions := vec(n)
	temp(k.radixSort(n))
	b.Drop(positions)

	table := b.NewShape(d, vocab, width)
	b.Local(vec(n))                   // segment_offsets
	b.Local(b.NewShape(tensor.Int64)) // num_of_segments
	dummy := vec(n)
	temp(k.uniqueByKey(n))
	b.Drop(dummy)
	segments := min(n, vocab)
	b.Local(vec(segments)) // partials_per_segment
	b.Local(vec(segments)) // partials_per_segment_offset
	temp(k.scan(segments))
	b.Local(b.NewShape(tensor.Int64)) // num_of_partial_segments
	const rowsPerThread = 10
	partials := n/rowsPerThread + segments
	b.Local(vec(partials)) // partial_segment_offset
	b.Local(b.NewShape(d.Accumulate(), partials, width))
	return table
}

// cub holds the size of an index in bytes and, for indices of that size, how
// many of them CUB sorts in one block and the tile sizes, in items, of its
// kernels that sort and scan; they decide how much scratch an algorithm asks
// for.
type cub struct{ word, oneBlock, sortTile, uniqueTile, scanTile int64 }

// cubFor returns the tiles of an architecture for 8-byte indices, recorded with
// CUDA 12.4 on sm_70 to sm_90. Later ones are taken to be as sm_90.
func cubFor(env *Env) cub {
	switch {
	case env.Arch < 80:
		return cub{8, 2304, 2816, 640, 896}
	case env.Arch < 90:
		return cub{8, 2304, 3840, 640, 896}
	}
	return cub{8, 2304, 4608, 8960, 896}
}

// cub32For is cubFor for 4-byte indices.
func cub32For(env *Env) cub {
	switch {
	case env.Arch < 80:
		return cub{4, 4864, 11776, 704, 1920}
	case env.Arch < 90:
		return cub{4, 4864, 6528, 704, 1920}
	}
	return cub{4, 4864, 6528, 7168, 1920}
}

// Each CUB temporary is aligned to 256 bytes, and so is their sum, by 255
// spare bytes.
const cubAlign, cubSpare = 256, 255

// radixSort is the scratch of cub::DeviceRadixSort::SortPairs over n pairs of
// an index as key and one as value.
func (k cub) radixSort(n int64) int64 { return k.sortPairs(n, k.word, k.word, k.word*digitBits) }

const digitBits = 8 // of a key that one pass of a radix sort looks at

// sortPairs is the scratch of cub::DeviceRadixSort::SortPairs over n pairs, of
// whose keys so many bits are sorted: second buffers for keys and values unless
// one pass does, a histogram of each pass, a counter, and the lookback of each
// tile. What fits one block needs none (an empty request is 1 byte).
func (k cub) sortPairs(n, keySize, valueSize, bits int64) int64 {
	const digits = 1 << digitBits
	if n <= k.oneBlock {
		return 1
	}
	passes := divUp(bits, digitBits)
	buffers := int64(0)
	if passes > 1 {
		buffers = roundUp(n*keySize, cubAlign) + roundUp(n*valueSize, cubAlign)
	}
	return buffers + passes*digits*8 + cubAlign + divUp(n, k.sortTile)*digits*4 + cubSpare
}

// uniqueByKey is the scratch of cub::DeviceSelect::UniqueByKey.
func (k cub) uniqueByKey(n int64) int64 {
	return roundUp(divUp(n, k.uniqueTile)*2*k.word, cubAlign) + cubAlign + cubSpare
}

// scanPadding is how many tile states a scan has before the first.
const scanPadding = 32

// scan is the scratch of cub::DeviceScan over n elements of the index's size.
func (k cub) scan(n int64) int64 {
	return roundUp((divUp(n, k.scanTile)+scanPadding)*2*k.word, cubAlign) + cubSpare
}
