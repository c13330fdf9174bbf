package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

var _ = Matmul.Runs(matmul)

// Matmul is torch.matmul: products of vectors, matrices and batches
// (aten/src/ATen/native/LinearAlgebra.cpp: _matmul_impl).
var Matmul = define(op.Op{
	Name: "matmul", Sig: "@ matmul(input, other)", Composite: true, Cast: op.CastLower,
	Source: "aten/src/ATen/native/LinearAlgebra.cpp: _matmul_impl, should_fold",
})

func matmul(c *op.Call) {
	a, b := c.In[0], c.In[1]
	da, db := a.Rank(), b.Rank()
	if da == 0 || db == 0 || a.Dim(-1) != b.Dim(max(db-2, 0)) {
		c.Fail("shapes %v and %v do not multiply", a.Size, b.Size)
	}
	switch {
	case da == 2 && db == 2:
		c.Return(c.Do1(Mm, nil, a, b))
	case da == 1 || db == 1:
		vectorProduct(c, a, b)
	case folds(c, a, b):
		t1, t2, swap := a, b, db > da
		if swap {
			t1 = c.Local(c.Do1(Transpose, &TransposeArgs{Dim0: -2, Dim1: -1}, b))
			t2 = c.Local(c.Do1(T, nil, a))
		}
		shape := t1.Size.Slice()
		shape[len(shape)-1] = t2.Dim(1)
		flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{t1.Numel() / max(t1.Dim(-1), 1), t1.Dim(-1)}}, t1))
		y := c.Do1(Mm, nil, flat, t2)
		out := c.Do1(UnsafeView, &ShapeArgs{Shape: shape}, y)
		c.Drop(y)
		if swap {
			tr := c.Do1(Transpose, &TransposeArgs{Dim0: -2, Dim1: -1}, out)
			c.Local(out)
			out = c.Do1(Contiguous, nil, tr)
			c.Drop(tr)
		}
		c.Return(out)
	default:
		if da == 3 && db == 3 && a.Dim(0) != b.Dim(0) {
			if a.Dim(0) == 1 && c.Requires(a) {
				s := c.Local(c.Do1(Select, &SelectArgs{}, a))
				c.Return(c.Do1(Matmul, nil, s, b))
				return
			}
			if b.Dim(0) == 1 && c.Requires(b) {
				s := c.Local(c.Do1(Select, &SelectArgs{}, b))
				c.Return(c.Do1(Matmul, nil, a, s))
				return
			}
		}
		c.Return(batchedMatmul(c, a, b))
	}
}

// folds reports whether the larger operand is seen as one tall matrix.
func folds(c *op.Call, a, b *op.Tensor) bool {
	large, small := a, b
	l := a.Layout
	if b.Rank() > a.Rank() {
		large, small = b, a
		l = b.Transpose(b.Rank()-2, b.Rank()-1)
	}
	if large.Rank() < 3 || small.Rank() > 2 {
		return false
	}
	if c.Requires(small) {
		return true
	}
	if a.Rank() == 2 {
		return false
	}
	if large.Numel() == 0 {
		return true
	}
	for i := range l.Rank() - 2 {
		if l.Stride.At(i) != l.Stride.At(i+1)*l.Dim(i+1) {
			return false
		}
	}
	return true
}

// batchedMatmul expands both operands to a common batch and multiplies with bmm.
func batchedMatmul(c *op.Call, a, b *op.Tensor) *op.Tensor {
	lead := func(t *op.Tensor) tensor.Dims {
		var d tensor.Dims
		for i := range t.Rank() - 2 {
			d = d.Append(t.Dim(i))
		}
		return d
	}
	batch, err := tensor.Broadcast(lead(a), lead(b))
	if err != nil {
		c.Fail("batches do not multiply: %v", err)
	}
	flat := func(t *op.Tensor) *op.Tensor {
		e := c.Do1(Expand, &ShapeArgs{Shape: append(batch.Slice(), t.Dim(-2), t.Dim(-1))}, t)
		r := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{batch.Numel(), t.Dim(-2), t.Dim(-1)}}, e))
		c.Drop(e)
		return r
	}
	fa, fb := flat(a), flat(b)
	y := c.Local(c.Do1(Bmm, nil, fa, fb))
	return c.Do1(UnsafeView, &ShapeArgs{Shape: append(batch.Slice(), a.Dim(-2), b.Dim(-1))}, y)
}

