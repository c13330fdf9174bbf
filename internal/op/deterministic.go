package op

import "github.com/memplan/memplan/internal/tensor"

// Where algorithms must be deterministic, what adds or writes by an index becomes
// an index_put_, which sorts.

// putDeterministic is x.index_put_(index, src) along a dimension: the index is
// checked on the device first.
func (c *Call) putDeterministic(x tensor.Layout, idx, src *Tensor, dim int) {
	within := func(extreme, compare *Op, bound int64) {
		value := c.Do1(extreme, nil, idx)
		c.Drop(c.Do1(compare, &BinaryArgs{Other: Number{Set: true, Value: float64(bound)}}, value), value)
	}
	within(Max.All, Less, x.Dim(dim))
	within(Min.All, GreaterEqual, -x.Dim(dim))
	mark := c.Mark()
	c.linearIndex(idx.Numel(), 1)
	slice := int64(1)
	for i := dim + 1; i < x.Rank(); i++ {
		slice *= x.Dim(i)
	}
	c.putSorted(src, idx.Numel(), x.Numel(), slice)
	c.DropTo(mark)
}

// scatterDeterministic is what scatter and scatter_add of src into a tensor like x
// do (_scatter_via_index_put in aten/src/ATen/native/TensorAdvancedIndexing.cpp):
// each element of the index becomes coordinates, which become one linear index.
func (c *Call) scatterDeterministic(x tensor.Layout, idx, src *Tensor, dim int) {
	if !c.Env().Deterministic {
		return
	}
	if x.Rank() == 1 {
		c.putDeterministic(x, idx, src, 0)
		return
	}
	n, rank := idx.Numel(), int64(x.Rank())
	mark := c.Mark()
	c.Local(c.NewShape(tensor.Int64, n, rank))
	for i := range idx.Rank() {
		if i != dim {
			c.Drop(c.grown(tensor.Int64, idx.Dim(i)))
		}
	}
	c.Local(c.NewShape(tensor.Int64, rank)) // strides
	product := c.NewShape(tensor.Int64, n, rank)
	flat := c.Local(c.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, product))
	c.Drop(product)
	if src.Numel() != n || !src.IsContiguous() { // as many elements of it as the index has
		src = c.Local(c.NewShape(src.DType, n))
	}
	c.putDeterministic(tensor.Contiguous(tensor.D(x.Numel())), flat, src, 0)
	c.DropTo(mark)
}
