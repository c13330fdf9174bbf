package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// copied is an operator that copies its input in another order or type.
func copied(x *Executor, c *op.Call) error { return x.Copy(c.Out[0], c.In[0]) }

// constant fills the result.
func constant(v float64) row {
	return row{forward: func(x *Executor, c *op.Call) error { return x.Fill(c.Out[0], v) }}
}

// drawn fills the result with random numbers, which are made on the host.
func drawn(next func(*stream) float64) row {
	return row{forward: func(x *Executor, c *op.Call) error {
		v, r := make([]float64, c.Out[0].Numel()), newStream(uint64(x.draw()))
		for i := range v {
			v[i] = next(r)
		}
		return x.write(c.Out[0], tensor.Encode(c.Out[0].DType, v))
	}}
}

// triangle is an operator that keeps a triangle, as its derivative does.
func triangle(k *kernel.Kernel) row {
	return row{
		forward: func(x *Executor, c *op.Call) error {
			return x.launch(k, x.operands(target(c), c.In[0]), []int64{c.Args.(*op.DiagonalArgs).Diagonal})
		},
		backward: func(x *Executor, b *op.Back) error {
			return x.launch(k, x.operands(b.Results[0], b.Grads[0]), []int64{b.Args.(*op.DiagonalArgs).Diagonal})
		},
	}
}

// joined copies the inputs into the places that they have in the result.
func joined(x *Executor, c *op.Call) error {
	y, at := c.Out[0], int64(0)
	d := dim(c.Args.(*op.DimArgs).Dim, y.Rank())
	for _, t := range c.In {
		if t.Rank() == 1 && t.Numel() == 0 { // as torch.tensor([]), which joins anything
			continue
		}
		n := t.Dim(d)
		if err := x.launch(kernel.Copy, x.places(y, d, at, n, t), nil); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func (x *Executor) places(y *op.Tensor, d int, at, n int64, t *op.Tensor) []kernel.Tensor {
	return append([]kernel.Tensor{x.at(y, y.Narrow(d, at, n, 1))}, x.operand(t))
}

// copyRows make tensors of others or of nothing.
var copyRows = map[*op.Row]row{
	op.Clone:     {forward: copied, composed: true},
	op.ToCopy:    {forward: copied, composed: true},
	op.Cat:       {forward: joined, composed: true},
	op.Zeros:     constant(0),
	op.Ones:      constant(1),
	op.ZerosLike: constant(0),
	op.OnesLike:  constant(1),
	op.Rand:      drawn((*stream).uniform),
	op.Randn:     drawn((*stream).normal),
	op.Arange: {forward: func(x *Executor, c *op.Call) error {
		start, step, _ := c.Args.(*op.ArangeArgs).Range()
		return x.launch(kernel.Arange, x.operands(c.Out[0]), nil, start, step)
	}},
	op.Tril: triangle(kernel.Tril),
	op.Triu: triangle(kernel.Triu),
	// Their results lie where their inputs do.
	op.UnsafeView: {composed: true},
	op.Detach:     {composed: true},
}
