package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// HistcArgs are the bins of histc.
type HistcArgs struct {
	Bins int64   `arg:"bins"`
	Min  float64 `arg:"min"`
	Max  float64 `arg:"max"`
}

// Histc counts the elements between min and max in equal bins. Where min is max,
// PyTorch takes the bounds of the data, which the host reads.
var Histc = define(op.Op{
	Name: "histc", Sig: "torch.histc(input, bins: int = 100, min: float = 0.0, max: float = 0.0)", Args: &HistcArgs{}, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*HistcArgs)
		switch {
		case a.Bins < 1:
			c.Fail("bins must be at least 1, not %d", a.Bins)
		case a.Min > a.Max:
			c.Fail("min %v is more than max %v", a.Min, a.Max)
		case c.NeedsGrad(x):
			c.Fail("histc has no derivative")
		}
		c.Return(c.NewShape(x.DType, a.Bins))
		if a.Min == a.Max {
			c.Drop(c.Do1(Min.Any, &ExtremeArgs{}, x))
			c.Drop(c.Do1(Max.Any, &ExtremeArgs{}, x))
		}
	},
	Eval: (&op.Eval{Forward: func(m op.Machine, c *op.Call) error {
		h, x, l := c.Args.(*HistcArgs), c.In[0], op.Launch{On: m}
		if h.Min == h.Max {
			return op.ErrView
		}
		l.Add(c.Out[0])
		l.Seen(x, x.Numel())
		return l.Run(kernel.Histogram, nil, h.Min, h.Max)
	}}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
		h := c.Args.(*HistcArgs)
		a.Put(c.Out[0], array.Histogram(a.Get(c.In[0]), int(h.Bins), h.Min, h.Max))
	}, nil)),
	Source: "aten/src/ATen/native/cuda/SummaryOps.cu: _histc_cuda_template",
})
