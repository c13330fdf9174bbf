package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// offloading are the hooks of saved tensors: torch.autograd.graph.save_on_cpu,
// and of parameters that are on the device only while their module runs, the
// place where they come from.
type offloading struct{ p *Interp }

// SaveOffloaded returns the hooks of saved tensors of a job that offloads some.
func (p *Interp) SaveOffloaded() autograd.SavedHooks {
	if p.away != nil {
		return p.away
	}
	return offloading{p}
}

// Pack implements autograd.SavedHooks.
func (h offloading) Pack(t *op.Tensor) autograd.Packed {
	p := h.p
	if c, ok := autograd.Origin(t).(*Cell); ok {
		return &packedParam{p, c, t.Layout}
	}
	if !p.Offload.Activations {
		return keptTensor{p, p.Alias(t, t.Layout, t.DType)}
	}
	l := t.LikeDense()
	if p.Offload.Pinned {
		l = tensor.Contiguous(t.Size)
	}
	c := p.Transfer(t, true, p.Offload.Pinned, l)
	p.Mark(c, trace.Activations)
	return &packedHost{p, c}
}

// packedHost is a tensor on the CPU.
type packedHost struct {
	p *Interp
	t *op.Tensor
}

// Unpack implements autograd.Packed.
func (x *packedHost) Unpack() *op.Tensor {
	return x.p.Transfer(x.t, false, false, x.t.LikeDense())
}

// Drop implements autograd.Packed.
func (x *packedHost) Drop() { x.p.Drop(x.t) }

// packedParam stands for a view of a parameter that is on the CPU.
type packedParam struct {
	p    *Interp
	cell *Cell
	view tensor.Layout
}

// Unpack implements autograd.Packed.
func (x *packedParam) Unpack() *op.Tensor {
	p := x.p
	t := p.Transfer(x.cell.T, false, false, x.cell.T.LikeDense())
	v := p.Alias(t, x.view, t.DType)
	p.Drop(t)
	return v
}

// Drop implements autograd.Packed.
func (x *packedParam) Drop() {}

// ToHost puts the parameters of a model on the CPU, where they were made, and
// moves its buffers to the device: a module's own, then those of its children.
func (p *Interp) ToHost(m *Module) {
	outer := p.Push()
	p.Layer = m.Layer
	p.On(true, false, func() {
		for _, c := range m.Params {
			p.Move(c, true)
		}
	})
	for _, c := range m.Buffers {
		p.Move(c, false)
	}
	for _, ch := range m.Registered {
		p.ToHost(ch)
	}
	p.Pop(outer)
}

// hooked reports whether hooks keep a module from its fused path: those of the
// modules in it do (TransformerEncoderLayer.forward in
// torch/nn/modules/transformer.py).
func (p *Interp) hooked(m *Module) bool {
	return p.Offload.Parameters && !m.Class.Is().Whole || m.masks() || m.hasHooks()
}

// onload copies the parameters that m needs to the device before its forward (a
// forward pre-hook), and returns what gives up the copies after it (a forward
// hook). They are its own parameters, or those of all that is in it.
func (p *Interp) onload(m *Module) func() {
	if !p.Offload.Parameters || p.whole {
		return func() {}
	}
	cells := m.Params
	if p.whole = m.Class.Is().Whole; p.whole {
		cells = Parameters([]*Module{m})
	}
	p.onGPU += len(cells)
	outer := make([]*op.Tensor, len(cells)) // of a module around m that has the parameter, too
	for i, c := range cells {
		outer[i] = c.device
		c.device = p.Do(autograd.ToDeviceRow, nil, c.T)[0]
		autograd.SetOrigin(c.device, c)
		p.Mark(c.device, trace.Parameters)
	}
	return func() {
		for i, c := range cells {
			t := c.device
			c.device = outer[i]
			autograd.SetOrigin(t, nil)
			p.Drop(t)
		}
	}
}

// attribute is the tensor of a parameter or buffer, where a module uses it.
func (p *Interp) attribute(c *Cell) *op.Tensor {
	if p.Reading != nil {
		p.Reading(c)
	}
	t := c.T
	switch {
	case c.Whole != nil:
		return c.Whole
	case c.Divided:
		p.Fail("parameter %s is used while it is divided among processes, by a module that is not in the one that is sharded with it; PyTorch would compute with a part of it", c.Decl.Name)
	case c.device != nil:
		t = c.device
	}
	if autograd.OnHost(t) {
		p.Fail("parameter %s is on the CPU (offload.parameters) and used by a module that does not own it", c.Decl.Name)
	}
	return t
}
