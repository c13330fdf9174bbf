package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// savedHooks are the hooks under which a step computes; nil if nothing that
// autograd saves is offloaded.
func (j *job) savedHooks() savedHooks {
	if j.offload.Activations || (j.offload.Parameters && j.env.GradMode) {
		return offloading{}
	}
	return nil
}

// offloading are the hooks of saved tensors: torch.autograd.graph.save_on_cpu,
// and of parameters that are on the device only while their module runs, the
// place where they come from.
type offloading struct{}

func (offloading) pack(p *Player, t *op.Tensor) packed {
	o := obj(t)
	switch {
	case o.st.from != nil:
		return &packedParam{o.st.from, t.Layout}
	case !p.offload.Activations:
		return &packedTensor{p.Alias(t, t.Layout, t.DType)}
	}
	l := t.LikeDense()
	if p.offload.Pinned {
		l = tensor.Contiguous(t.Size)
	}
	c := p.transfer(t, true, p.offload.Pinned, l)
	p.mark(obj(c), trace.Activations)
	return &packedHost{c}
}

// packedHost is a tensor on the CPU.
type packedHost struct{ t *op.Tensor }

func (x *packedHost) unpack(p *Player) *op.Tensor {
	return p.transfer(x.t, false, false, x.t.LikeDense())
}

func (x *packedHost) drop(p *Player) { p.Drop(x.t) }

// packedTensor is the tensor itself, outside of the graph.
type packedTensor struct{ t *op.Tensor }

func (x *packedTensor) unpack(p *Player) *op.Tensor { return p.Keep(x.t) }

func (x *packedTensor) drop(p *Player) { p.Drop(x.t) }

// packedParam stands for a view of a parameter that is on the CPU.
type packedParam struct {
	cell *cell
	view tensor.Layout
}

func (x *packedParam) unpack(p *Player) *op.Tensor {
	t := p.transfer(x.cell.t, false, false, x.cell.t.LikeDense())
	v := p.Alias(t, x.view, t.DType)
	p.Drop(t)
	return v
}

func (x *packedParam) drop(*Player) {}

// toHost puts the parameters of a model on the CPU, where they were made, and
// moves its buffers to the device: a module's own, then those of its children.
func (p *Player) toHost(m *module) {
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
func (p *Player) hooked(m *module) bool {
	return p.offload.Parameters && !m.class.Is().Whole || m.masks() || m.isSharded()
}

// onload copies the parameters that m needs to the device before its forward (a
// forward pre-hook), and returns what gives up the copies after it (a forward
// hook). They are its own parameters, or those of all that is in it.
func (p *Player) onload(m *module) func() {
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
		o := obj(c.device)
		o.st.from = c
		p.mark(o, trace.Parameters)
	}
	return func() {
		for i, c := range cells {
			t := c.device
			c.device = outer[i]
			obj(t).st.from = nil
			p.Drop(t)
		}
	}
}

// attribute is the tensor of a parameter or buffer, where a module uses it.
func (p *Player) attribute(c *cell) *op.Tensor {
	t := c.t
	switch {
	case c.whole != nil:
		return c.whole
	case c.divided:
		p.Fail("parameter %s is used while it is divided among processes, by a module that is not in the one that is sharded with it; PyTorch would mix a torch.Tensor and a DTensor", c.decl.Name)
	case c.device != nil:
		t = c.device
	}
	if obj(t).st.host {
		p.Fail("parameter %s is on the CPU (offload.parameters) and used by a module that does not own it", c.decl.Name)
	}
	return t
}

// parametersOnCPU reports whether optimizers step parameters in host memory.
func (j *job) parametersOnCPU() bool {
	f := j.prog.Parallel.FSDP
	return j.offload.Parameters || f != nil && f.Offload
}

// startOptimizer is the constructor of an optimizer. One that is offloaded gets
// copies of the parameters.
func (j *job) startOptimizer(i int) {
	o := j.prog.Optimizers[i]
	switch {
	case j.offload.Optimizer:
		var ps []*optim.Param
		for _, c := range j.opts[i] {
			t := j.transfer(c.t, true, j.offload.Pinned, c.t.LikeDense())
			obj(t).requires = true
			j.mark(obj(t), trace.Parameters)
			h := &optim.Param{T: t}
			ps = append(ps, h)
			if j.offload.Gradients {
				obj(c.t).ready = func(leaf *object) { j.takeGradient(leaf, h) }
			}
		}
		j.onCPU = append(j.onCPU, ps)
		j.on(true, false, func() { o.Row.Start(j, j.grouped(i, ps)) })
	case j.parametersOnCPU():
		j.on(true, false, func() { o.Row.Start(j, j.optimGroups(i)) })
	default:
		o.Row.Start(j, j.optimGroups(i))
	}
}

// takeGradient moves a gradient that is ready to the CPU and adds it to what is
// there (a hook of Tensor.register_post_accumulate_grad_hook).
func (j *job) takeGradient(leaf *object, h *optim.Param) {
	g := obj(j.transfer(&leaf.grad.Tensor, true, j.offload.Pinned, leaf.grad.Tensor.LikeDense()))
	j.mark(g, trace.Gradients)
	if sum := obj(h.T); sum.grad == nil {
		sum.grad = g
	} else {
		j.Drop(j.do1(op.AddInPlace, &op.AddArgs{}, &sum.grad.Tensor, &g.Tensor))
		j.release(g)
	}
	j.dropGrad(leaf)
}

// stepOnCPU steps an optimizer on the CPU: with gradients that are there, or
// copies of those on the device, and the parameters are copied back.
func (j *job) stepOnCPU(i int) {
	o := j.prog.Optimizers[i]
	if j.parametersOnCPU() {
		groups := j.optimGroups(i)
		j.on(true, false, func() { j.quiet(func() { o.Row.StepOnCPU(j, groups) }) })
		j.update(i, groups)
		return
	}
	for k, h := range j.onCPU[i] {
		leaf := obj(j.opts[i][k].t)
		if !j.offload.Gradients {
			j.dropGrad(obj(h.T))
			if leaf.grad != nil {
				g := obj(j.transfer(&leaf.grad.Tensor, true, j.offload.Pinned, leaf.grad.Tensor.LikeDense()))
				j.mark(g, trace.Gradients)
				obj(h.T).grad = g
			}
		}
		h.Grad = nil
		if g := obj(h.T).grad; g != nil {
			h.Grad = &g.Tensor
		}
	}
	groups := j.grouped(i, j.onCPU[i])
	j.on(true, false, func() { j.quiet(func() { o.Row.StepOnCPU(j, groups) }) })
	j.update(i, groups)
	for k, h := range j.onCPU[i] {
		j.copyTo(j.opts[i][k].t, h.T)
	}
}
