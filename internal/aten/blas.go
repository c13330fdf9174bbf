package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// transposed returns a view of a matrix, to be dropped at the row's end.
func transposed(c *op.Call, t *op.Tensor) *op.Tensor {
	return c.Local(c.Alias(t, t.Transpose(0, 1), t.DType))
}

// Addmm is bias + mat1 @ mat2.
var Addmm = define(op.Op{
	Name: "addmm", Eval: evalAddmm, Flops: productFlops(1), Takes: op.FloatsOfOneType, Sig: "torch.addmm(input, mat1, mat2)", Cast: op.CastLower, Run: func(c *op.Call) {
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
		blasMatrices(c, a, b)
		if out.Numel() > 0 && usesLt(c, bias, b, out) {
			c.LtHandle()
		} else {
			c.BlasHandle()
		}
		c.Return(out)
	},
	Save: []op.Save{op.In(1, 2), op.In(2, 1)}, Node: "AddmmBackward0",
	Grad: func(b *op.Back) {
		g := b.Grads[0]
		if b.Need(1) {
			b.Set(1, gradLeft(b, g, b.SavedIn(2), b.InM[1]))
		}
		if b.Need(2) {
			b.Set(2, gradRight(b, g, b.SavedIn(1), b.InM[2]))
		}
		if b.Need(0) {
			b.Pass(0)
		}
	},
	Source: "aten/src/ATen/native/cuda/Blas.cpp: addmm_out_cuda_impl",
})

// AddmmInPlace is self.addmm_(mat1, mat2), with any beta and alpha.
var AddmmInPlace = define(op.Op{
	Name: "addmm_", InPlace: true, Flops: productFlops(1), Takes: op.FloatsOfOneType, Run: func(c *op.Call) {
		self, a, b := c.In[0], c.In[1], c.In[2]
		if a.Rank() != 2 || b.Rank() != 2 || a.Dim(1) != b.Dim(0) || self.Size != tensor.D(a.Dim(0), b.Dim(1)) {
			c.Fail("matrices of shapes %v and %v do not multiply into one of shape %v", a.Size, b.Size, self.Size)
		}
		blasMatrices(c, a, b)
		c.BlasHandle()
	},
	Eval: &op.Eval{Over: true, Forward: func(op.Machine, *op.Call) error {
		return &op.Refusal{What: "what fused kernels of LoRA compute"}
	}},
	Source: "aten/src/ATen/native/cuda/Blas.cpp: addmm_out_cuda_impl",
})

// usesLt reports whether addmm takes the cublasLt path with a fused bias.
func usesLt(c *op.Call, bias, mat2, out *op.Tensor) bool {
	return bias.Rank() == 1 && bias.Dim(0) == mat2.Dim(1) && bias.IsContiguous() && out.IsContiguous() &&
		out.DType.IsFloating() && mat2.Dim(0) > 1 && mat2.Dim(1) > 1
}

