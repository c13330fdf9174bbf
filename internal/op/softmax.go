package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
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
	Softmax = define(Op{
		Name: "softmax", Sig: "F.softmax(input, dim: int, *, dtype: dtype? = None)", Args: &SoftmaxArgs{}, Cast: CastFP32Out,
		Composite: true, Run: func(c *Call) { c.softmax(InnerSoftmax) },
	})
	LogSoftmax = define(Op{
		Name: "log_softmax", Sig: "F.log_softmax(input, dim: int, *, dtype: dtype? = None)", Args: &SoftmaxArgs{}, Cast: CastFP32Out,
		Composite: true, Run: func(c *Call) { c.softmax(InnerLogSoftmax) },
	})
	InnerSoftmax = define(Op{
		Name: "_softmax", Takes: (*Call).floats, Args: &SoftmaxArgs{}, Eval: evalSoftmax(kernel.Softmax, kernel.SoftmaxGrad), Run: runSoftmax, Save: []Save{Out(0)}, Node: "SoftmaxBackward0", Grad: gradSoftmax,
		Source: "aten/src/ATen/native/cuda/SoftMax.cu",
	})
	InnerLogSoftmax = define(Op{
		Name: "_log_softmax", Takes: (*Call).floats, Args: &SoftmaxArgs{}, Eval: evalSoftmax(kernel.LogSoftmax, kernel.LogSoftmaxGrad), Run: runSoftmax, Save: []Save{Out(0)}, Node: "LogSoftmaxBackward0",
		Grad: func(b *Back) {
			b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.InM[0].DType))
			b.contiguous(b.Grads[0])
			b.contiguous(b.SavedOut(0))
		},
		Source: "aten/src/ATen/native/cuda/SoftMax.cu",
	})
)

func (c *Call) softmax(inner *Op) {
	a, x := c.Args.(*SoftmaxArgs), c.In[0]
	c.dim(a.Dim, x.Rank())
	// float16 to float32 is fused into the kernel; other conversions are not.
	if a.DType != nil && *a.DType != x.DType && !(x.DType == tensor.Float16 && *a.DType == tensor.Float32) {
		x = c.Local(c.Do1(To, &ToCopyArgs{DType: *a.DType}, x))
	}
	c.Return(c.Do1(inner, a, x))
}

func runSoftmax(c *Call) {
	x, d := c.In[0], c.In[0].DType
	if a := c.Args.(*SoftmaxArgs); a.DType != nil {
		d = *a.DType
	}
	out := c.New(tensor.Contiguous(x.Size), d)
	c.contiguous(x)
	c.Return(out)
}

// gradSoftmax needs the product of gradient and result beside its output.
func gradSoftmax(b *Back) {
	b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.InM[0].DType))
	prod := b.Local(b.Do1(MulTensor, nil, b.Grads[0], b.SavedOut(0)))
	b.contiguous(prod)
	b.contiguous(b.SavedOut(0))
}

// evalSoftmax is one over a dimension, of which kernels know the last only.
func evalSoftmax(forward, grad *kernel.Kernel) *Eval {
	over := func(m Machine, k *kernel.Kernel, d int, ts ...*Tensor) error {
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
	return &Eval{
		Forward: func(m Machine, c *Call) error {
			return over(m, forward, c.Args.(*SoftmaxArgs).Dim, c.Out[0], c.In[0])
		},
		Backward: func(m Machine, b *Back) error {
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
