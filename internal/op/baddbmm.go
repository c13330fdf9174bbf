package op

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// BaddbmmArgs are the factors of baddbmm.
type BaddbmmArgs struct {
	Beta  float64 `arg:"beta"`
	Alpha float64 `arg:"alpha"`
}

// Baddbmm is beta * input + alpha * (batch1 @ batch2). The input is copied into
// the result before the product is added to it.
var Baddbmm = define(Op{
	Name: "baddbmm", Eval: evalBaddbmm, Flops: productFlops(1), Takes: (*Call).floatsOfOneType, Sig: "torch.baddbmm(input, batch1, batch2, *, beta: float = 1.0, alpha: float = 1.0)", Args: &BaddbmmArgs{}, Cast: CastLower,
	Run: func(c *Call) {
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
		c.blasBatches(a, b, out)
		c.BlasHandle()
		c.Return(out)
	},
	Save: []Save{In(1, 2), In(2, 1)}, Node: "BaddbmmBackward0",
	Grad: func(b *Back) { // grad.bmm(batch2ᵀ) * alpha, batch1ᵀ.bmm(grad) * alpha, grad * beta
		g, args := b.Grads[0], b.Args.(*BaddbmmArgs)
		swapped := func(t *Tensor) *Tensor { return b.Local(b.Alias(t, t.Transpose(1, 2), t.DType)) }
		if b.Need(1) {
			b.Set(1, b.maybeMultiply(b.Do1(Bmm, nil, g, swapped(b.SavedIn(2))), args.Alpha))
		}
		if b.Need(2) {
			b.Set(2, b.maybeMultiply(b.Do1(Bmm, nil, swapped(b.SavedIn(1)), g), args.Alpha))
		}
		if b.Need(0) {
			b.Set(0, b.maybeMultiply(b.Keep(g), args.Beta))
		}
	},
	Source: "aten/src/ATen/native/cuda/Blas.cpp: baddbmm_out_cuda_impl; tools/autograd/derivatives.yaml: baddbmm",
})

// maybeMultiply is t * factor, or t itself where the factor is 1
// (maybe_multiply in torch/csrc/autograd/FunctionsManual.cpp). It takes over the
// caller's reference to t.
func (b *Back) maybeMultiply(t *Tensor, factor float64) *Tensor {
	if factor == 1 {
		return t
	}
	defer b.Drop(t)
	return b.Do1(MulScalar, nil, t)
}

var evalBaddbmm = &Eval{
	Forward: func(m Machine, c *Call) error {
		args, y := c.Args.(*BaddbmmArgs), c.Out[0]
		bias, err := broadcasted(m, c.In[0], y.Size.Slice()...)
		if err != nil {
			return err
		}
		return m.Launch(kernel.Gemm, []kernel.Tensor{as(m, y), as(m, c.In[1]), as(m, c.In[2]), bias}, nil, args.Alpha, args.Beta)
	},
	Backward: func(m Machine, b *Back) error {
		args, g := b.Args.(*BaddbmmArgs), b.Grads[0]
		swapped := func(t *Tensor) kernel.Tensor { return m.At(t, t.Transpose(1, 2)) }
		if y := m.Wanted(b, 1); y != nil {
			if err := m.Launch(kernel.Gemm, []kernel.Tensor{as(m, y), as(m, g), swapped(b.SavedIn(2)), {}}, nil, args.Alpha, 0); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 2); y != nil {
			if err := m.Launch(kernel.Gemm, []kernel.Tensor{as(m, y), swapped(b.SavedIn(1)), as(m, g), {}}, nil, args.Alpha, 0); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 0); y != nil {
			return m.Apply(kernel.Affine, y, b.Grads[:1], args.Beta, 0)
		}
		return nil
	},
}