// Mm is the product of two matrices.
var Mm = define(op.Op{
	Name: "mm", Eval: evalMm, Flops: productFlops(0), Takes: op.FloatsOfOneType, Cast: op.CastLower, Run: func(c *op.Call) {
		a, b := c.In[0], c.In[1]
		if a.Dim(1) != b.Dim(0) {
			c.Fail("matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		out := c.NewShape(a.DType, a.Dim(0), b.Dim(1))
		blasMatrices(c, a, b)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []op.Save{op.In(1, 0), op.In(0, 1)}, Node: "MmBackward0",
})

// What calls its own row.
var (
	_ = Mm.Derive(func(b *op.Back) {
		g := b.Grads[0]
		if b.Need(1) {
			b.Set(1, gradRight(b, g, b.SavedIn(0), b.InM[1]))
		}
		if b.Need(0) {
			b.Set(0, gradLeft(b, g, b.SavedIn(1), b.InM[0]))
		}
	})
	_ = Bmm.Derive(func(b *op.Back) {
		g := b.Grads[0]
		swapped := func(t *op.Tensor) *op.Tensor { return b.Local(b.Alias(t, t.Transpose(1, 2), t.DType)) }
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
func gradLeft(b *op.Back, g, mat2 *op.Tensor, a op.Meta) *op.Tensor {
	if a.Stride.At(0) == 1 && a.Stride.At(1) == a.Dim(0) {
		y := b.Do1(Mm, nil, mat2, transposed(&b.Call, g))
		defer b.Drop(y)
		return b.ViewOf(y, y.Transpose(0, 1))
	}
	return b.Do1(Mm, nil, g, transposed(&b.Call, mat2))
}

// gradRight is the gradient of m in a @ m: a.T @ grad, computed transposed if
// m was column-major, as a transposed weight is (mm_mat2_backward).
func gradRight(b *op.Back, g, mat1 *op.Tensor, m op.Meta) *op.Tensor {
	if m.Stride.At(0) == 1 && m.Stride.At(1) == m.Dim(0) {
		y := b.Do1(Mm, nil, transposed(&b.Call, g), mat1)
		defer b.Drop(y)
		return b.ViewOf(y, y.Transpose(0, 1))
	}
	return b.Do1(Mm, nil, transposed(&b.Call, mat1), g)
}

// blasMatrices allocates, to the end of the row, contiguous copies of matrices
// whose strides cuBLAS cannot take (prepare_matrix_for_cublas).
func blasMatrices(c *op.Call, a, b *op.Tensor) {
	for _, m := range []*op.Tensor{b, a} { // the result is row-major: cuBLAS sees the operands swapped
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
var Bmm = define(op.Op{
	Name: "bmm", Eval: evalMm, Flops: productFlops(0), Takes: op.FloatsOfOneType, Sig: "torch.bmm(input, mat2)", Cast: op.CastLower, Run: func(c *op.Call) {
		a, b := c.In[0], c.In[1]
		if a.Rank() != 3 || b.Rank() != 3 || a.Dim(0) != b.Dim(0) || a.Dim(2) != b.Dim(1) {
			c.Fail("batches of matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		out := c.NewShape(a.DType, a.Dim(0), a.Dim(1), b.Dim(2))
		blasBatches(c, a, b, out)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []op.Save{op.In(1, 0), op.In(0, 1)}, Node: "BmmBackward0",
	Source: "aten/src/ATen/native/cuda/Blas.cpp: bmm_out_cuda_impl",
})

// blasBatches allocates contiguous copies of batches whose strides cuBLAS
// cannot take (prepare_batch_matrix_for_cublas).
func blasBatches(c *op.Call, a, b, out *op.Tensor) {
	swap := out.Dim(2) != 1 // a row-major result is computed transposed
	first, second := a, b
	fast, lead := 1, 2
	if swap {
		first, second = b, a
		fast, lead = 2, 1
	}
	m, n, k := out.Dim(fast), out.Dim(lead), first.Dim(lead)
	prepare := func(t *op.Tensor, m, n int64) {
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

// productFlops counts the product of input i, the left factor, and another.
func productFlops(i int) func(c *op.Call) float64 {
	return func(c *op.Call) float64 { return product(c.Out[0], c.In[i].Dim(-1)) }
}

// product counts a matrix product with that result over k terms.
func product(out *op.Tensor, k int64) float64 { return 2 * float64(out.Numel()) * float64(k) }

// BaddbmmArgs are the factors of baddbmm.
type BaddbmmArgs struct {
	Beta  float64 `arg:"beta"`
	Alpha float64 `arg:"alpha"`
}

// Baddbmm is beta * input + alpha * (batch1 @ batch2). The input is copied into
// the result before the product is added to it.
var Baddbmm = define(op.Op{
	Name: "baddbmm", Eval: evalBaddbmm, Flops: productFlops(1), Takes: op.FloatsOfOneType, Sig: "torch.baddbmm(input, batch1, batch2, *, beta: float = 1.0, alpha: float = 1.0)", Args: &BaddbmmArgs{}, Cast: op.CastLower,
	Run: func(c *op.Call) {
		x, a, b := c.In[0], c.In[1], c.In[2]
		if a.Rank() != 3 || b.Rank() != 3 || a.Dim(0) != b.Dim(0) || a.Dim(2) != b.Dim(1) {
			c.Fail("batches of matrices of shapes %v and %v do not multiply", a.Size, b.Size)
		}
		size := tensor.D(a.Dim(0), a.Dim(1), b.Dim(2))
		if d, err := tensor.Broadcast(x.Size, size); err != nil || d != size {
			c.Fail("input of shape %v does not fit a result of shape %v", x.Size, size)
		}
		if x.DType != a.DType || x.DType != b.DType {
			c.Fail("input of type %v does not fit batches of types %v and %v", x.DType, a.DType, b.DType)
		}
		out := c.New(tensor.Contiguous(size), x.DType)
		blasBatches(c, a, b, out)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []op.Save{op.In(1, 2), op.In(2, 1)}, Node: "BaddbmmBackward0",
	Grad: func(b *op.Back) { // grad.bmm(batch2ᵀ) * alpha, batch1ᵀ.bmm(grad) * alpha, grad * beta
		g, args := b.Grads[0], b.Args.(*BaddbmmArgs)
		swapped := func(t *op.Tensor) *op.Tensor { return b.Local(b.Alias(t, t.Transpose(1, 2), t.DType)) }
		if b.Need(1) {
			b.Set(1, maybeMultiply(b, b.Do1(Bmm, nil, g, swapped(b.SavedIn(2))), args.Alpha))
		}
		if b.Need(2) {
			b.Set(2, maybeMultiply(b, b.Do1(Bmm, nil, swapped(b.SavedIn(1)), g), args.Alpha))
		}
		if b.Need(0) {
			b.Set(0, maybeMultiply(b, b.Keep(g), args.Beta))
		}
	},
	Source: "aten/src/ATen/native/cuda/Blas.cpp: baddbmm_out_cuda_impl; tools/autograd/derivatives.yaml: baddbmm",
})

// maybeMultiply is t * factor, or t itself where the factor is 1
// (maybe_multiply in torch/csrc/autograd/FunctionsManual.cpp). It takes over the
// caller's reference to t.
func maybeMultiply(b *op.Back, t *op.Tensor, factor float64) *op.Tensor {
	if factor == 1 {
		return t
	}
	defer b.Drop(t)
	return b.Do1(MulScalar, nil, t)
}

var evalBaddbmm = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		args, y := c.Args.(*BaddbmmArgs), c.Out[0]
		bias, err := op.Broadcasted(m, c.In[0], y.Size.Slice()...)
		if err != nil {
			return err
		}
		return m.Launch(kernel.Gemm, []kernel.Tensor{op.As(m, y), op.As(m, c.In[1]), op.As(m, c.In[2]), bias}, nil, args.Alpha, args.Beta)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		args, g := b.Args.(*BaddbmmArgs), b.Grads[0]
		swapped := func(t *op.Tensor) kernel.Tensor { return m.At(t, t.Transpose(1, 2)) }
		if y := m.Wanted(b, 1); y != nil {
			if err := m.Launch(kernel.Gemm, []kernel.Tensor{op.As(m, y), op.As(m, g), swapped(b.SavedIn(2)), {}}, nil, args.Alpha, 0); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 2); y != nil {
			if err := m.Launch(kernel.Gemm, []kernel.Tensor{op.As(m, y), swapped(b.SavedIn(1)), op.As(m, g), {}}, nil, args.Alpha, 0); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 0); y != nil {
			return m.Apply(kernel.Affine, y, b.Grads[:1], args.Beta, 0)
		}
		return nil
	},
}

// Tensors that are made of others, or of nothing, and their reductions and products.
var (

	// The derivatives of products are further products.
	evalMm    = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error { return gemm(m, c.Out[0], c.In[0], c.In[1], nil) }}
	evalAddmm = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error { return gemm(m, c.Out[0], c.In[1], c.In[2], c.In[0]) }}
)

// gemm is y = a @ b + bias, of matrices or of batches of matrices.
func gemm(m op.Machine, y, a, b, bias *op.Tensor) error {
	batch := func(t *op.Tensor) kernel.Tensor {
		if t.Rank() == 2 {
			return m.At(t, t.Unsqueeze(0))
		}
		return op.As(m, t)
	}
	ts := []kernel.Tensor{batch(y), batch(a), batch(b), {}}
	beta := 0.0
	if bias != nil {
		l, err := bias.Expand(ts[0].Size.Slice())
		if err != nil {
			return err
		}
		ts[3], beta = m.At(bias, l), 1
	}
	return m.Launch(kernel.Gemm, ts, nil, 1, beta)
}
