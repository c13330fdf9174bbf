package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// setAttr binds a module's attribute to a tensor, whose reference it takes over.
// A parameter that gets another tensor of data stays what it is for autograd.
func (p *Interp) setAttr(c *Cell, t *op.Tensor) {
	old := c.T
	c.T = t
	if old == nil {
		return
	}
	if o := autograd.Of(old); o.Param && t != old {
		autograd.Of(t).Param, autograd.Of(t).Requires = true, o.Requires
		p.Mark(t, trace.Parameters)
	}
	p.Drop(old)
}
