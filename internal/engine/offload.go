package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// offloading are the hooks of saved tensors: torch.autograd.graph.save_on_cpu,
// and of parameters that are on the device only while their module runs, the
// place where they come from.
type offloading struct{ p *interp }

func (h offloading) Pack(t *op.Tensor) packed {
	p := h.p
	if c, ok := origin(t).(*cell); ok {
		return &packedParam{p, c, t.Layout}
	}
	if !p.offload.Activations {
		return keptTensor{p, p.Alias(t, t.Layout, t.DType)}
	}
	l := t.LikeDense()
	if p.offload.Pinned {
		l = tensor.Contiguous(t.Size)
	}
	c := p.transfer(t, true, p.offload.Pinned, l)
	p.mark(c, trace.Activations)
	return &packedHost{p, c}
}

// packedHost is a tensor on the CPU.
type packedHost struct {
	p *interp
	t *op.Tensor
}

func (x *packedHost) Unpack() *op.Tensor {
	return x.p.transfer(x.t, false, false, x.t.LikeDense())
}

func (x *packedHost) Drop() { x.p.Drop(x.t) }

// packedParam stands for a view of a parameter that is on the CPU.
type packedParam struct {
	p    *interp
	cell *cell
	view tensor.Layout
}

func (x *packedParam) Unpack() *op.Tensor {
	p := x.p
	t := p.transfer(x.cell.t, false, false, x.cell.t.LikeDense())
	v := p.Alias(t, x.view, t.DType)
	p.Drop(t)
	return v
}

func (x *packedParam) Drop() {}

// toHost puts the parameters of a model on the CPU, where they were made, and
// moves its buffers to the device: a module's own, then those of its children.
func (p *interp) toHost(m *module) {
	outer := p.push()
	p.layer = m.layer
	p.on(true, false, func() {
		for _, c := range m.params {
			p.move(c, true)
		}
	})
	for _, c := range m.buffers {
		p.move(c, false)
	}
	for _, ch := range m.registered {
		p.toHost(ch)
	}
	p.pop(outer)
}

// hooked reports whether hooks keep a module from its fused path: those of the
// modules in it do (TransformerEncoderLayer.forward in
// torch/nn/modules/transformer.py).
func (p *interp) hooked(m *module) bool {
	return p.offload.Parameters && !m.class.Is().Whole || m.masks() || m.hasHooks()
}

// onload copies the parameters that m needs to the device before its forward (a
// forward pre-hook), and returns what gives up the copies after it (a forward
// hook). They are its own parameters, or those of all that is in it.
func (p *interp) onload(m *module) func() {
	if !p.offload.Parameters || p.whole {
		return func() {}
	}
	cells := m.params
	if p.whole = m.class.Is().Whole; p.whole {
		cells = parameters([]*module{m})
	}
	p.onloaded += len(cells)
	outer := make([]*op.Tensor, len(cells)) // of a module around m that has the parameter, too
	for i, c := range cells {
		outer[i] = c.device
		c.device = p.Do(toDeviceRow, nil, c.t)[0]
		setOrigin(c.device, c)
		p.mark(c.device, trace.Parameters)
	}
	return func() {
		for i, c := range cells {
			t := c.device
			c.device = outer[i]
			setOrigin(t, nil)
			p.Drop(t)
		}
	}
}

// attribute is the tensor of a parameter or buffer, where a module uses it.
func (p *interp) attribute(c *cell) *op.Tensor {
	t := c.t
	switch {
	case c.whole != nil:
		return c.whole
	case c.divided:
		p.Fail("parameter %s is used while it is divided among processes, by a module that is not in the one that is sharded with it; PyTorch would mix a torch.Tensor and a DTensor", c.decl.Name)
	case c.device != nil:
		t = c.device
	}
	if onHost(t) {
		p.Fail("parameter %s is on the CPU (offload.parameters) and used by a module that does not own it", c.decl.Name)
	}
	return t
}
