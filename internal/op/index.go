package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/tensor"
)

// indexDim checks an int64 index of at least one dimension.
func (c *Call) indexDim(x, idx *Tensor, dim int) int {
	d := c.dim(dim, x.Rank())
	if x.Rank() == 0 {
		c.Fail("a tensor without dimensions cannot be indexed")
	}
	if idx.DType != tensor.Int64 || idx.Rank() == 0 || idx.Rank()+x.Rank()-1 > tensor.MaxRank {
		c.Fail("the index must be int64 with at least one dimension, not %v of shape %v", idx.DType, idx.Size)
	}
	return d
}

// IndexSelect takes some indices of a dimension.
var IndexSelect = define(Op{
	Name: "index_select", Eval: evalSelect, Indices: indexingAlong, Sig: "torch.index_select(input, dim: int, index)", Args: &DimArgs{}, Run: func(c *Call) {
		x, idx := c.In[0], c.In[1]
		d := c.indexDim(x, idx, c.Args.(*DimArgs).Dim)
		if idx.Rank() != 1 {
			c.Fail("the index must have one dimension, not shape %v", idx.Size)
		}
		c.Return(c.grown(x.DType, x.Size.Set(d, idx.Dim(0)).Slice()...))
	},
	Rows: indexed, Save: []Save{In(1)}, Node: "IndexSelectBackward0",
	Grad: func(b *Back) { // zeros, to which the gradient is added
		in := tensor.Contiguous(b.InM[0].Size)
		b.Set(0, b.New(in, b.Grads[0].DType))
		if b.Env().Deterministic {
			b.putDeterministic(in, b.SavedIn(1), b.Local(b.NewLike(b.Grads[0])), b.dim(b.Args.(*DimArgs).Dim, in.Rank()))
		}
	},
	Source: "aten/src/ATen/native/cuda/Indexing.cu: index_select_cuda; FunctionsManual.cpp: index_select_backward",
})

// Index is x[:, index] with an int64 tensor in the place of dim, whose
// dimensions stand in the result for it: each ":" is a view, as it is for
// integers and slices.
var _ = define(Op{
	Name: "index.any", Sig: "[] index(self, index, dim: int = 0)", Args: &DimArgs{}, Composite: true, Run: func(c *Call) {
		x, idx := c.In[0], c.In[1]
		d := c.indexDim(x, idx, c.Args.(*DimArgs).Dim)
		x = c.Keep(x)
		for i := range d {
			y := c.Do1(Slice, &SliceArgs{Dim: i, Step: 1}, x)
			c.Drop(x)
			x = y
		}
		c.Local(x)
		c.Return(c.Do1(IndexTensor, &DimArgs{Dim: d}, x, idx))
	},
	Source: "torch/csrc/autograd/python_variable_indexing.cpp",
})

// IndexTensor takes elements along a dimension at indices of any shape.
var IndexTensor = define(Op{
	Name: "index", Eval: evalSelect, Indices: indexingAlong, Args: &DimArgs{}, Run: func(c *Call) {
		x, idx := c.In[0], c.In[1]
		d := c.Args.(*DimArgs).Dim
		// AdvancedIndex: the source seen with stride 0 along the indexed
		// dimension, the index along no other.
		src, at := tensor.Layout{}, tensor.Layout{}
		extend := func(l *tensor.Layout, n, s int64) { l.Size, l.Stride = l.Size.Append(n), l.Stride.Append(s) }
		for i := range x.Rank() {
			if i != d {
				extend(&src, x.Dim(i), x.Stride.At(i))
				extend(&at, 1, 0)
				continue
			}
			for k := range idx.Rank() {
				extend(&src, idx.Dim(k), 0)
				extend(&at, idx.Dim(k), idx.Stride.At(k))
			}
		}
		l, err := tensor.Elementwise(&src, &at)
		if err != nil {
			c.Fail("%v", err)
		}
		c.Return(c.New(l, x.DType))
	},
	Rows: indexed, Save: []Save{In(1)}, Node: "IndexBackward0", Grad: gradIndex,
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index; cuda/Indexing.cu: index_put_with_sort_kernel",
})

// indexed is the index of a dimension, and what it indexes.
func indexed(c *Call) (index *Tensor, rows int64) {
	return c.In[1], c.In[0].Dim(c.dim(c.Args.(*DimArgs).Dim, c.In[0].Rank()))
}

// gradIndex adds the gradient to zeros by sorted indices
// (index_put_with_sort_kernel).
func gradIndex(b *Back) {
	idx, g, in := b.SavedIn(1), b.Grads[0], b.InM[0]
	d := b.Args.(*DimArgs).Dim
	b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
	n := idx.Numel()
	b.linearIndex(n, 1)
	slice := int64(1)
	for i := d + 1; i < in.Rank(); i++ {
		slice *= in.Dim(i)
	}
	b.putSorted(g, n, in.Numel(), slice)
}

// linearIndex adds up so many indices of n elements, each times the stride of
// its dimension (computeLinearIndex).
func (c *Call) linearIndex(n int64, indices int) {
	vec := func() *Tensor { return c.NewShape(tensor.Int64, n) }
	for i := range indices {
		wrapped := vec()
		index := vec()
		c.Drop(wrapped)
		if i == 0 {
			c.Local(index)
		} else {
			c.Drop(index)
		}
	}
}

// putSorted sorts n linear indices of slices of a tensor of numel elements and
// adds g by them.
func (c *Call) putSorted(g *Tensor, n, numel, slice int64) {
	c.contiguous(g)
	if n == 0 || numel == 0 {
		return
	}
	vec := func() *Tensor { return c.NewShape(tensor.Int64, n) }
	c.Local(vec()) // sorted
	c.Local(vec()) // original positions
	c.Local(vec()) // range
	c.filled(tensor.Int64)
	c.Drop(c.NewShape(tensor.Uint8, cub.Words64(c.Env().Arch).SortBits(n, bitLength((numel-1)/slice))))
}

// bitLength is the number of bits that n needs, at least 1.
func bitLength(n int64) int64 {
	bits := int64(1)
	for n > 1 {
		n >>= 1
		bits++
	}
	return bits
}

// evalSelect takes slices by an index.
var evalSelect = linear(func(args any) array.Linear { return array.Select(args.(*DimArgs).Dim) }, nil)
