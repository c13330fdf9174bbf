package op

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
