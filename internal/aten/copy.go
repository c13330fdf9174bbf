package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// CloneArgs chooses the order of a clone's dimensions.
type CloneArgs struct {
	Contiguous   bool // row-major; else the source's own order
	ChannelsLast bool
}

// Clone is a copy.
var Clone = define(op.Op{
	Name: "clone", Eval: op.Copied, Copies: true, Sig: "torch.clone(input)", Args: &CloneArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		if a, ok := c.Args.(*CloneArgs); ok && a != nil && a.Contiguous {
			c.Return(c.New(tensor.Contiguous(x.Size), x.DType))
			return
		}
		if a, ok := c.Args.(*CloneArgs); ok && a != nil && a.ChannelsLast {
			c.Return(c.New(tensor.ChannelsLast(x.Size), x.DType))
			return
		}
		c.Return(c.NewLike(x))
	},
	Node: "CloneBackward0", Grad: func(b *op.Back) { b.Pass(0) },
})

// Contiguous is the tensor itself if it is row-major, else a copy that is.
var Contiguous = define(op.Op{
	Name: "contiguous", Sig: "Tensor.contiguous(self)", Composite: true, Run: func(c *op.Call) {
		if c.In[0].IsContiguous() {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(Clone, &CloneArgs{Contiguous: true}, c.In[0]))
	},
})

// CopyInPlace is self.copy_(src); what it overwrites has no gradient.
var CopyInPlace = define(op.Op{
	Name: "copy_", Sig: "Tensor.copy_(self, src)", Eval: evalCopy, Run: checkInPlace, InPlace: true, Node: "CopyBackwards",
	Source: "torch/csrc/autograd/VariableTypeManual.cpp: copy_; functions/tensor.cpp: CopyBackwards",
})

var evalCopy = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error { return m.Apply(kernel.Copy, c.In[0], c.In[1:2]) },
	Backward: func(m op.Machine, b *op.Back) error {
		if y := m.Wanted(b, 0); y != nil {
			if err := m.Apply(kernel.Fill, y, nil, 0); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 1); y != nil {
			return m.Apply(kernel.Copy, y, b.Grads[:1])
		}
		return nil
	},
}

var _ = CopyInPlace.Derive(func(b *op.Back) {
	if b.Need(0) {
		b.Set(0, b.NewLike(b.Grads[0]))
	}
	if b.Need(1) {
		b.Set(1, b.Do1(To, &ToCopyArgs{DType: b.InM[1].DType}, b.Grads[0]))
	}
})
