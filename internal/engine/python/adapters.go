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

// Adapt freezes a model and puts its adapters in, as PEFT does: the weights of each
// are made in the type of the layer's own, or in which it computes if that is
// quantized, and converted when all are there (cast_adapter_dtype). On the host they
// are only put in; the model that is moved to the device takes them along.
func (p *Interp) Adapt(root *Module, a *program.Adapters) {
	seen := map[*Cell]bool{}
	EachParameter(root, func(m *Module, i int) {
		if c := m.Params[i]; !seen[c] { // its first name counts, as in Module.named_parameters
			seen[c] = true
			c.setFrozen(a.Bias != "all" || !biasName(m.ParameterPath(root, i)))
		}
	})
	p.prompt(root, a)
	outer := p.Push()
	var added []*Cell
	for _, place := range a.Layers {
		old, m := p.put(root, place)
		base := m.innermost()
		base.inherit(old)
		if a.Bias != "none" && a.Bias != "all" {
			for i, c := range base.Params {
				if base.Class.Params[i].Name == "bias" {
					c.setFrozen(false)
				}
			}
		}
		cells := m.adapterCells()
		for _, c := range cells {
			c.adapter = true
		}
		if !a.OnHost {
			first, size := base.Class.AdapterType(base.Params[0].T.DType), m.child(program.Magnitude)
			for _, c := range cells {
				p.Layer = c.Layer
				if size == nil || c != size.Params[0] {
					c.T = p.Leaf(trace.Parameters, first, true, c.Decl.Size...)
				}
			}
			for _, c := range m.Buffers {
				p.Layer = c.Layer
				c.T = p.Leaf(trace.Parameters, c.Decl.DType, false, c.Decl.Size...)
			}
			if size != nil {
				p.startMagnitude(m, base, cells[0].T, cells[1].T)
			}
		}
		added = append(added, cells...)
	}
	var copies []*Module
	for _, place := range a.Saved {
		old, m := p.put(root, place)
		m.child(program.OriginalModule).inherit(old)
		if !a.OnHost {
			p.DeepCopy(m.child(program.ModulesToSave), old)
		}
		copies = append(copies, m.child(program.ModulesToSave))
		EachParameter(m.child(program.ModulesToSave), func(m *Module, i int) { m.Params[i].setFrozen(false) })
	}
	root.Fuse(a.Fused)
	if a.OnHost {
		p.Pop(outer)
		return
	}
	EachParameter(root, func(m *Module, i int) { // in the order of the model's modules
		c := m.Params[i]
		if !c.adapter {
			return
		}
		d := c.Decl.DType
		if a.Lower || a.Cast {
			if d = c.T.DType; d.IsHalf() && !a.Kept {
				d = a.DType
			}
		}
		p.retype(c, d)
	})
	if a.Lower { // in the order of the model's parameters
		EachParameter(root, func(m *Module, i int) {
			if c := m.Params[i]; c.adapter {
				p.retype(c, c.Decl.DType)
			}
		})
	}
	for _, copied := range copies { // to the type in which they train
		EachParameter(copied, func(m *Module, i int) {
			p.retype(m.Params[i], m.Params[i].Decl.DType)
			autograd.Of(m.Params[i].T).Param = true
		})
	}
	for _, c := range added {
		autograd.Of(c.T).Param = true
	}
	p.Pop(outer)
}

// Fuse gives modules other forwards.
func (m *Module) Fuse(list []program.Fused) {
	for _, f := range list {
		at, path := m, f.Path
		for path != "" {
			i := at.Step(path)
			path = strings.TrimPrefix(path[len(at.Class.Children[i].Path):], ".")
			at = at.Children[i]
		}
		at.forward = f.Forward
	}
}

// retype converts an adapter's weight.
func (p *Interp) retype(c *Cell, d tensor.DType) {
	if c.T.DType == d {
		return
	}
	p.Layer = c.Layer
	t := p.Leaf(trace.Parameters, d, true, c.Decl.Size...)
	p.Drop(c.T)
	c.T = t
}

// adapterCells are the weights of an adapter: those of a layer's own, or of the
// modules next to the layer that it is around.
func (m *Module) adapterCells() []*Cell {
	var out []*Cell
	if base := m.child(program.BaseLayer); base.child(program.BaseLayer) != nil { // made before
		out = base.adapterCells()
	}
	out = append(out, m.Params...)
	for i, ch := range m.Class.Children {
		if ch.Path != program.BaseLayer {
			out = append(out, m.Children[i].Params...)
		}
	}
	return out
}

// innermost is the module that wrappers go around.
func (m *Module) innermost() *Module {
	for base := m.child(program.BaseLayer); base != nil; base = m.child(program.BaseLayer) {
		m = base
	}
	return m
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

// prompt trains the module that computes virtual tokens, and moves it to the device where
// the model is, as PEFT does (_setup_prompt_encoder); PromptEmbedding looks its first values
// up there.
func (p *Interp) prompt(root *Module, a *program.Adapters) {
	if a.Prompt == "" {
		return
	}
	encoder := root.child(a.Prompt)
	EachParameter(encoder, func(m *Module, i int) { m.Params[i].setFrozen(false) })
	if a.OnHost {
		return
	}
	outer := p.Push()
	if c := encoder.child("embedding").Params[0]; a.Sampled {
		p.Layer = c.Layer
		n := c.Decl.Size[0]
		table := root.child("word_embeddings").Params[0].T.DType
		ids := p.Leaf(trace.Temporaries, tensor.Int64, false, n)
		rows := p.Leaf(trace.Temporaries, table, false, c.Decl.Size...)
		c.T = p.Leaf(trace.Parameters, table, true, c.Decl.Size...)
		p.Drop(rows)
		p.retype(c, c.Decl.DType)
		p.Drop(ids)
		autograd.Of(c.T).Param = true
	}
	p.ToDevice(encoder)
	p.Pop(outer)
}
