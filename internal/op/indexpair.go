package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// IndexPair is x[first, second] with int64 tensors in the places of the first
// two dimensions, which are broadcast against each other.
var IndexPair = define(Op{
	Name: "index.pair", Eval: evalPairs, Indices: []Indices{indexing(1, 0, 0), indexing(2, 0, 1)}, Sig: "[] index_pair(self, first, second)", Run: func(c *Call) {
		x, i, j := c.In[0], c.In[1], c.In[2]
		if x.Rank() < 2 || i.DType != tensor.Int64 || j.DType != tensor.Int64 {
			c.Fail("two indices must be int64 and take two dimensions, not %v and %v of shape %v", i.DType, j.DType, x.Size)
		}
		size, err := tensor.Broadcast(i.Size, j.Size)
		if err != nil {
			c.Fail("indices: %v", err)
		}
		// expand_outplace; then all indices get the same strides: if they
		// differ, each becomes contiguous.
		li, err1 := i.Expand(size.Slice())
		lj, err2 := j.Expand(size.Slice())
		if err1 != nil || err2 != nil {
			c.Fail("indices of shapes %v and %v do not fit", i.Size, j.Size)
		}
		if li.Stride != lj.Stride {
			for _, l := range []tensor.Layout{li, lj} {
				if !l.IsContiguous() {
					c.Local(c.New(tensor.Contiguous(l.Size), tensor.Int64))
				}
			}
		}
		for k := 2; k < x.Rank(); k++ {
			size = size.Append(x.Dim(k))
		}
		c.Return(c.New(tensor.Contiguous(size), x.DType))
	},
	Save: []Save{In(1), In(2)}, Node: "IndexBackward0",
	Grad: func(b *Back) { // by sorted indices, as that of one index
		g, in := b.Grads[0], b.InM[0]
		b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
		slice := int64(1)
		for i := 2; i < in.Rank(); i++ {
			slice *= in.Dim(i)
		}
		n := g.Numel() / max(slice, 1)
		b.linearIndex(n, 2)
		b.putSorted(g, n, in.Numel(), slice)
	},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index, make_info; cuda/Indexing.cu: index_put_with_sort_kernel",
})

// evalPairs takes the elements that two indices, broadcast against each other, name.
var evalPairs = aside(func(a Arrays, c *Call) {
	x, y := a.Array(c.In[0]), make([]float64, c.Out[0].Numel())
	pairs(a, x.Size, c.In[1], c.In[2], func(to, from int) { y[to] = x.V[from] })
	a.Put(c.Out[0], y)
}, func(a Arrays, b *Back) {
	if r := a.Wanted(b, 0); r != nil {
		g, out := a.Get(b.Grads[0]), make([]float64, r.Numel())
		pairs(a, r.Size.Ints(), b.SavedIn(1), b.SavedIn(2), func(to, from int) { out[from] += g[to] })
		a.Put(r, out)
	}
})

func pairs(a Arrays, size []int, i, j *Tensor, f func(to, from int)) {
	lead, err := tensor.Broadcast(i.Size, j.Size)
	if err == nil {
		err = array.Pairs(size, a.Like(i, lead), a.Like(j, lead), f)
	}
	if err != nil {
		a.Fail(err)
	}
}
