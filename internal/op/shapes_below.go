package op

import "fmt"

// below is what Shapes may know of a tensor of integers, its Aux: all of them are
// less.
type below int64

// follow keeps what is known of integers through an operator, and notes a lookup
// beyond the rows of a table.
func (s *Shapes) follow(c *Call) {
	switch {
	case c.Op.Below != nil:
		if end, ok := c.Op.Below(c); ok {
			c.Out[0].Aux = below(end)
		}
	case c.Op.InPlace:
		c.Out[0].Aux = nil
	case c.Op.View != nil, c.Op.Copies:
		for _, t := range c.Out {
			t.Aux = c.In[0].Aux
		}
	case c.Op.Rows != nil:
		index, rows := c.Op.Rows(c)
		s.lookup(index, rows)
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
