package op

import "github.com/memplan/memplan/internal/tensor"

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
		Name: "_softmax", Takes: (*Call).floats, Args: &SoftmaxArgs{}, Run: runSoftmax, Save: []Save{Out(0)}, Node: "SoftmaxBackward0", Grad: gradSoftmax,
		Source: "aten/src/ATen/native/cuda/SoftMax.cu",
	})
	InnerLogSoftmax = define(Op{
		Name: "_log_softmax", Takes: (*Call).floats, Args: &SoftmaxArgs{}, Run: runSoftmax, Save: []Save{Out(0)}, Node: "LogSoftmaxBackward0",
		Grad: func(b *Back) {
			b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.InM[0].DType))
			b.contiguous(b.Grads[0])
			b.contiguous(b.SavedOut[0])
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
	prod := b.Local(b.Do1(MulTensor, nil, b.Grads[0], b.SavedOut[0]))
	b.contiguous(prod)
	b.contiguous(b.SavedOut[0])
}
