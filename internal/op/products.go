package op

import "github.com/memplan/memplan/internal/tensor"

// Products with vectors.
var (
	Dot = define(Op{
		Name: "dot", Eval: evalDot, Takes: (*Call).oneType, Sig: "torch.dot(input, tensor)", Cast: CastPromote, Run: func(c *Call) {
			a, b := c.In[0], c.In[1]
			if a.Rank() != 1 || a.Size != b.Size || a.DType != b.DType {
				c.Fail("dot needs two vectors of one size and type, not %v of %v and %v of %v", a.Size, a.DType, b.Size, b.DType)
			}
			c.Return(c.NewShape(a.DType))
			c.BlasHandle()
		},
		Save: []Save{In(0, 1), In(1, 0)}, Node: "DotBackward0",
		Grad: func(b *Back) { // grad * tensor, grad * self
			for i := range 2 {
				if b.Need(i) {
					b.Set(i, b.Do1(MulTensor, nil, b.Grads[0], b.SavedIn(1-i)))
				}
			}
		},
		Source: "aten/src/ATen/native/cuda/Blas.cpp: dot_cuda",
	})
	Mv = define(Op{
		Name: "mv", Eval: evalMv, Takes: (*Call).floatsOfOneType, Sig: "torch.mv(input, vec)", Cast: CastLower, Run: func(c *Call) {
			m, v := c.In[0], c.In[1]
			if m.Rank() != 2 || v.Rank() != 1 || m.Dim(1) != v.Dim(0) || m.DType != v.DType {
				c.Fail("a matrix of shape %v and %v does not multiply a vector of shape %v and %v", m.Size, m.DType, v.Size, v.DType)
			}
			out := c.NewShape(m.DType, m.Dim(0))
			if v.Stride.At(0) == 0 { // an expanded number, as the gradient of a sum is
				c.contiguous(v)
			}
			rows, cols := m.Stride.At(0), m.Stride.At(1)
			if !(rows == 1 && cols >= max(1, m.Dim(0))) && !(cols == 1 && rows >= max(1, m.Dim(1))) {
				c.Local(c.New(tensor.Contiguous(m.Size), m.DType))
			}
			c.BlasHandle()
			c.Return(out)
		},
		Save: []Save{In(0, 1), In(1, 0)}, Node: "MvBackward0",
		Source: "aten/src/ATen/native/Blas.cpp: mv; cuda/Blas.cpp: addmv_out_cuda",
	})
	_ = define(Op{
		Name: "mm.any", Sig: "torch.mm(input, mat2)", Composite: true, Run: func(c *Call) {
			if c.In[0].Rank() != 2 || c.In[1].Rank() != 2 {
				c.Fail("mm needs two matrices, not shapes %v and %v", c.In[0].Size, c.In[1].Size)
			}
			c.Return(c.Do1(Mm, nil, c.In...))
		},
	})
	_ = define(Op{ // a column times a row
		Name: "outer", Sig: "torch.outer(input, vec2)", Composite: true, Run: func(c *Call) {
			if c.In[0].Rank() != 1 || c.In[1].Rank() != 1 {
				c.Fail("outer needs two vectors, not shapes %v and %v", c.In[0].Size, c.In[1].Size)
			}
			column := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{c.In[0].Dim(0), 1}}, c.In[0]))
			c.Return(c.Do1(Mul, &BinaryArgs{}, column, c.In[1]))
		},
		Source: "aten/src/ATen/native/LinearAlgebra.cpp: outer",
	})
)

var _ = Mv.derive(func(b *Back) { // grad.ger(vec), self.t().mv(grad)
	if b.Need(0) {
		g := b.Local(b.Alias(b.Grads[0], b.Grads[0].Unsqueeze(1), b.Grads[0].DType))
		b.Set(0, b.Do1(MulTensor, nil, g, b.SavedIn(1)))
	}
	if b.Need(1) {
		b.Set(1, b.Do1(Mv, nil, b.transposed(b.SavedIn(0)), b.Grads[0]))
	}
})

