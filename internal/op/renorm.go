package op

import (
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/tensor"
)

// embeddingRenorm is embedding_renorm_: it scales the rows of a table that a step
// uses to a norm, each once. For that it sorts the indices and picks the
// different ones; the table is changed in place, outside of autograd.
var embeddingRenorm = define(Op{
	Name: "embedding_renorm_", Args: &EmbeddingArgs{}, Composite: true, Run: func(c *Call) {
		idx := c.In[1]
		if idx.Rank() == 0 || idx.Numel() == 0 {
			c.Fail("max_norm with indices of shape %v is not modelled", idx.Size)
		}
		outs := c.Do(Sort, &SortArgs{Dim: -1}, idx)
		c.Drop(outs[1])
		rows := outs[0]
		unique := c.NewShape(idx.DType, idx.Numel())
		count := c.NewShape(tensor.Int64)
		if !c.Env().FakeTensors {
			c.Drop(c.NewShape(tensor.Uint8, cub.Unique(c.Env().Arch, idx.DType.Size(), idx.Numel())))
		}
		c.Drop(count, unique, rows)
		c.Drop(c.Do1(RenormInPlace, c.Args, c.In...))
	},
	Source: "aten/src/ATen/native/cuda/Embedding.cu: embedding_renorm_cuda_",
})

// RenormInPlace is the change that it makes.
var RenormInPlace = define(Op{
	Name: "embedding_renorm_.table", Args: &EmbeddingArgs{}, Run: func(*Call) {}, InPlace: true,
	Eval: aside(func(a Arrays, c *Call) {
		args, w := c.Args.(*EmbeddingArgs), a.Array(c.In[0])
		if err := w.Renorm(a.Get(c.In[1]), args.NormType, *args.MaxNorm); err != nil {
			a.Fail(err)
		}
		a.Put(c.In[0], w.V)
	}, nil),
})
