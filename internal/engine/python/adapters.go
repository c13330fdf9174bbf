package python

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// put puts a module of another class in the place of the one at a path from
// root and returns both.
func (p *Interp) put(root *Module, place program.Place) (old, new *Module) {
	parent, path := root, place.Path
	for {
		i := parent.Step(path)
		if path == parent.Class.Children[i].Path {
			old = parent.Children[i]
			new = p.Instantiate(place.Class, old.path)
			parent.replace(old, new)
			return old, new
		}
		path = path[len(parent.Class.Children[i].Path)+1:]
		parent = parent.Children[i]
	}
}

// replace makes another module a child in the place of old.
func (m *Module) replace(old, new *Module) {
	for _, list := range [][]*Module{m.Children, m.Registered} {
		if i := slices.Index(list, old); i >= 0 {
			list[i] = new
		}
	}
}

// Step returns the child through which a path leads; graph has checked that
// there is one.
func (m *Module) Step(path string) int {
	for i, ch := range m.Class.Children {
		if path == ch.Path || strings.HasPrefix(path, ch.Path+".") {
			return i
		}
	}
	panic("engine: no module " + path)
}

// child returns the child at a path of one part, nil if there is none.
func (m *Module) child(path string) *Module {
	for i, ch := range m.Class.Children {
		if ch.Path == path {
			return m.Children[i]
		}
	}
	return nil
}

// inherit gives m the parameters, buffers and children of the module whose
// place it takes, which keeps its own class.
func (m *Module) inherit(old *Module) {
	m.Params, m.Buffers, m.attrs = old.Params, old.Buffers, old.attrs
	for i := range m.Children {
		m.Children[i].inherit(old.Children[i])
	}
}

// Adapt freezes a model and puts its adapters in, as PEFT does with a model that
// is on the device: the weights of each are made in the type of the layer's own,
// float32 if that is quantized, and converted when all are there
// (cast_adapter_dtype).
func (p *Interp) Adapt(root *Module, a *program.Adapters) {
	if a == nil {
		return
	}
	seen := map[*Cell]bool{}
	EachParameter(root, func(m *Module, i int) {
		if c := m.Params[i]; !seen[c] { // its first name counts, as in Module.named_parameters
			seen[c] = true
			c.setFrozen(a.Bias != "all" || !biasName(m.ParameterPath(root, i)))
		}
	})
	outer := p.Push()
	var added []*Cell
	for _, place := range a.Layers {
		old, m := p.put(root, place)
		base := m.child(program.BaseLayer)
		base.inherit(old)
		if a.Bias == "lora_only" {
			for i, c := range base.Params {
				if biasName(base.Class.Params[i].Name) {
					c.setFrozen(false)
				}
			}
		}
		first := tensor.Float32
		if d := old.Params[0].T.DType; d.IsFloating() {
			first = d
		}
		for _, c := range m.adapterCells() {
			p.Layer = c.Layer
			c.T = p.Leaf(trace.Parameters, first, true, c.Decl.Size...)
			c.adapter = true
			added = append(added, c)
		}
	}
	for _, place := range a.Saved {
		old, m := p.put(root, place)
		m.child(program.OriginalModule).inherit(old)
		p.DeepCopy(m.child(program.ModulesToSave), old)
		EachParameter(m.child(program.ModulesToSave), func(m *Module, i int) { m.Params[i].setFrozen(false) })
	}
	for _, c := range added {
		if c.T.DType != a.DType {
			p.Layer = c.Layer
			t := p.Leaf(trace.Parameters, a.DType, true, c.Decl.Size...)
			p.Drop(c.T)
			c.T = t
		}
		autograd.Of(c.T).Param = true
	}
	p.Pop(outer)
}

// adapterCells are the weights of an adapter: those of a layer's own, or of
// lora_A and lora_B.
func (m *Module) adapterCells() []*Cell {
	out := append([]*Cell(nil), m.Params...)
	for i, ch := range m.Class.Children {
		if ch.Path != program.BaseLayer {
			out = append(out, m.Children[i].Params...)
		}
	}
	return out
}

// biasName reports whether PEFT takes a parameter for a bias.
func biasName(name string) bool { return strings.Contains(name, "bias") }

// setFrozen takes a parameter out of training or into it, before or after it is
// moved to the device.
func (c *Cell) setFrozen(frozen bool) {
	c.Frozen = frozen
	if c.T != nil {
		autograd.Of(c.T).Requires = !frozen
	}
}
