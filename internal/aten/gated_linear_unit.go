package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Glu is the product of one half of a dimension with the sigmoid of the other.
var Glu = define(op.Op{
	Name: "glu", Sig: "F.glu(input, dim: int = -1)", Args: &DimArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		if x.Rank() == 0 {
			c.Fail("glu needs at least one dimension")
		}
		d := c.Dim(c.Args.(*DimArgs).Dim, x.Rank())
		if x.Dim(d)%2 != 0 {
			c.Fail("dimension %d of shape %v does not divide into halves", d, x.Size)
		}
		if !x.DType.IsFloating() {
			c.Fail("glu needs a floating type, not %v", x.DType)
		}
		half := x.Narrow(d, 0, x.Dim(d)/2, 1)
		l, err := tensor.Elementwise(&half, &half)
		if err != nil {
			c.Fail("%v", err)
		}
		c.Return(c.New(l, x.DType))
	},
	Save: []op.Save{op.In(0)}, Node: "GluBackward0",
	Grad: func(b *op.Back) { // both halves of a row-major result
		b.Set(0, b.New(tensor.Contiguous(b.SavedIn(0).Size), b.SavedIn(0).DType))
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		x, y := a.Array(c.In[0]), make([]float64, c.Out[0].Numel())
		array.Halves(x.Size, array.Dim(c.Args.(*DimArgs).Dim, len(x.Size)), func(to, value, gate int) {
			y[to] = x.V[value] * array.Logistic(x.V[gate])
		})
		a.Put(c.Out[0], y)
	}, func(a op.Arrays, b *op.Back) {
		r := a.Wanted(b, 0)
		if r == nil {
			return
		}
		x, g := a.Array(b.SavedIn(0)), a.Get(b.Grads[0])
		out := make([]float64, len(x.V))
		array.Halves(x.Size, array.Dim(b.Args.(*DimArgs).Dim, len(x.Size)), func(to, value, gate int) {
			s := array.Logistic(x.V[gate])
			out[value], out[gate] = g[to]*s, g[to]*x.V[value]*s*(1-s)
		})
		a.Put(r, out)
	}),
	Source: "aten/src/ATen/native/GatedLinearUnit.cpp",
})
