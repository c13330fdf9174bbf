package python

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// DeepCopy copies the tensors of a module as copy.deepcopy does: own parameters,
// own buffers, children. A parameter is cloned; of a buffer it is the storage,
// and the tensor over it is first made with one element of its own
// (Tensor.__deepcopy__ in torch/_tensor.py).
func (p *Interp) DeepCopy(m, source *Module) {
	outer := p.Push()
	p.Layer = m.Layer
	for i, c := range m.Params {
		if c.T == nil {
			p.Label("clone")
			c.T = p.LeafOf(trace.Parameters, source.Params[i].T.DType, !c.Frozen, source.Params[i].T.LikeDense())
			autograd.Of(c.T).Param = true
			c.Frozen = source.Params[i].Frozen
			autograd.Of(c.T).Requires = autograd.Of(source.Params[i].T).Requires
			p.CopyTo(c.T, source.Params[i].T)
			c.valued = true
		}
	}
	p.Label("deepcopy")
	for i, c := range m.Buffers {
		if c.T == nil {
			p.Move(c, false)
			p.Drop(p.New(tensor.Contiguous(tensor.D()), c.Decl.DType))
			p.CopyTo(c.T, source.Buffers[i].T)
			c.valued = true
		}
	}
	p.Pop(outer)
	for _, i := range m.Class.Registered() {
		p.DeepCopy(m.Children[i], source.Children[i])
	}
}

// ToCPU moves a module to the CPU as Module.to does.
func (p *Interp) ToCPU(m *Module) {
	for _, ch := range m.Registered {
		p.ToCPU(ch)
	}
	outer := p.Push()
	p.Layer = m.Layer
	for _, list := range [][]*Cell{m.Params, m.Buffers} {
		for _, c := range list {
			if old := autograd.Of(c.T); !autograd.OnHost(c.T) {
				t := p.Transfer(c.T, true, false, c.T.LikeDense())
				autograd.Of(t).Requires = old.Requires
				p.Mark(t, trace.Parameters)
				p.Drop(c.T)
				c.T = t
			}
		}
	}
	p.Pop(outer)
}

// Over instantiates a class over the parameters and buffers of a module that is
// made like it, whose name it goes by in reports.
func (p *Interp) Over(c *program.Class, m *Module) *Module {
	n := p.Instantiate(c, m.path)
	p.take(n, m)
	return n
}

// wrapped is what was put in the place of a module of a class: a wrapper of it, which is
// then one of own, or a module whose forward suits any batch.
func (p *Interp) wrapped(own, put *Module, class *program.Class) *Module {
	base := put.child(program.BaseLayer)
	switch {
	case base == nil:
		return put
	case base.child(program.BaseLayer) != nil: // of a wrapper
		own = p.wrapped(own, base, class)
	case base.Class != class && base.Class.Parametrized == nil:
		return put
	default:
		p.take(own, base)
	}
	w := *put
	w.Children, w.Registered = slices.Clone(w.Children), slices.Clone(w.Registered)
	w.replace(base, own)
	return &w
}

func (p *Interp) take(n, from *Module) {
	n.Params, n.Buffers, n.attrs, n.Hooks = from.Params, from.Buffers, from.attrs, from.Hooks
	p.LayerOf(n.Layer, from.Class)
	for i, own := range n.Class.Children {
		k := slices.IndexFunc(from.Class.Children, func(ch program.Child) bool { return ch.Path == own.Path })
		switch {
		case k < 0: // it holds no tensors, and is called here only
		case from.Children[k].child(program.ModulesToSave) != nil: // it calls that alone
			p.take(n.Children[i], from.Children[k].child(program.ModulesToSave))
		case from.Children[k].Class != from.Class.Children[k].Class: // put in the place of another
			n.replace(n.Children[i], p.wrapped(n.Children[i], from.Children[k], from.Class.Children[k].Class))
		default:
			p.take(n.Children[i], from.Children[k])
		}
	}
}
