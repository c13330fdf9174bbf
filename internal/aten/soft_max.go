package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// SoftmaxArgs are the arguments of softmax and log_softmax.
type SoftmaxArgs struct {
	Dim   int           `arg:"dim"`
	DType *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *SoftmaxArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

// The two softmaxes keep their result. With a dtype the input is converted
// first.
var (
	Softmax = define(op.Op{
		Name: "softmax", Sig: "F.softmax(input, dim: int, *, dtype: dtype? = None)", Args: &SoftmaxArgs{}, Cast: op.CastFP32Out,
		Composite: true, Run: func(c *op.Call) { softmax(c, InnerSoftmax) },
	})
	LogSoftmax = define(op.Op{
		Name: "log_softmax", Sig: "F.log_softmax(input, dim: int, *, dtype: dtype? = None)", Args: &SoftmaxArgs{}, Cast: op.CastFP32Out,
		Composite: true, Run: func(c *op.Call) { softmax(c, InnerLogSoftmax) },
	})
	InnerSoftmax = define(op.Op{
		Name: "_softmax", Takes: op.Floats, Args: &SoftmaxArgs{}, Eval: evalSoftmax(kernel.Softmax, kernel.SoftmaxGrad), Run: runSoftmax, Save: []op.Save{op.Out(0)}, Node: "SoftmaxBackward0", Grad: gradSoftmax,
		Source: "aten/src/ATen/native/cuda/SoftMax.cu",
	})
	InnerLogSoftmax = define(op.Op{
		Name: "_log_softmax", Takes: op.Floats, Args: &SoftmaxArgs{}, Eval: evalSoftmax(kernel.LogSoftmax, kernel.LogSoftmaxGrad), Run: runSoftmax, Save: []op.Save{op.Out(0)}, Node: "LogSoftmaxBackward0",
		Grad: func(b *op.Back) {
			b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.InM[0].DType))
			b.Contiguous(b.Grads[0])
			b.Contiguous(b.SavedOut(0))
		},
		Source: "aten/src/ATen/native/cuda/SoftMax.cu",
	})
)

func softmax(c *op.Call, inner *op.Op) {
	a, x := c.Args.(*SoftmaxArgs), c.In[0]
	c.Dim(a.Dim, x.Rank())
	// float16 to float32 is fused into the kernel; other conversions are not.
	if a.DType != nil && *a.DType != x.DType && !(x.DType == tensor.Float16 && *a.DType == tensor.Float32) {
		x = c.Local(c.Do1(To, &ToCopyArgs{DType: *a.DType}, x))
	}
	c.Return(c.Do1(inner, a, x))
}

func runSoftmax(c *op.Call) {
	x, d := c.In[0], c.In[0].DType
	if a := c.Args.(*SoftmaxArgs); a.DType != nil {
		d = *a.DType
	}
	out := c.New(tensor.Contiguous(x.Size), d)
	c.Contiguous(x)
	c.Return(out)
}

// gradSoftmax needs the product of gradient and result beside its output.
func gradSoftmax(b *op.Back) {
	b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.InM[0].DType))
	b.Within(func() {
		mark := b.Mark()
		prod := b.Local(b.Do1(MulTensor, nil, b.Grads[0], b.SavedOut(0)))
		b.Contiguous(prod)
		b.Contiguous(b.SavedOut(0))
		b.DropTo(mark)
	})
}

// evalSoftmax is one over a dimension, of which kernels know the last only.
func evalSoftmax(forward, grad *kernel.Kernel) *op.Eval {
	over := func(m op.Machine, k *kernel.Kernel, d int, ts ...*op.Tensor) error {
		var operands []kernel.Tensor
		for _, t := range ts {
			l := t.Unsqueeze(0) // a single number as if it were a vector of one element
			if t.Rank() > 0 {
				l = behind(t.Layout, array.Dim(d, t.Rank()))
			}
			operands = append(operands, m.At(t, l))
		}
		return m.Launch(k, operands, nil)
	}
	return &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return over(m, forward, c.Args.(*SoftmaxArgs).Dim, c.Out[0], c.In[0])
		},
		Backward: func(m op.Machine, b *op.Back) error {
			return over(m, grad, b.Args.(*SoftmaxArgs).Dim, b.Results[0], b.Grads[0], b.SavedOut(0))
		},
	}
}

// behind moves dimension d to the end.
func behind(l tensor.Layout, d int) tensor.Layout {
	var order []int
	for i := range l.Rank() {
		if i != d {
			order = append(order, i)
		}
	}
	return l.Permute(append(order, d))
}
