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

// productFlops counts the product of input i, the left factor, and another.
func productFlops(i int) func(c *Call) float64 {
	return func(c *Call) float64 { return product(c.Out[0], c.In[i].Dim(-1)) }
}

// product counts a matrix product with that result over k terms.
func product(out *Tensor, k int64) float64 { return 2 * float64(out.Numel()) * float64(k) }

// convFlops: each weight of a filter meets each position of the output once, or of
// the input if the convolution is transposed.
func convFlops(c *Call) float64 {
	positions, w := c.Out[0], c.In[1]
	if c.Args.(*ConvArgs).Transposed {
		positions = c.In[0]
	}
	return product(positions, w.Numel()/max(w.Dim(0), 1))
}

// attentionFlops: the products of queries and keys, and of what comes of them and
// the values.
func attentionFlops(c *Call) float64 {
	q, k, v := c.In[0], c.In[1], c.In[2]
	rows := float64(q.Numel() / max(q.Dim(-1), 1))
	return 2 * rows * float64(k.Dim(-2)) * float64(q.Dim(-1)+v.Dim(-1))
}

// rnnFlops: each weight meets each step of each sample.
func rnnFlops(c *Call) float64 {
	steps, batch := c.Args.(*RNNArgs).steps(c.In[0])
	weights := int64(0)
	for _, w := range c.In[3:] {
		weights += w.Numel()
	}
	return 2 * float64(steps) * float64(batch) * float64(weights)
}
