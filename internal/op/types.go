package op

import "github.com/memplan/memplan/internal/tensor"

// floats wants at least one input of a floating type.
func (c *Call) floats() {
	for _, t := range c.In {
		if t != nil && t.DType.IsFloating() {
			return
		}
	}
	c.Fail("takes floating point tensors, not %v, PyTorch says", c.In[0].DType)
}

// allFloats wants inputs of floating types.
func (c *Call) allFloats() {
	for _, t := range c.In {
		if t != nil && !t.DType.IsFloating() {
			c.Fail("takes floating point tensors, not %v, PyTorch says", t.DType)
		}
	}
}

// oneType wants inputs of one type.
func (c *Call) oneType() { c.typesOf(c.In) }

// floatsOfOneType wants inputs of one floating type.
func (c *Call) floatsOfOneType() {
	c.oneType()
	c.floats()
}

// typesOf wants tensors of one type.
func (c *Call) typesOf(ts []*Tensor) {
	for _, t := range ts[1:] {
		if t != nil && t.DType != ts[0].DType {
			c.Fail("takes tensors of one type, not %v and %v, PyTorch says; convert one", ts[0].DType, t.DType)
		}
	}
}

// normTypes wants floats, and weights of the type of the input, or of float32 for the 16-bit
// types.
func (c *Call) normTypes() {
	x := c.In[0]
	defer c.floats()
	for _, t := range c.In[1:] {
		if t != nil && t.DType != x.DType && !(x.DType.IsHalf() && t.DType == tensor.Float32) {
			c.Fail("takes weights and statistics of %v, or of float32 for 16-bit types, not %v, PyTorch says", x.DType, t.DType)
		}
	}
}
