package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// FlipArgs are the dimensions to reverse.
type FlipArgs struct {
	Dims []int64 `arg:"dims"`
}

// Flip reverses dimensions.
var Flip = define(op.Op{
	Name: "flip", Eval: op.Linear(func(args any) array.Linear { return array.Flip(args.(*FlipArgs).Dims) }), Sig: "torch.flip(input, dims: ints)", Args: &FlipArgs{}, Run: func(c *op.Call) {
		for _, d := range c.Args.(*FlipArgs).Dims {
			c.Dim(int(d), c.In[0].Rank())
		}
		c.Return(c.NewLike(c.In[0]))
	},
	Node: "FlipBackward0", Grad: func(b *op.Back) { b.Set(0, b.NewLike(b.Grads[0])) },
	Source: "aten/src/ATen/native/TensorTransformations.cpp: flip",
})

// RollArgs are the shifts of each dimension; without dimensions the tensor is
// rolled as if it were flat.
type RollArgs struct {
	Shifts []int64 `arg:"shifts"`
	Dims   []int64 `arg:"dims"`
}

// Roll shifts along dimensions, one after the other.
var Roll = define(op.Op{
	Name: "roll", Eval: evalRoll, Sig: "torch.roll(input, shifts: ints, dims: ints? = None)", Args: &RollArgs{}, Run: func(c *op.Call) {
		a := c.Args.(*RollArgs)
		if len(a.Shifts) == 0 || len(a.Dims) != len(a.Shifts) && !(len(a.Dims) == 0 && len(a.Shifts) == 1) {
			c.Fail("%d shifts do not fit %d dimensions", len(a.Shifts), len(a.Dims))
		}
		for _, d := range a.Dims {
			c.Dim(int(d), c.In[0].Rank())
		}
		c.Return(roll(c, c.In[0], len(a.Shifts)))
	},
	Node:   "RollBackward0",
	Grad:   func(b *op.Back) { b.Set(0, roll(&b.Call, b.Grads[0], len(b.Args.(*RollArgs).Shifts))) },
	Source: "aten/src/ATen/native/cuda/TensorTransformations.cu: roll_cuda; native/TensorTransformations.h: roll_common",
})

// roll makes one row-major copy for each of n shifts, from a row-major copy of
// its input; each result but the last is freed with the row.
func roll(c *op.Call, x *op.Tensor, n int) *op.Tensor {
	for i := range n {
		mark := c.Mark()
		y := c.Contiguous(x)
		x = c.New(tensor.Contiguous(y.Size), y.DType)
		c.DropTo(mark)
		if i < n-1 {
			c.Local(x)
		}
	}
	return x
}
