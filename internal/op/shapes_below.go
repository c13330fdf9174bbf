package op

import "fmt"

// below is what Shapes may know of a tensor of integers, its Aux: all of them are
// less.
type below int64

// follow keeps what is known of integers through an operator, and notes a lookup
// beyond the rows of a table.
func (s *Shapes) follow(c *Call) {
	switch {
	case c.Op == Arange:
		start, step, n := c.Args.(*ArangeArgs).Range()
		if t := c.Out[0]; n > 0 && !t.DType.IsFloating() {
			t.Aux = below(max(start, start+(n-1)*step)) + 1
		}
	case c.Op.InPlace:
		c.Out[0].Aux = nil
	case c.Op.View != nil, c.Op.Copies:
		for _, t := range c.Out {
			t.Aux = c.In[0].Aux
		}
	case c.Op == Embedding:
		s.lookup(c.In[0], c.In[1].Dim(0))
	case c.Op == IndexSelect, c.Op == IndexTensor:
		s.lookup(c.In[1], c.In[0].Dim(c.dim(c.Args.(*DimArgs).Dim, c.In[0].Rank())))
	}
}

func (s *Shapes) lookup(index *Tensor, rows int64) {
	if end, ok := index.Aux.(below); ok && int64(end) > rows {
		s.Beyond = fmt.Sprintf("index %d of a table of %d rows", end-1, rows)
	}
}

// Known describes what Shapes knows of t beside its shape and type, "" if nothing.
func Known(t *Tensor) string {
	if end, ok := t.Aux.(below); ok {
		return fmt.Sprintf("<%d", end)
	}
	return ""
}
