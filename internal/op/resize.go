package op

import "github.com/memplan/memplan/internal/tensor"

// grown is a row-major tensor that the kernel made empty and then resized.
func (c *Call) grown(d tensor.DType, size ...int64) *Tensor {
	t := c.NewShape(d, size...)
	c.filled(d)
	return t
}

// filled is what resize_ does with the new part of a storage where algorithms
// must be deterministic: it fills it through a view, for which it first makes a
// tensor of one element (fill_resize_deterministic_ in
// aten/src/ATen/native/Resize.cpp).
func (c *Call) filled(d tensor.DType) {
	if c.Env().Deterministic {
		c.Drop(c.NewShape(d))
	}
}
