package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// CloneArgs chooses the order of a copy's dimensions.
type CloneArgs struct {
	Format tensor.MemoryFormat `arg:"memory_format"`
}

// Clone is a copy.
var Clone = define(op.Op{
	Name: "clone", Eval: op.Copied, Copies: true, Sig: "torch.clone(input, *, memory_format: format(preserve_format|contiguous_format|channels_last|channels_last_3d) = None)",
	Args: &CloneArgs{}, Run: func(c *op.Call) { c.Return(c.New(inFormat(c), c.In[0].DType)) },
	Node: "CloneBackward0", Grad: func(b *op.Back) { b.Pass(0) },
})

// inFormat is the layout of a copy in the format that its arguments name.
func inFormat(c *op.Call) tensor.Layout {
	var f tensor.MemoryFormat
	switch a := c.Args.(type) {
	case *CloneArgs:
		if a != nil {
			f = a.Format
		}
	case *ToCopyArgs:
		f = a.Format
	}
	l, err := c.In[0].InFormat(f)
	if err != nil {
		c.Fail("%v", err)
	}
	return l
}

// Contiguous is the tensor itself if it lies in a format, else a copy that does.
var Contiguous = define(op.Op{
	Name: "contiguous", Sig: "Tensor.contiguous(self, *, memory_format: format(contiguous_format|channels_last|channels_last_3d) = None)", Args: &CloneArgs{},
	Composite: true, Run: func(c *op.Call) {
		a := CloneArgs{Format: tensor.ContiguousFormat}
		if given, ok := c.Args.(*CloneArgs); ok && given != nil && given.Format != "" {
			a = *given
		}
		lies := c.In[0].IsContiguous()
		if a.Format != tensor.ContiguousFormat {
			lies = a.Format == tensor.LastFormat(c.In[0].Rank()) && c.In[0].IsChannelsLastContiguous()
		}
		if lies {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(Clone, &a, c.In[0]))
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
