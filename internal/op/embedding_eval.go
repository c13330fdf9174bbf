package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// padding is the row that padding_idx names of so many; -1: none.
func (a *EmbeddingArgs) padding(rows int64) int64 {
	if a.PaddingIdx == nil {
		return -1
	}
	return int64(array.Dim(int(*a.PaddingIdx), int(rows)))
}

// evalEmbedding looks up rows. Its kernels take indices of int64 without gaps.
var evalEmbedding = (&Eval{
	Forward: func(m Machine, c *Call) error {
		idx, w := c.In[0], c.In[1]
		if idx.DType != tensor.Int64 {
			return errView
		}
		l := launch{m: m}
		l.seen(c.Out[0], idx.Numel(), w.Dim(1))
		l.add(w)
		l.seen(idx, idx.Numel())
		return l.run(kernel.Embedding, nil)
	},
	Backward: func(m Machine, b *Back) error {
		idx, y := b.SavedIn(0), b.Results[1]
		if idx.DType != tensor.Int64 {
			return errView
		}
		l := launch{m: m}
		l.add(y)
		l.seen(b.Grads[0], idx.Numel(), y.Dim(1))
		l.seen(idx, idx.Numel())
		return l.run(kernel.EmbeddingGrad, []int64{b.Args.(*EmbeddingArgs).padding(y.Dim(0))})
	},
}).otherwise(aside(func(a Arrays, c *Call) {
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
}, func(a Arrays, b *Back) {
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
