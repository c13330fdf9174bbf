package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// deepCopy copies the tensors of a module as copy.deepcopy does: own parameters,
// own buffers, children. A parameter is cloned; of a buffer it is the storage,
// and the tensor over it is first made with one element of its own
// (Tensor.__deepcopy__ in torch/_tensor.py).
func (p *interp) deepCopy(m, source *module) {
	outer := p.push()
	p.layer = m.layer
	for i, c := range m.params {
		if c.t == nil {
			p.label("clone")
			p.move(c, true)
			c.frozen = source.params[i].frozen
			obj(c.t).requires = obj(source.params[i].t).requires
			p.copyTo(c.t, source.params[i].t)
			c.valued = true
		}
	}
	p.label("deepcopy")
	for i, c := range m.buffers {
		if c.t == nil {
			p.move(c, false)
			p.Drop(p.New(tensor.Contiguous(tensor.D()), c.decl.DType))
			p.copyTo(c.t, source.buffers[i].t)
			c.valued = true
		}
	}
	p.pop(outer)
	for _, i := range m.class.Registered() {
		p.deepCopy(m.children[i], source.children[i])
	}
}

// toCPU moves a module to the CPU as Module.to does.
func (p *interp) toCPU(m *module) {
	for _, ch := range m.registered {
		p.toCPU(ch)
	}
	outer := p.push()
	p.layer = m.layer
	for _, list := range [][]*cell{m.params, m.buffers} {
		for _, c := range list {
			if old := obj(c.t); !onHost(c.t) {
				t := p.transfer(c.t, true, false, c.t.LikeDense())
				obj(t).requires = old.requires
				p.mark(t, trace.Parameters)
				p.Drop(c.t)
				c.t = t
			}
		}
	}
	p.pop(outer)
}

// over instantiates a class over the parameters and buffers of a module that is
// made like it, whose name it goes by in reports.
func (p *interp) over(c *program.Class, m *module) *module {
	n := p.instantiate(c, m.path)
	p.take(n, m)
	return n
}

func (p *interp) take(n, from *module) {
	n.params, n.buffers, n.attrs, n.hooks = from.params, from.buffers, from.attrs, from.hooks
	p.layerOf(n.layer, from.class)
	for i, own := range n.class.Children {
		k := slices.IndexFunc(from.class.Children, func(ch program.Child) bool { return ch.Path == own.Path })
		switch {
		case k < 0: // it holds no tensors, and is called here only
		case from.children[k].class != from.class.Children[k].Class: // put in the place of another; its forward suits any batch
			n.replace(n.children[i], from.children[k])
		default:
			p.take(n.children[i], from.children[k])
		}
	}
}
