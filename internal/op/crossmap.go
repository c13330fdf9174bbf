package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// maxCrossMaps is the size up to which the sum over a window of channels is a kernel
// without scratch.
const maxCrossMaps = 256

// CrossMapNorm is the forward of nn.CrossMapLRN2d: its result, in which it computes
// squares first, and the scale.
var CrossMapNorm = define(Op{
	Name: "cross_map_lrn2d", Args: &ResponseNormArgs{}, Takes: (*Call).floats, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*ResponseNormArgs)
		switch {
		case x.Rank() != 4:
			c.Fail("Expected input to be 4D, got %dD instead", x.Rank())
		case a.Size > maxCrossMaps:
			c.Fail("a window of %d channels is not modelled, at most one of %d", a.Size, maxCrossMaps)
		case x.Numel() == 0:
			c.Fail("an input of shape %v is not modelled", x.Size)
		}
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Return(y, c.New(tensor.Contiguous(x.Size), x.DType))
	},
	Eval: aside(func(r Arrays, c *Call) {
		a, x := c.Args.(*ResponseNormArgs), c.In[0].Size
		y, scale := array.CrossMapNorm(r.Get(c.In[0]), int(x.At(0)), int(x.At(1)), int(x.At(2)*x.At(3)), int(a.Size), a.Alpha, a.Beta, a.K)
		r.Put(c.Out[0], y)
		r.Put(c.Out[1], scale)
	}, nil),
	Source: "torch/nn/modules/_functions.py: CrossMapLRN2d.forward",
})

// CrossMapNormBackward is its backward, of the gradient, the input, the result and the
// scale, which goes over the samples one by one.
var CrossMapNormBackward = define(Op{
	Name: "cross_map_lrn2d_backward", Args: &ResponseNormArgs{}, Takes: (*Call).floats, Run: func(c *Call) {
		x, a := c.In[1], c.Args.(*ResponseNormArgs)
		ratio := c.NewShape(x.DType, x.Dim(1)+a.Size-1, x.Dim(2), x.Dim(3))
		sum := c.NewShape(x.DType, x.Dim(2), x.Dim(3))
		out := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Drop(sum, ratio) // which a view that is declared later holds
		c.Return(out)
	},
	Eval: aside(func(r Arrays, c *Call) {
		a, x := c.Args.(*ResponseNormArgs), c.In[1].Size
		r.Put(c.Out[0], array.CrossMapNormGrad(r.Get(c.In[0]), r.Get(c.In[1]), r.Get(c.In[2]), r.Get(c.In[3]), int(x.At(0)), int(x.At(1)), int(x.At(2)*x.At(3)),
			int(a.Size), a.Alpha, a.Beta))
	}, nil),
	Source: "torch/nn/modules/_functions.py: CrossMapLRN2d.backward",
})
