package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// DiagonalArgs is the diagonal of tril and triu.
type DiagonalArgs struct {
	Diagonal int64 `arg:"diagonal"`
}

// The triangles of a matrix.
var (
	Tril = define(op.Op{
		Name: "tril", Eval: evalTriangle(kernel.Tril), Sig: "torch.tril(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TrilBackward0", Grad: gradTriangle,
	})
	Triu = define(op.Op{
		Name: "triu", Eval: evalTriangle(kernel.Triu), Sig: "torch.triu(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TriuBackward0", Grad: gradTriangle,
	})
)

// triangle makes a row-major result whatever the input's order.
func triangle(c *op.Call) { c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType)) }

func gradTriangle(b *op.Back) {
	b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.Grads[0].DType))
}

// evalTriangle keeps a triangle, as its derivative does.
func evalTriangle(k *kernel.Kernel) *op.Eval {
	return &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return m.Launch(k, []kernel.Tensor{op.As(m, c.Target()), op.As(m, c.In[0])}, []int64{c.Args.(*DiagonalArgs).Diagonal})
		},
		Backward: func(m op.Machine, b *op.Back) error {
			return m.Launch(k, []kernel.Tensor{op.As(m, b.Results[0]), op.As(m, b.Grads[0])}, []int64{b.Args.(*DiagonalArgs).Diagonal})
		},
	}
}
