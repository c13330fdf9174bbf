package op

import "github.com/memplan/memplan/internal/tensor"

// Dim resolves a dimension index that may be negative.
func (c *Call) Dim(d, rank int) int {
	i, err := tensor.NormDim(d, rank)
	if err != nil {
		c.Fail("%v", err)
	}
	return i
}

// Elementwise is the layout of a result over the given tensors; nil ones are
// skipped.
func (c *Call) Elementwise(ts ...*Tensor) tensor.Layout {
	ls := make([]*tensor.Layout, 0, len(ts))
	for _, t := range ts {
		if t != nil {
			ls = append(ls, &t.Layout)
		}
	}
	l, err := tensor.Elementwise(ls...)
	if err != nil {
		c.Fail("%v", err)
	}
	return l
}

// Contiguous returns t itself or a row-major copy that lives to the end of the
// row, for kernels that need one (expect_contiguous).
func (c *Call) Contiguous(t *Tensor) *Tensor {
	if t == nil || t.IsContiguous() {
		return t
	}
	return c.Rearranged(t, tensor.Contiguous(t.Size))
}

// Rearranged is the copy in another layout that a kernel makes of an operand for
// itself; it lives to the end of the row. Where no kernel runs it takes nothing.
func (c *Call) Rearranged(t *Tensor, l tensor.Layout) *Tensor {
	if c.Env().NoKernels() {
		return c.Local(c.Alias(t, l, t.DType))
	}
	return c.Local(c.New(l, t.DType))
}

// InFormat is contiguous for the channels-last format too, if last is set.
func (c *Call) InFormat(t *Tensor, last bool) *Tensor {
	if last && !t.IsChannelsLastContiguous() {
		return c.Rearranged(t, tensor.ChannelsLast(t.Size))
	}
	if last {
		return t
	}
	return c.Contiguous(t)
}

// Grown is a row-major tensor that the kernel made empty and then resized.
func (c *Call) Grown(d tensor.DType, size ...int64) *Tensor {
	t := c.NewShape(d, size...)
	c.Filled(d)
	return t
}

// Filled is what resize_ does with the new part of a storage where algorithms
// must be deterministic: it fills it through a view, for which it first makes a
// tensor of one element (fill_resize_deterministic_ in
// aten/src/ATen/native/Resize.cpp).
func (c *Call) Filled(d tensor.DType) {
	if c.Env().Deterministic {
		c.Drop(c.NewShape(d))
	}
}

// WithoutGrad runs what a kernel calls, below autograd.
func (c *Call) WithoutGrad(f func()) {
	env := c.Env()
	mode := env.GradMode
	env.GradMode = false
	f()
	env.GradMode = mode
}

// Saved lists the tensors that were saved, inputs first.
func (b *Back) Saved() []*Tensor {
	var ts []*Tensor
	for _, s := range [][]*Tensor{b.SavedIns(), b.SavedOuts()} {
		for _, t := range s {
			if t != nil {
				ts = append(ts, t)
			}
		}
	}
	return ts
}
