package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// embedding is y = weight[index] for indices of any shape.
func embedding(x *Executor, c *op.Call) error {
	idx, w, y := c.In[0], c.In[1], c.Out[0]
	if idx.DType != tensor.Int64 {
		return errView
	}
	var o collector
	o.add(x.viewed(y, idx.Numel(), w.Dim(1)))
	o.add(x.operand(w), nil)
	o.add(x.viewed(idx, idx.Numel()))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.Embedding, o.ts, nil)
}

func embeddingGrad(x *Executor, b *op.Back) error {
	idx, g, y := b.SavedIn[0], b.Grads[0], b.Results[1]
	if idx.DType != tensor.Int64 {
		return errView
	}
	padding := int64(-1)
	if a := b.Args.(*op.EmbeddingArgs); a.PaddingIdx != nil {
		padding = *a.PaddingIdx
		if padding < 0 {
			padding += y.Dim(0)
		}
	}
	var o collector
	o.add(x.operand(y), nil)
	o.add(x.viewed(g, idx.Numel(), y.Dim(1)))
	o.add(x.viewed(idx, idx.Numel()))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.EmbeddingGrad, o.ts, []int64{padding})
}

// lookupRows read at indices.
var lookupRows = map[*op.Op]row{
	op.Embedding: row{forward: embedding, backward: embeddingGrad}.otherwise(embeddingAside),
}
