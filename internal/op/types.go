package op

// Floats wants at least one input of a floating type.
func Floats(c *Call) {
	for _, t := range c.In {
		if t != nil && t.DType.IsFloating() {
			return
		}
	}
	c.Fail("takes floating point tensors, not %v, PyTorch says", c.In[0].DType)
}

// AllFloats wants inputs of floating types.
func AllFloats(c *Call) {
	for _, t := range c.In {
		if t != nil && !t.DType.IsFloating() {
			c.Fail("takes floating point tensors, not %v, PyTorch says", t.DType)
		}
	}
}

// OneType wants inputs of one type.
func OneType(c *Call) { SameType(c, c.In) }

// FloatsOfOneType wants inputs of one floating type.
func FloatsOfOneType(c *Call) {
	OneType(c)
	Floats(c)
}

// SameType wants tensors of one type.
func SameType(c *Call, ts []*Tensor) {
	for _, t := range ts[1:] {
		if t != nil && t.DType != ts[0].DType {
			c.Fail("takes tensors of one dtype, not %v and %v, PyTorch says; convert one with the operator to", ts[0].DType, t.DType)
		}
	}
}
