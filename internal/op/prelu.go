package op

import "github.com/memplan/memplan/internal/array"

// PReLU has a slope for all channels or for each.
var PReLU = define(Op{
	Name: "prelu", Takes: (*Call).oneType, Sig: "F.prelu(input, weight)", Composite: true, Cast: CastLower, Run: func(c *Call) {
		x, w := c.In[0], c.In[1]
		n := w.Numel()
		if w.Rank() > 1 || (n != 1 && (x.Rank() < 2 || x.Dim(1) != n)) || n == 0 {
			c.Fail("a slope of shape %v does not fit shape %v", w.Size, x.Size)
		}
		if w.DType != x.DType {
			c.Fail("the slope has type %v, the input %v", w.DType, x.DType)
		}
		if x.Rank() != w.Rank() {
			shape := make([]int64, x.Rank())
			for i := range shape {
				shape[i] = 1
			}
			if x.Rank() > 1 {
				shape[1] = n
			}
			w = c.Local(c.Do1(Reshape, &ShapeArgs{Shape: shape}, w))
		}
		c.Return(c.Do1(PreluKernel, nil, x, w))
	},
	Source: "aten/src/ATen/native/Activation.cpp: prelu",
})

// PreluKernel is the kernel of prelu.
var PreluKernel = define(Op{
	Name: "_prelu_kernel", Run: func(c *Call) { c.Return(c.NewLike(c.In[0])) },
	Save: []Save{In(0), In(1)}, Node: "PreluKernelBackward0",
	Grad: func(b *Back) { // one kernel makes both, the slope's at the input's size
		l := b.elementwise(b.SavedIn(0), b.SavedIn(1), b.Grads[0])
		for i := range 2 {
			b.Set(i, b.New(l, b.Grads[0].DType))
		}
	},
	Eval: two(
		func(x, w float64) float64 {
			if x > 0 {
				return x
			}
			return w * x
		},
		func(x [3]float64, _, _ float64) float64 {
			if x[0] > 0 {
				return 1
			}
			return x[1]
		},
		func(x [3]float64, _, _ float64) float64 { return x[0] * array.Truth(!(x[0] > 0)) },
	).eval(),
	Source: "aten/src/ATen/native/Activation.cpp: _prelu_kernel_backward",
})
