package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// setAttr binds a module's attribute to a tensor, whose reference it takes over.
// A parameter that gets another tensor of data stays what it is for autograd.
func (p *interp) setAttr(c *cell, t *op.Tensor) {
	old := c.t
	c.t = t
	if old == nil {
		return
	}
	if o := obj(old); o.param && t != old {
		obj(t).param, obj(t).requires = true, o.requires
		p.mark(t, trace.Parameters)
	}
	p.Drop(old)
}
