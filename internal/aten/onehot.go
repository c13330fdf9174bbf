package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// OneHotArgs is the number of classes.
type OneHotArgs struct {
	Classes int64 `arg:"num_classes"`
}

// OneHot is int64, a row of zeros with a one for each index.
var OneHot = define(op.Op{
	Name: "one_hot", Indices: []op.Indices{{In: 0, Below: func(c *op.Call) int64 { return c.Args.(*OneHotArgs).Classes }}}, Sig: "F.one_hot(input, num_classes: int)", Args: &OneHotArgs{}, Run: func(c *op.Call) {
		x, n := c.In[0], c.Args.(*OneHotArgs).Classes
		if x.DType != tensor.Int64 {
			c.Fail("one_hot needs indices of type int64, not %v", x.DType)
		}
		if n < 1 || x.Numel() == 0 || x.Rank() == tensor.MaxRank {
			c.Fail("one_hot of shape %v with %d classes is not modelled", x.Size, n)
		}
		c.Return(c.NewShape(tensor.Int64, append(x.Size.Slice(), n)...))
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		v, err := array.OneHot(a.Get(c.In[0]), int(c.Args.(*OneHotArgs).Classes))
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Out[0], v)
	}, nil),
	Source: "aten/src/ATen/native/Onehot.cpp",
})
