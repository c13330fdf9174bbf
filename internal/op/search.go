package op

import (
	"strings"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// SearchArgs are the arguments of bucketize and searchsorted.
type SearchArgs struct {
	Int32 bool `arg:"out_int32"`
	Right bool `arg:"right"`
}

// search makes the index of each of the values; both operands are made row-major.
func (c *Call) search(boundaries, values *Tensor) {
	d := tensor.Int64
	if c.Args.(*SearchArgs).Int32 {
		d = tensor.Int32
	}
	if boundaries.DType != values.DType {
		c.Fail("boundaries of %v do not fit values of %v; convert first", boundaries.DType, values.DType)
	}
	out := c.grown(d, values.Size.Slice()...)
	c.contiguous(values)
	c.contiguous(boundaries)
	c.Return(out)
}

// Where values lie among sorted boundaries.
var (
	Bucketize = define(Op{
		Name: "bucketize", Eval: searching(1, 0), Sig: "torch.bucketize(input, boundaries, *, out_int32: bool = False, right: bool = False)", Args: &SearchArgs{}, Run: func(c *Call) {
			if c.In[1].Rank() != 1 {
				c.Fail("boundaries must be a vector, not of shape %v", c.In[1].Size)
			}
			c.search(c.In[1], c.In[0])
		},
		Source: "aten/src/ATen/native/cuda/Bucketization.cu",
	})
	Searchsorted = define(Op{
		Name: "searchsorted", Eval: searching(0, 1), Sig: "torch.searchsorted(sorted_sequence, input, *, out_int32: bool = False, right: bool = False)", Args: &SearchArgs{},
		Run: func(c *Call) {
			s, v := c.In[0], c.In[1]
			if s.Rank() == 0 || s.Rank() != 1 && (s.Rank() != v.Rank() || s.Size.Set(s.Rank()-1, 0) != v.Size.Set(s.Rank()-1, 0)) {
				c.Fail("sequences of shape %v do not fit values of shape %v; all dimensions but the last are equal", s.Size, v.Size)
			}
			c.search(s, v)
		},
		Source: "aten/src/ATen/native/cuda/Bucketization.cu",
	})
)

// searching finds the values of an input among the boundaries of another.
func searching(boundaries, values int) *Eval {
	return aside(func(a Arrays, c *Call) {
		a.Put(c.Out[0], array.Search(a.Array(c.In[boundaries]), a.Array(c.In[values]), c.Args.(*SearchArgs).Right))
	}, nil)
}

// WindowArgs are the windows of Tensor.unfold.
type WindowArgs struct {
	Dimension int   `arg:"dimension"`
	Size      int64 `arg:"size"`
	Step      int64 `arg:"step"`
}

// Tensor.unfold is a view of all windows along a dimension; F.unfold has taken
// the name.
var _ = define(Op{
	Name: "unfold", Sig: "Tensor.unfold unfold_dimension(self, dimension: int, size: int, step: int)", Args: &WindowArgs{},
	View: func(c *Call) []tensor.Layout {
		a, x := c.Args.(*WindowArgs), c.In[0]
		d := c.dim(a.Dimension, x.Rank())
		if x.Rank() == 0 || x.Rank() == tensor.MaxRank || a.Size < 1 || a.Step < 1 || a.Size > x.Dim(d) {
			c.Fail("windows of %d elements in steps of %d do not fit dimension %d of shape %v", a.Size, a.Step, a.Dimension, x.Size)
		}
		l := x.Layout
		stride := l.Stride.At(d)
		l.Size = l.Size.Set(d, (x.Dim(d)-a.Size)/a.Step+1).Append(a.Size)
		l.Stride = l.Stride.Set(d, stride*a.Step).Append(stride)
		return []tensor.Layout{l}
	},
	Node: "UnfoldBackward0",
	Grad: func(b *Back) { // windows that do not overlap are copied; else the kernel wants the indices that they cover
		a, in := b.Args.(*WindowArgs), b.InM[0]
		b.Set(0, b.NewShape(b.Grads[0].DType, in.Size.Slice()...))
		if a.Step < a.Size {
			windows := b.OutM[0].Dim(b.dim(a.Dimension, in.Rank()))
			b.Drop(b.NewShape(tensor.Int64, (windows-1)*a.Step+a.Size))
		}
	},
	Eval: &Eval{Backward: func(m Machine, b *Back) error {
		w := b.Args.(*WindowArgs)
		if w.Step >= w.Size {
			return viewGrad(m, b)
		}
		return m.Aside(func(a Arrays) {
			if r := a.Wanted(b, 0); r != nil { // windows that overlap add up
				a.Put(r, a.Array(b.Grads[0]).Overlaid(r.Size.Ints(), array.Dim(w.Dimension, r.Rank()), int(w.Step)))
			}
		})
	}},
	Source: "aten/src/ATen/native/cuda/UnfoldBackwardKernel.cu; UnfoldBackward.h",
})

// dependsOnData defines an operator whose result's size depends on the data: it
// is known, and refused.
func dependsOnData(sig string) *Op {
	name, _, _ := strings.Cut(strings.TrimPrefix(sig, "torch."), "(")
	return define(Op{Name: name, Sig: sig, Refused: true, Run: func(c *Call) {
		c.Fail("not modelled: the size of the result depends on the data")
	}})
}

// The operators that are refused.
var (
	MaskedSelect = dependsOnData("torch.masked_select(input, mask)")
	Nonzero      = dependsOnData("torch.nonzero(input)")
	Argwhere     = dependsOnData("torch.argwhere(input)")
	Unique       = dependsOnData("torch.unique(input)")
	Bincount     = dependsOnData("torch.bincount(input)")
)