// vectorProduct is matmul where an operand is a vector.
func (c *Call) vectorProduct(a, b *Tensor) {
	switch {
	case a.Rank() == 1 && b.Rank() == 1:
		c.Return(c.Do1(Dot, nil, a, b))
	case a.Rank() == 2:
		c.Return(c.Do1(Mv, nil, a, b))
	case b.Rank() == 2: // a row, whose product loses its first dimension in place
		row := c.Local(c.Do1(Unsqueeze, &DimArgs{}, a))
		y := c.Local(c.Do1(Mm, nil, row, b))
		c.Return(c.Do1(Squeeze, &DimArgs{}, y))
	case c.folds(a, b): // the batch of matrices as one tall matrix
		batch, vector := a, b
		if b.Rank() > 1 {
			batch, vector = c.Local(c.Do1(Transpose, &TransposeArgs{Dim0: -2, Dim1: -1}, b)), a
		}
		shape := batch.Size.Slice()[:batch.Rank()-1]
		flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{batch.Numel() / max(batch.Dim(-1), 1), batch.Dim(-1)}}, batch))
		y := c.Local(c.Do1(Mv, nil, flat, vector))
		c.Return(c.Do1(UnsafeView, &ShapeArgs{Shape: shape}, y))
	default:
		c.Return(c.batchedVector(a, b))
	}
}

// batchedVector expands a vector to a batch and multiplies with bmm.
func (c *Call) batchedVector(a, b *Tensor) *Tensor {
	batches := func(t *Tensor, shape ...int64) *Tensor { // expanded, then with one dimension of batches
		e := c.Local(c.Do1(Expand, &ShapeArgs{Shape: shape}, t))
		flat := append([]int64{-1}, shape[max(a.Rank(), b.Rank())-2:]...)
		return c.Local(c.Do1(Reshape, &ShapeArgs{Shape: flat}, e))
	}
	if b.Rank() == 1 {
		shape := a.Size.Slice()
		lead := shape[: len(shape)-2 : len(shape)-2]
		left := batches(a, shape...)
		right := c.Local(c.Do1(Unsqueeze, &DimArgs{Dim: 2}, batches(b, append(lead, b.Dim(0))...)))
		y := c.Local(c.Do1(Bmm, nil, left, right))
		s := c.Local(c.Do1(Squeeze, &DimArgs{Dim: -1}, y))
		return c.Do1(UnsafeView, &ShapeArgs{Shape: shape[:len(shape)-1]}, s)
	}
	shape := b.Size.Slice()
	lead := shape[: len(shape)-2 : len(shape)-2]
	left, right := batches(a, append(lead, 1, a.Dim(0))...), batches(b, shape...)
	y := c.Local(c.Do1(Bmm, nil, left, right))
	return c.Do1(UnsafeView, &ShapeArgs{Shape: append(lead, b.Dim(-1))}, y)
}

// TensordotArgs is the number of dimensions that tensordot sums: the last of the
// one and the first of the other.
type TensordotArgs struct {
	Dims int64 `arg:"dims"`
}

var _ = define(Op{
	Name: "tensordot", Sig: "torch.tensordot(a, b, dims: int = 2)", Args: &TensordotArgs{}, Cast: CastPromote, Composite: true, Run: func(c *Call) {
		a, b, n := c.In[0], c.In[1], int(c.Args.(*TensordotArgs).Dims)
		if n < 0 || n > a.Rank() || n > b.Rank() {
			c.Fail("%d dimensions of shapes %v and %v cannot be summed", n, a.Size, b.Size)
		}
		rows, cols := a.Size.Slice()[:a.Rank()-n], b.Size.Slice()[n:]
		if sums := b.Size.Slice()[:n]; tensor.D(sums...) != tensor.D(a.Size.Slice()[a.Rank()-n:]...) {
			c.Fail("shapes %v and %v do not agree in the dimensions that are summed", a.Size, b.Size)
		}
		if len(rows)+len(cols) > tensor.MaxRank {
			c.Fail("more than %d dimensions are not handled", tensor.MaxRank)
		}
		matrix := func(x *Tensor, shape ...int64) *Tensor { // permuted as it lies, and reshaped
			order := make([]int64, x.Rank())
			for i := range order {
				order[i] = int64(i)
			}
			p := c.Do1(Permute, &PermuteArgs{Dims: order}, x)
			defer c.Drop(p)
			return c.Local(c.Do1(Reshape, &ShapeArgs{Shape: shape}, p))
		}
		sum := tensor.D(b.Size.Slice()[:n]...).Numel()
		x, y := matrix(a, tensor.D(rows...).Numel(), sum), matrix(b, sum, tensor.D(cols...).Numel())
		z := c.Local(c.Do1(Mm, nil, x, y))
		c.Return(c.Do1(Reshape, &ShapeArgs{Shape: append(rows[:len(rows):len(rows)], cols...)}, z))
	},
	Source: "torch/functional.py: tensordot; aten/src/ATen/native/Linear.cpp: tensordot",
})
