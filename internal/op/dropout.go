package op

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// DropoutArgs are the arguments of dropout.
type DropoutArgs struct {
	P        float64 `arg:"p"`
	Training *bool   `arg:"training"` // nil: the module's mode
}

// drops checks the arguments of a dropout and reports whether it does anything.
func (c *Call) drops(a *DropoutArgs) bool {
	if a.P < 0 || a.P > 1 {
		c.Fail("dropout probability %v is outside of [0, 1]", a.P)
	}
	training := c.Env().Training
	if a.Training != nil {
		training = *a.Training
	}
	return a.P > 0 && training && c.In[0].Numel() > 0
}

// Dropout keeps one byte an element for the backward pass; outside of training
// it is its input.
var Dropout = define(Op{
	Name: "dropout", Sig: "F.dropout(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
	Run: func(c *Call) {
		a, x := c.Args.(*DropoutArgs), c.In[0]
		if !c.drops(a) {
			c.ReturnSelf(0)
			return
		}
		if a.P == 1 { // input * zeros
			z := c.Local(c.noise(a, tensor.Layout{}))
			c.Return(c.Do1(Mul, &BinaryArgs{}, x, z))
			return
		}
		outs := c.Do(NativeDropout, a, x)
		c.Return(outs[0])
		c.Drop(outs[1])
	},
	Source: "aten/src/ATen/native/Dropout.cpp",
})

// NativeDropout is the kernel of dropout, which keeps its mask.
var NativeDropout = define(Op{
	Name: "native_dropout", Takes: (*Call).floats, Args: &DropoutArgs{}, Run: func(c *Call) {
		x := c.In[0]
		mask := c.New(x.LikeDense(), tensor.Bool)
		c.Return(c.NewLike(x), mask)
	},
	Save: []Save{Out(1)}, Node: "NativeDropoutBackward0",
	Grad: func(b *Back) {
		g := b.Grads[0]
		b.Set(0, b.New(tensor.InFormat(g.Size, g.IsChannelsLast()), g.DType))
	},
	Eval: &Eval{
		Forward: func(m Machine, c *Call) error {
			ts := []kernel.Tensor{as(m, c.Out[0]), as(m, c.Out[1]), as(m, c.In[0])}
			return m.Launch(kernel.Dropout, ts, []int64{m.Draw()}, c.Args.(*DropoutArgs).P)
		},
		Backward: func(m Machine, b *Back) error {
			return m.Apply(kernel.MaskScale, b.Results[0], []*Tensor{b.Grads[0], b.SavedOut(1)}, 1/(1-b.Args.(*DropoutArgs).P))
		},
	},
	Source: "aten/src/ATen/native/cuda/Dropout.cu",
})
