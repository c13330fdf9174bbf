package op

import "github.com/memplan/memplan/internal/tensor"

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
			c.Drop(c.NewShape(tensor.Uint8, uniqueScratch(c.Env(), idx.DType, idx.Numel())))
		}
		c.Drop(count, unique, rows)
		c.Drop(c.Do1(RenormInPlace, c.Args, c.In...))
	},
	Source: "aten/src/ATen/native/cuda/Embedding.cu: embedding_renorm_cuda_",
})

// RenormInPlace is the change that it makes.
var RenormInPlace = define(Op{Name: "embedding_renorm_.table", Args: &EmbeddingArgs{}, Run: func(*Call) {}, InPlace: true})

// uniqueTiles are the items that a thread block of cub::DeviceSelect::Unique
// works on, for indices of 8 and of 4 bytes, by the least architecture; recorded
// with CUDA 12.4 on sm_70 to sm_90.
var uniqueTiles = []struct {
	arch        int
	long, short int64
}{
	{90, 4224, 6528}, {81, 640, 1280}, {80, 1920, 4608}, {0, 640, 1280},
}

// uniqueScratch is the scratch of cub::DeviceSelect::Unique over n indices: the
// state of each tile, and a counter.
func uniqueScratch(env *Env, d tensor.DType, n int64) int64 {
	for _, t := range uniqueTiles {
		if env.Arch < t.arch {
			continue
		}
		tile := t.long
		if d == tensor.Int32 {
			tile = t.short
		}
		return roundUp(divUp(n, tile)*8, cubAlign) + cubAlign + cubSpare
	}
	return 0
}
