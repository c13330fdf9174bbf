package engine

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// put puts a module of another class in the place of the one at a path from
// root and returns both.
func (p *interp) put(root *module, place program.Place) (old, new *module) {
	parent, path := root, place.Path
	for {
		i := parent.step(path)
		if path == parent.class.Children[i].Path {
			old = parent.children[i]
			new = p.instantiate(place.Class, old.path)
			parent.replace(old, new)
			return old, new
		}
		path = path[len(parent.class.Children[i].Path)+1:]
		parent = parent.children[i]
	}
}

// replace makes another module a child in the place of old.
func (m *module) replace(old, new *module) {
	for _, list := range [][]*module{m.children, m.registered} {
		if i := slices.Index(list, old); i >= 0 {
			list[i] = new
		}
	}
}

// step returns the child through which a path leads; graph has checked that
// there is one.
func (m *module) step(path string) int {
	for i, ch := range m.class.Children {
		if path == ch.Path || strings.HasPrefix(path, ch.Path+".") {
			return i
		}
	}
	panic("engine: no module " + path)
}

// child returns the child at a path of one part, nil if there is none.
func (m *module) child(path string) *module {
	for i, ch := range m.class.Children {
		if ch.Path == path {
			return m.children[i]
		}
	}
	return nil
}

// inherit gives m the parameters, buffers and children of the module whose
// place it takes, which keeps its own class.
func (m *module) inherit(old *module) {
	m.params, m.buffers, m.attrs = old.params, old.buffers, old.attrs
	for i := range m.children {
		m.children[i].inherit(old.children[i])
	}
}

// adapt freezes a model and puts its adapters in, as PEFT does with a model that
// is on the device: the weights of each are made in the type of the layer's own,
// float32 if that is quantized, and converted when all are there
// (cast_adapter_dtype).
func (p *interp) adapt(root *module, a *program.Adapters) {
	if a == nil {
		return
	}
	seen := map[*cell]bool{}
	eachParameter(root, func(m *module, i int) {
		if c := m.params[i]; !seen[c] { // its first name counts, as in Module.named_parameters
			seen[c] = true
			c.setFrozen(a.Bias != "all" || !biasName(m.parameterPath(root, i)))
		}
	})
	outer := p.push()
	var added []*cell
	for _, place := range a.Layers {
		old, m := p.put(root, place)
		base := m.child(program.BaseLayer)
		base.inherit(old)
		if a.Bias == "lora_only" {
			for i, c := range base.params {
				if biasName(base.class.Params[i].Name) {
					c.setFrozen(false)
				}
			}
		}
		first := tensor.Float32
		if d := old.params[0].t.DType; d.IsFloating() {
			first = d
		}
		for _, c := range m.adapterCells() {
			p.layer = c.layer
			c.t = p.Leaf(trace.Parameters, first, true, c.decl.Size...)
			c.adapter = true
			added = append(added, c)
		}
	}
	for _, place := range a.Saved {
		old, m := p.put(root, place)
		m.child(program.OriginalModule).inherit(old)
		p.deepCopy(m.child(program.ModulesToSave), old)
		eachParameter(m.child(program.ModulesToSave), func(m *module, i int) { m.params[i].setFrozen(false) })
	}
	for _, c := range added {
		if c.t.DType != a.DType {
			p.layer = c.layer
			t := p.Leaf(trace.Parameters, a.DType, true, c.decl.Size...)
			p.Drop(c.t)
			c.t = t
		}
		obj(c.t).param = true
	}
	p.pop(outer)
}

// adapterCells are the weights of an adapter: those of a layer's own, or of
// lora_A and lora_B.
func (m *module) adapterCells() []*cell {
	out := append([]*cell(nil), m.params...)
	for i, ch := range m.class.Children {
		if ch.Path != program.BaseLayer {
			out = append(out, m.children[i].params...)
		}
	}
	return out
}

// biasName reports whether PEFT takes a parameter for a bias.
func biasName(name string) bool { return strings.Contains(name, "bias") }

// setFrozen takes a parameter out of training or into it, before or after it is
// moved to the device.
func (c *cell) setFrozen(frozen bool) {
	c.frozen = frozen
	if c.t != nil {
		obj(c.t).requires = !frozen
	}
}
