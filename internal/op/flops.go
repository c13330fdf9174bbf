package op

// What operators of matrix products count is as torch/utils/flop_counter.py does; all
// others wait for memory rather than for arithmetic. A causal mask is not taken off
// there either.

// Flops is what a call that has run computed in matrix products; 0 of an operator
// without any.
func (c *Call) Flops() float64 {
	if f := c.Op.Flops; f != nil && len(c.Out) > 0 {
		return f(c)
	}
	return 0
}