// Products with vectors.
var (
	Dot = define(op.Op{
		Name: "dot", Eval: evalDot, Takes: op.OneType, Sig: "torch.dot(input, tensor)", Cast: op.CastPromote, Run: func(c *op.Call) {
			a, b := c.In[0], c.In[1]
			if a.Rank() != 1 || a.Size != b.Size || a.DType != b.DType {
				c.Fail("dot needs two vectors of one size and type, not %v of %v and %v of %v", a.Size, a.DType, b.Size, b.DType)
			}
			c.Return(c.NewShape(a.DType))
			c.BlasHandle()
		},
		Save: []op.Save{op.In(0, 1), op.In(1, 0)}, Node: "DotBackward0",
		Grad: func(b *op.Back) { // grad * tensor, grad * self
			for i := range 2 {
				if b.Need(i) {
					b.Set(i, b.Do1(MulTensor, nil, b.Grads[0], b.SavedIn(1-i)))
				}
			}
		},
		Source: "aten/src/ATen/native/cuda/Blas.cpp: dot_cuda",
	})
	Mv = define(op.Op{
		Name: "mv", Eval: evalMv, Takes: op.FloatsOfOneType, Sig: "torch.mv(input, vec)", Cast: op.CastLower, Run: func(c *op.Call) {
			m, v := c.In[0], c.In[1]
			if m.Rank() != 2 || v.Rank() != 1 || m.Dim(1) != v.Dim(0) || m.DType != v.DType {
				c.Fail("a matrix of shape %v and %v does not multiply a vector of shape %v and %v", m.Size, m.DType, v.Size, v.DType)
			}
			out := c.NewShape(m.DType, m.Dim(0))
			if v.Stride.At(0) == 0 { // an expanded number, as the gradient of a sum is
				c.Contiguous(v)
			}
			rows, cols := m.Stride.At(0), m.Stride.At(1)
			if !(rows == 1 && cols >= max(1, m.Dim(0))) && !(cols == 1 && rows >= max(1, m.Dim(1))) {
				c.Local(c.New(tensor.Contiguous(m.Size), m.DType))
			}
			c.BlasHandle()
			c.Return(out)
		},
		Save: []op.Save{op.In(0, 1), op.In(1, 0)}, Node: "MvBackward0",
		Source: "aten/src/ATen/native/Blas.cpp: mv; cuda/Blas.cpp: addmv_out_cuda",
	})
	_ = define(op.Op{
		Name: "mm.any", Sig: "torch.mm(input, mat2)", Composite: true, Run: func(c *op.Call) {
			if c.In[0].Rank() != 2 || c.In[1].Rank() != 2 {
				c.Fail("mm needs two matrices, not shapes %v and %v", c.In[0].Size, c.In[1].Size)
			}
			c.Return(c.Do1(Mm, nil, c.In...))
		},
	})
	_ = define(op.Op{ // a column times a row
		Name: "outer", Sig: "torch.outer(input, vec2)", Composite: true, Run: func(c *op.Call) {
			if c.In[0].Rank() != 1 || c.In[1].Rank() != 1 {
				c.Fail("outer needs two vectors, not shapes %v and %v", c.In[0].Size, c.In[1].Size)
			}
			column := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{c.In[0].Dim(0), 1}}, c.In[0]))
			c.Return(c.Do1(Mul, &BinaryArgs{}, column, c.In[1]))
		},
		Source: "aten/src/ATen/native/LinearAlgebra.cpp: outer",
	})
)

var _ = Mv.Derive(func(b *op.Back) { // grad.ger(vec), self.t().mv(grad)
	if b.Need(0) {
		g := b.Local(b.Alias(b.Grads[0], b.Grads[0].Unsqueeze(1), b.Grads[0].DType))
		b.Set(0, b.Do1(MulTensor, nil, g, b.SavedIn(1)))
	}
	if b.Need(1) {
		b.Set(1, b.Do1(Mv, nil, transposed(&b.Call, b.SavedIn(0)), b.Grads[0]))
	}
})

// vectorProduct is matmul where an operand is a vector.
func vectorProduct(c *op.Call, a, b *op.Tensor) {
	switch {
	case a.Rank() == 1 && b.Rank() == 1:
		c.Return(c.Do1(Dot, nil, a, b))
	case a.Rank() == 2:
		c.Return(c.Do1(Mv, nil, a, b))
	case b.Rank() == 2: // a row, whose product loses its first dimension in place
		row := c.Local(c.Do1(Unsqueeze, &DimArgs{}, a))
		y := c.Local(c.Do1(Mm, nil, row, b))
		c.Return(c.Do1(Squeeze, &SqueezeArgs{Dim: []int64{0}}, y))
	case folds(c, a, b): // the batch of matrices as one tall matrix
		batch, vector := a, b
		if b.Rank() > 1 {
			batch, vector = c.Local(c.Do1(Transpose, &TransposeArgs{Dim0: -2, Dim1: -1}, b)), a
		}
		shape := batch.Size.Slice()[:batch.Rank()-1]
		flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{batch.Numel() / max(batch.Dim(-1), 1), batch.Dim(-1)}}, batch))
		y := c.Local(c.Do1(Mv, nil, flat, vector))
		c.Return(c.Do1(UnsafeView, &ShapeArgs{Shape: shape}, y))
	default:
		c.Return(batchedVector(c, a, b))
	}
}

