package op

import "github.com/memplan/memplan/internal/tensor"

// Linear is F.linear (aten/src/ATen/native/Linear.cpp): one addmm where the
// input is a matrix or contiguous and there is a bias, else matmul and an
// in-place addition.
var Linear = define(Op{
	Name: "linear", Takes: (*Call).oneType, Sig: "F.linear(input, weight, bias: tensor? = None)", Composite: true, Cast: CastLower,
	Run: func(c *Call) {
		x, w, bias := c.In[0], c.In[1], c.Opt(2)
		if w.Rank() != 2 {
			c.Fail("weight must have two dimensions, not shape %v", w.Size)
		}
		if x.Rank() == 0 || x.Dim(-1) != w.Dim(-1) {
			c.Fail("input of shape %v does not fit weight of shape %v", x.Size, w.Size)
		}
		if bias != nil && x.Rank() == 2 {
			wt := c.Local(c.Do1(T, nil, w))
			c.Return(c.Do1(Addmm, nil, bias, x, wt))
			return
		}
		if bias != nil && (x.Rank() == 3 || bias.Rank() == 1) && x.IsContiguous() {
			outer := append([]int64(nil), x.Size.Slice()[:x.Rank()-1]...)
			rows := int64(1)
			for _, n := range outer {
				rows *= n
			}
			flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{rows, x.Dim(-1)}}, x))
			wt := c.Do1(T, nil, w)
			y := c.Local(c.Do1(Addmm, nil, bias, flat, wt))
			c.Drop(wt)
			c.Return(c.Do1(View, &ShapeArgs{Shape: append(outer, y.Dim(1))}, y))
			return
		}
		wt := c.Do1(T, nil, w)
		y := c.Do1(Matmul, nil, x, wt)
		c.Drop(wt)
		switch {
		case bias != nil && c.Env().TorchDispatch:
			c.Return(c.Do1(Add, &AddArgs{}, y, bias))
			c.Drop(y)
			return
		case bias != nil:
			c.Drop(c.Do1(AddInPlace, &AddArgs{}, y, bias))
		}
		c.Return(y)
	},
	Source: "aten/src/ATen/native/Linear.cpp: linear, _flatten_nd_linear",
})

// T is the transpose of a matrix.
var T = define(Op{
	Name: "t", View: func(c *Call) []tensor.Layout {
		x := c.In[0]
		if x.Rank() < 2 {
			return []tensor.Layout{x.Layout}
		}
		return []tensor.Layout{x.Transpose(0, 1)}
	}, Node: "TBackward0",
})

// transposed returns a view of a matrix, to be dropped at the row's end.
func (c *Call) transposed(t *Tensor) *Tensor { return c.Local(c.Alias(t, t.Transpose(0, 1), t.DType)) }

