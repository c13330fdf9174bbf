package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// EyeOfArgs is the number of rows and columns.
type EyeOfArgs struct {
	N int64 `arg:"n"`
}

// EyeOf is torch.eye(n, dtype=x.dtype).
var EyeOf = define(op.Op{
	Name: "eye.type", Args: &EyeOfArgs{}, Run: func(c *op.Call) {
		n := c.Args.(*EyeOfArgs).N
		c.Return(c.NewShape(c.In[0].DType, n, n))
	},
	Source: "aten/src/ATen/native/cuda/TensorFactories.cu: eye_out_cuda",
})

// BlockDiagonal is torch.block_diag(*torch.unbind(x)) of square matrices. The gradients of
// the blocks are views, of which UnbindBackward0 makes one tensor.
var BlockDiagonal = define(op.Op{
	Name: "block_diag.unbind", Run: func(c *op.Call) {
		x := c.In[0]
		n := x.Dim(0) * x.Dim(1)
		c.Return(c.NewShape(x.DType, n, n))
	},
	Node: "BlockDiagBackward0", Grad: func(b *op.Back) { b.Set(0, b.NewShape(b.InM[0].DType, b.InM[0].Size.Slice()...)) },
	Source: "aten/src/ATen/native/TensorShape.cpp: block_diag, unbind; torch/csrc/autograd/FunctionsManual.cpp: block_diag_backward, unbind_backward",
})

// KeepBlocksArgs is the share of blocks that become the identity.
type KeepBlocksArgs struct {
	P float64 `arg:"p"`
}

// KeepBlocks is PEFT's MultiplicativeDropoutLayer of BOFT, in training: some blocks become the
// identity, by a mask that is made of ones and zeros and is put in a random order, which the
// CPU draws.
var KeepBlocks = define(op.Op{
	Name: "multiplicative_dropout", Args: &KeepBlocksArgs{}, Composite: true, Run: func(c *op.Call) {
		x := c.In[0]
		blocks, size := x.Dim(0), x.Dim(1)
		float := tensor.Float32
		ones := c.NewShape(float, int64(c.Args.(*KeepBlocksArgs).P*float64(blocks)))
		zeros := c.NewShape(float, blocks-ones.Numel())
		mask := c.NewShape(float, blocks)
		c.Drop(zeros)
		c.Drop(ones)
		order := c.NewShape(tensor.Int64, blocks)
		shuffled := c.NewShape(float, blocks)
		c.Drop(order)
		c.Drop(mask)
		full := c.NewShape(float, blocks, 1, 1)
		eye := c.NewShape(float, size, size)
		repeated := c.NewShape(float, blocks, size, size)
		c.Drop(eye)
		rest := c.Do1(Rsub, &BinaryArgs{Other: op.Number{Set: true, Value: 1}}, full)
		kept := c.Do1(Mul, &BinaryArgs{}, rest, x)
		c.Drop(rest)
		replaced := c.Do1(Mul, &BinaryArgs{}, full, repeated)
		c.Return(c.Do1(Add, &AddArgs{}, kept, replaced))
		c.Drop(replaced)
		c.Drop(kept)
		c.Drop(shuffled)
		c.Drop(full)
		c.Drop(repeated)
	},
})

// Constrain is OFTRotationModule._project_batch of the numbers of skew-symmetric matrices, and
// what it gives copied into them, under torch.no_grad(): matrices that are too far from zero
// are brought nearer.
var Constrain = define(op.Op{
	Name: "copy_.project_batch", Args: &PutPairsArgs{}, Composite: true, Run: func(c *op.Call) {
		c.WithoutGrad(func() {
			q, n := c.In[0], c.Args.(*PutPairsArgs).N
			batch := q.Dim(0)
			matrices := func(d tensor.DType) *op.Tensor { return c.NewShape(d, batch, n, n) }
			matrix := matrices(q.DType)
			skew := matrices(q.DType)
			c.Drop(matrix)
			zero := c.NewShape(q.DType, n, n)
			diff := matrices(q.DType)
			again := matrices(q.DType)
			norm := c.Do1(VectorNorm, &NormArgs{ReduceArgs: ReduceArgs{Dim: []int64{1, 2}, KeepDim: true}}, again)
			c.Drop(again)
			mask := c.NewShape(tensor.Bool, batch, 1, 1)
			direction := matrices(q.DType)
			scaled := matrices(q.DType)
			c.Drop(direction)
			near := matrices(q.DType)
			c.Drop(scaled)
			out := matrices(q.DType)
			c.Drop(near)
			values := c.NewShape(q.DType, batch, q.Dim(1))
			for _, t := range []*op.Tensor{skew, zero, diff, norm, mask, out, values} {
				c.Drop(t)
			}
		})
	},
})
