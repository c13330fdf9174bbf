package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// SearchArgs are the arguments of bucketize and searchsorted.
type SearchArgs struct {
	Int32 bool `arg:"out_int32"`
	Right bool `arg:"right"`
}

// search makes the index of each of the values; both operands are made row-major.
func search(c *op.Call, boundaries, values *op.Tensor) {
	d := tensor.Int64
	if c.Args.(*SearchArgs).Int32 {
		d = tensor.Int32
	}
	if boundaries.DType != values.DType {
		c.Fail("boundaries of %v do not fit values of %v; convert first", boundaries.DType, values.DType)
	}
	out := c.Grown(d, values.Size.Slice()...)
	c.Contiguous(values)
	c.Contiguous(boundaries)
	c.Return(out)
}

// Where values lie among sorted boundaries.
var (
	Bucketize = define(op.Op{
		Name: "bucketize", Eval: searching(1, 0), Sig: "torch.bucketize(input, boundaries, *, out_int32: bool = False, right: bool = False)", Args: &SearchArgs{}, Run: func(c *op.Call) {
			if c.In[1].Rank() != 1 {
				c.Fail("boundaries must be a vector, not of shape %v", c.In[1].Size)
			}
			search(c, c.In[1], c.In[0])
		},
		Source: "aten/src/ATen/native/cuda/Bucketization.cu",
	})
	Searchsorted = define(op.Op{
		Name: "searchsorted", Eval: searching(0, 1), Sig: "torch.searchsorted(sorted_sequence, input, *, out_int32: bool = False, right: bool = False)", Args: &SearchArgs{},
		Run: func(c *op.Call) {
			s, v := c.In[0], c.In[1]
			if s.Rank() == 0 || s.Rank() != 1 && (s.Rank() != v.Rank() || s.Size.Set(s.Rank()-1, 0) != v.Size.Set(s.Rank()-1, 0)) {
				c.Fail("sequences of shape %v do not fit values of shape %v; all dimensions but the last are equal", s.Size, v.Size)
			}
			search(c, s, v)
		},
		Source: "aten/src/ATen/native/cuda/Bucketization.cu",
	})
)

// searching finds the values of an input among the boundaries of another.
func searching(boundaries, values int) *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		a.Put(c.Out[0], array.Search(a.Array(c.In[boundaries]), a.Array(c.In[values]), c.Args.(*SearchArgs).Right))
	}, nil)
}