// Addmm is bias + mat1 @ mat2.
var Addmm = define(Op{
	Name: "addmm", Eval: evalAddmm, Flops: productFlops(1), Takes: (*Call).floatsOfOneType, Sig: "torch.addmm(input, mat1, mat2)", Cast: CastLower, Run: func(c *Call) {
		bias, a, b := c.In[0], c.In[1], c.In[2]
		if a.Rank() != 2 || b.Rank() != 2 || a.Dim(1) != b.Dim(0) {
			c.Fail("matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		if size := tensor.D(a.Dim(0), b.Dim(1)); bias.Size != size {
			if d, err := tensor.Broadcast(bias.Size, size); err != nil || d != size {
				c.Fail("bias of shape %v does not fit a result of shape %v", bias.Size, size)
			}
		}
		out := c.NewShape(a.DType, a.Dim(0), b.Dim(1))
		c.blasMatrices(a, b)
		if out.Numel() > 0 && c.usesLt(bias, b, out) {
			// The Lt call has a workspace of its own, beside the handle's.
			var ws *Tensor
			if n := c.Env().LtWorkspace(); n > 0 {
				ws = c.NewShape(tensor.Uint8, n)
			}
			c.BlasHandle()
			c.Drop(ws)
		} else {
			c.BlasHandle()
		}
		c.Return(out)
	},
	Save: []Save{In(1, 2), In(2, 1)}, Node: "AddmmBackward0",
	Grad: func(b *Back) {
		g := b.Grads[0]
		if b.Need(1) {
			b.Set(1, b.gradLeft(g, b.SavedIn(2), b.InM[1]))
		}
		if b.Need(2) {
			b.Set(2, b.gradRight(g, b.SavedIn(1), b.InM[2]))
		}
		if b.Need(0) {
			b.Pass(0)
		}
	},
	Source: "aten/src/ATen/native/cuda/Blas.cpp: addmm_out_cuda_impl",
})

// usesLt reports whether addmm takes the cublasLt path with a fused bias.
func (c *Call) usesLt(bias, mat2, out *Tensor) bool {
	return bias.Rank() == 1 && bias.Dim(0) == mat2.Dim(1) && bias.IsContiguous() && out.IsContiguous() &&
		out.DType.IsFloating() && mat2.Dim(0) > 1 && mat2.Dim(1) > 1
}

// Mm is the product of two matrices.
var Mm = define(Op{
	Name: "mm", Eval: evalMm, Flops: productFlops(0), Takes: (*Call).floatsOfOneType, Cast: CastLower, Run: func(c *Call) {
		a, b := c.In[0], c.In[1]
		if a.Dim(1) != b.Dim(0) {
			c.Fail("matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		out := c.NewShape(a.DType, a.Dim(0), b.Dim(1))
		c.blasMatrices(a, b)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []Save{In(1, 0), In(0, 1)}, Node: "MmBackward0",
})

// What calls its own row.
var (
	_ = Matmul.runs(matmul)
	_ = Mm.derive(func(b *Back) {
		g := b.Grads[0]
		if b.Need(1) {
			b.Set(1, b.gradRight(g, b.SavedIn(0), b.InM[1]))
		}
		if b.Need(0) {
			b.Set(0, b.gradLeft(g, b.SavedIn(1), b.InM[0]))
		}
	})
	_ = Bmm.derive(func(b *Back) {
		g := b.Grads[0]
		swapped := func(t *Tensor) *Tensor { return b.Local(b.Alias(t, t.Transpose(1, 2), t.DType)) }
		if b.Need(1) {
			b.Set(1, b.Do1(Bmm, nil, swapped(b.SavedIn(0)), g))
		}
		if b.Need(0) {
			b.Set(0, b.Do1(Bmm, nil, g, swapped(b.SavedIn(1))))
		}
	})
)

// gradLeft is the gradient of a in a @ b: grad @ b.T, computed transposed if a
// was column-major (mm_mat1_backward).
func (b *Back) gradLeft(g, mat2 *Tensor, a Meta) *Tensor {
	if a.Stride.At(0) == 1 && a.Stride.At(1) == a.Dim(0) {
		y := b.Do1(Mm, nil, mat2, b.transposed(g))
		defer b.Drop(y)
		return b.ViewOf(y, y.Transpose(0, 1))
	}
	return b.Do1(Mm, nil, g, b.transposed(mat2))
}

// gradRight is the gradient of m in a @ m: a.T @ grad, computed transposed if
// m was column-major, as a transposed weight is (mm_mat2_backward).
func (b *Back) gradRight(g, mat1 *Tensor, m Meta) *Tensor {
	if m.Stride.At(0) == 1 && m.Stride.At(1) == m.Dim(0) {
		y := b.Do1(Mm, nil, b.transposed(g), mat1)
		defer b.Drop(y)
		return b.ViewOf(y, y.Transpose(0, 1))
	}
	return b.Do1(Mm, nil, b.transposed(mat1), g)
}

// blasMatrices allocates, to the end of the row, contiguous copies of matrices
// whose strides cuBLAS cannot take (prepare_matrix_for_cublas).
func (c *Call) blasMatrices(a, b *Tensor) {
	for _, m := range []*Tensor{b, a} { // the result is row-major: cuBLAS sees the operands swapped
		rows, cols := m.Stride.At(0), m.Stride.At(1)
		switch {
		case m.IsDense():
		case rows == 1 && cols >= max(1, m.Dim(0)):
		case cols == 1 && rows >= max(1, m.Dim(1)):
		default:
			c.Local(c.New(tensor.Contiguous(m.Size), m.DType))
		}
	}
}

// Bmm is the product of two batches of matrices.
var Bmm = define(Op{
	Name: "bmm", Eval: evalMm, Flops: productFlops(0), Takes: (*Call).floatsOfOneType, Sig: "torch.bmm(input, mat2)", Cast: CastLower, Run: func(c *Call) {
		a, b := c.In[0], c.In[1]
		if a.Rank() != 3 || b.Rank() != 3 || a.Dim(0) != b.Dim(0) || a.Dim(2) != b.Dim(1) {
			c.Fail("batches of matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		out := c.NewShape(a.DType, a.Dim(0), a.Dim(1), b.Dim(2))
		c.blasBatches(a, b, out)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []Save{In(1, 0), In(0, 1)}, Node: "BmmBackward0",
	Source: "aten/src/ATen/native/cuda/Blas.cpp: bmm_out_cuda_impl",
})

// blasBatches allocates contiguous copies of batches whose strides cuBLAS
// cannot take (prepare_batch_matrix_for_cublas).
func (c *Call) blasBatches(a, b, out *Tensor) {
	swap := out.Dim(2) != 1 // a row-major result is computed transposed
	first, second := a, b
	fast, lead := 1, 2
	if swap {
		first, second = b, a
		fast, lead = 2, 1
	}
	m, n, k := out.Dim(fast), out.Dim(lead), first.Dim(lead)
	prepare := func(t *Tensor, m, n int64) {
		switch {
		case t.Stride.At(fast) == 1 && t.Stride.At(lead) >= max(1, m):
		case t.Stride.At(lead) == 1 && t.Stride.At(fast) >= max(1, n):
		case t.IsContiguous() && t.Stride.At(1) != 0 && t.Stride.At(2) != 0:
		default:
			c.Local(c.New(tensor.Contiguous(t.Size), t.DType))
		}
	}
	prepare(first, m, k)
	prepare(second, k, n)
}

// Matmul is torch.matmul: products of vectors, matrices and batches
// (aten/src/ATen/native/LinearAlgebra.cpp: _matmul_impl).
var Matmul = define(Op{
	Name: "matmul", Sig: "@ matmul(input, other)", Composite: true, Cast: CastLower,
	Source: "aten/src/ATen/native/LinearAlgebra.cpp: _matmul_impl, should_fold",
})

func matmul(c *Call) {
	a, b := c.In[0], c.In[1]
	da, db := a.Rank(), b.Rank()
	if da == 0 || db == 0 || a.Dim(-1) != b.Dim(max(db-2, 0)) {
		c.Fail("shapes %v and %v do not multiply", a.Size, b.Size)
	}
	switch {
	case da == 2 && db == 2:
		c.Return(c.Do1(Mm, nil, a, b))
	case da == 1 || db == 1:
		c.vectorProduct(a, b)
	case c.folds(a, b):
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
		c.Return(c.batched(a, b))
	}
}

// folds reports whether the larger operand is seen as one tall matrix.
func (c *Call) folds(a, b *Tensor) bool {
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

// batched expands both operands to a common batch and multiplies with bmm.
func (c *Call) batched(a, b *Tensor) *Tensor {
	lead := func(t *Tensor) tensor.Dims {
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
	flat := func(t *Tensor) *Tensor {
		e := c.Do1(Expand, &ShapeArgs{Shape: append(batch.Slice(), t.Dim(-2), t.Dim(-1))}, t)
		r := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{batch.Numel(), t.Dim(-2), t.Dim(-1)}}, e))
		c.Drop(e)
		return r
	}
	fa, fb := flat(a), flat(b)
	y := c.Local(c.Do1(Bmm, nil, fa, fb))
	return c.Do1(UnsafeView, &ShapeArgs{Shape: append(batch.Slice(), a.Dim(-2), b.Dim(-1))}, y)
}

// productFlops counts the product of input i, the left factor, and another.
func productFlops(i int) func(c *Call) float64 {
	return func(c *Call) float64 { return product(c.Out[0], c.In[i].Dim(-1)) }
}

// product counts a matrix product with that result over k terms.
func product(out *Tensor, k int64) float64 { return 2 * float64(out.Numel()) * float64(k) }
