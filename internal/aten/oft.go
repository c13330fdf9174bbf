package aten

import (
	"github.com/memplan/memplan/internal/op"
)

// AddTimesArgs is the number by which add_ multiplies what it adds.
type AddTimesArgs struct {
	Alpha float64 `arg:"alpha"`
}

// AddTimesInPlace is a.add_(b, alpha=n) with another number than 1.
var AddTimesInPlace = define(op.Op{
	Name: "add_.alpha", Args: &AddTimesArgs{}, Run: func(c *op.Call) { checkInPlace(c) }, InPlace: true,
	Node: "AddBackward0", Grad: func(b *op.Back) {
		if b.Need(1) {
			b.Set(1, b.NewLike(b.Grads[0])) // maybe_multiply(grad, alpha)
		}
		if b.Need(0) {
			b.Pass(0)
		}
	},
	Source: "tools/autograd/derivatives.yaml: add.Tensor",
})

// PutPairsArgs is the number of rows and columns of matrices.
type PutPairsArgs struct {
	N int64 `arg:"n"`
}

// PutPairs is what m[:, rows, cols] = values makes of zeros: matrices with the elements of
// the rows of a matrix at pairs of indices. m[:] is a view, so that its node is CopySlices,
// which copies the gradient of m, and then that of the view.
var PutPairs = define(op.Op{
	Name: "index_put_.pairs", Args: &PutPairsArgs{}, Run: func(c *op.Call) {
		n := c.Args.(*PutPairsArgs).N
		c.Return(c.NewShape(c.In[0].DType, c.In[0].Dim(0), n, n))
	},
	Save: []op.Save{op.In(1), op.In(2)}, Node: "IndexPutBackward0", Grad: func(b *op.Back) {
		g, in := b.Grads[0], b.InM[0]
		copied := b.NewShape(g.DType, g.Size.Slice()...)
		sliced := b.NewShape(g.DType, g.Size.Slice()...)
		values := b.NewShape(in.DType, in.Size.Slice()...) // grad.index(indices)
		b.Drop(sliced)
		b.Drop(copied)
		if in.Dim(0) == 1 { // of values without its leading dimension (slicePrefix1sSize), to which the sum goes
			sum := b.NewShape(in.DType, in.Size.Slice()...)
			b.Drop(values)
			values = sum
		}
		b.Set(0, values)
	},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_put_; tools/autograd/derivatives.yaml; torch/csrc/autograd/functions/tensor.cpp: CopySlices; torch/csrc/autograd/python_variable_indexing.cpp: THPVariable_setitem",
})