// batchedVector expands a vector to a batch and multiplies with bmm.
func batchedVector(c *op.Call, a, b *op.Tensor) *op.Tensor {
	batches := func(t *op.Tensor, shape ...int64) *op.Tensor { // expanded, then with one dimension of batches
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
		s := c.Local(c.Do1(Squeeze, &SqueezeArgs{Dim: []int64{-1}}, y))
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

var _ = define(op.Op{
	Name: "tensordot", Sig: "torch.tensordot(a, b, dims: int = 2)", Args: &TensordotArgs{}, Cast: op.CastPromote, Composite: true, Run: func(c *op.Call) {
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
		matrix := func(x *op.Tensor, shape ...int64) *op.Tensor { // permuted as it lies, and reshaped
			order := make([]int64, x.Rank())
			for i := range order {
				order[i] = int64(i)
			}
			p := c.Do1(Permute, &PermuteArgs{Dims: order}, x)
			defer c.Drop(p)
			return c.Local(c.Do1(Reshape, &ShapeArgs{Shape: shape}, p))
		}
		sum := tensor.D(b.Size.Slice()[:n]...).Numel()
		if c.Env().Torch.Has(torchver.TensordotOfAll) && tensor.D(rows...).Numel() == 1 && tensor.D(cols...).Numel() == 1 {
			c.Return(c.Do1(Reshape, &ShapeArgs{Shape: append(rows[:len(rows):len(rows)], cols...)}, contracted(c, a, b, sum)))
			return
		}
		x, y := matrix(a, tensor.D(rows...).Numel(), sum), matrix(b, sum, tensor.D(cols...).Numel())
		z := c.Local(c.Do1(Mm, nil, x, y))
		c.Return(c.Do1(Reshape, &ShapeArgs{Shape: append(rows[:len(rows):len(rows)], cols...)}, z))
	},
	Source: "torch/functional.py: tensordot; aten/src/ATen/native/Linear.cpp: tensordot",
})

// contracted is tensordot of two tensors of n elements over all of them.
func contracted(c *op.Call, a, b *op.Tensor, n int64) *op.Tensor {
	if a.IsContiguous() && b.IsContiguous() {
		flat := &ShapeArgs{Shape: []int64{n}}
		return c.Local(c.Do1(Dot, nil, c.Local(c.Do1(Reshape, flat, a)), c.Local(c.Do1(Reshape, flat, b))))
	}
	product := c.Local(c.Do1(Mul, &BinaryArgs{}, c.Local(c.Do1(Squeeze, &SqueezeArgs{}, a)), c.Local(c.Do1(Squeeze, &SqueezeArgs{}, b))))
	return c.Local(c.Do1(Sum, &ReduceArgs{}, product))
}

// batched is an operand as a batch of one matrix.
func batched(t kernel.Tensor) kernel.Tensor {
	t.Size, t.Stride = t.Size.Insert(0, 1), t.Stride.Insert(0, 0)
	return t
}

// column is a vector as a matrix of one column.
func column(m op.Machine, t *op.Tensor) kernel.Tensor { return m.At(t, t.Unsqueeze(1)) }

// Products with vectors. The derivative of dot is made of products.
var (
	evalDot = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error {
		a, b := c.In[0], c.In[1]
		ts := []kernel.Tensor{op.As(m, c.Out[0]), op.As(m, a), op.As(m, b), {}}
		for i, stride := range []tensor.Dims{tensor.D(0, 0, 0), tensor.D(0, 0, a.Stride.At(0)), tensor.D(0, b.Stride.At(0), 0)} {
			ts[i].Stride = stride
		}
		ts[0].Size, ts[1].Size, ts[2].Size = tensor.D(1, 1, 1), tensor.D(1, 1, a.Numel()), tensor.D(1, b.Numel(), 1)
		return m.Launch(kernel.Gemm, ts, nil, 1, 0)
	}}
	evalMv = &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return m.Launch(kernel.Gemm, []kernel.Tensor{batched(column(m, c.Out[0])), batched(op.As(m, c.In[0])), batched(column(m, c.In[1])), {}}, nil, 1, 0)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			g := b.Grads[0]
			if y := m.Wanted(b, 0); y != nil { // grad.ger(vec)
				col := g.Unsqueeze(1)
				l, err := col.Expand(y.Size.Slice())
				if err != nil {
					return err
				}
				vec, err := op.Broadcasted(m, b.SavedIn(1), y.Size.Slice()...)
				if err != nil {
					return err
				}
				if err := m.Launch(kernel.Mul, []kernel.Tensor{op.As(m, y), m.At(g, l), vec}, nil); err != nil {
					return err
				}
			}
			if y := m.Wanted(b, 1); y != nil {
				a := b.SavedIn(0)
				return m.Launch(kernel.Gemm, []kernel.Tensor{batched(column(m, y)), batched(m.At(a, a.Transpose(0, 1))), batched(column(m, g)), {}}, nil, 1, 0)
			}
			return nil
		},
	}
)
