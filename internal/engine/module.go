package engine

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// module is one instance of a class.
type module struct {
	class    *program.Class
	path     string
	layer    int32 // of path, in the trace
	params   []*cell
	buffers  []*cell
	attrs    []*cell
	children []*module

	registered []*module // the children in PyTorch's order

	hooks forwardHooks // of forward; nil: none
}

// forwardHooks are what Module.register_forward_pre_hook and register_forward_hook
// were given, such as those of fully_shard.
type forwardHooks interface {
	// PreForward returns what goes into forward in the place of the arguments; it is
	// the caller's.
	PreForward(args []value) []value
	// PostForward returns what the call does, and takes over what forward returned.
	PostForward(v value) value
}

// hasHooks reports whether a module or one in it has hooks.
func (m *module) hasHooks() bool {
	return m.hooks != nil || slices.ContainsFunc(m.children, (*module).hasHooks)
}

// cell holds a parameter or buffer; tied parameters share one.
type cell struct {
	class *program.Class // that declares it
	decl  *program.Param
	t     *op.Tensor // nil until the model is moved to the device
	layer int32

	frozen  bool // does not require grad
	adapter bool // a weight of an adapter
	valued  bool // the backend has initialized it, or a row has made its value

	device *op.Tensor // the copy on the device, while t is on the CPU

	divided bool       // t is this rank's part of it
	whole   *op.Tensor // gathered from all ranks, until it is divided again
}

// Leaf allocates a tensor that no operator made: an input, a parameter.
func (p *interp) Leaf(c trace.Category, d tensor.DType, requiresGrad bool, size ...int64) *op.Tensor {
	t := p.New(tensor.Contiguous(tensor.D(size...)), d)
	o := obj(t)
	o.requires = requiresGrad
	p.mark(t, c)
	return t
}

// instantiate makes the modules of a class, without their tensors.
func (p *interp) instantiate(c *program.Class, path string) *module {
	p.meter.Hold(moduleBytes + tensor.Bytes(len(path)))
	m := &module{class: c, path: path, layer: p.newLayer(path, c)}
	m.params, m.buffers, m.attrs = cells(c, c.Params, m.layer), cells(c, c.Buffers, m.layer), cells(c, c.Attrs, m.layer)
	for _, ch := range c.Children {
		sub := ch.Path
		if path != "" {
			sub = path + "." + ch.Path
		}
		m.children = append(m.children, p.instantiate(ch.Class, sub))
	}
	for _, i := range c.Registered() {
		m.registered = append(m.registered, m.children[i])
	}
	for i, ch := range c.Children {
		for _, t := range ch.Ties {
			*m.children[i].param(t.Param) = *m.param(t.Source)
		}
	}
	return m
}

// cells are the places of what a module of that class and layer declares.
func cells(c *program.Class, decls []program.Param, layer int32) []*cell {
	if len(decls) == 0 {
		return nil
	}
	made, out := make([]cell, len(decls)), make([]*cell, len(decls))
	for i := range decls {
		made[i] = cell{class: c, decl: &decls[i], layer: layer}
		out[i] = &made[i]
	}
	return out
}

// parameterPath is the path of m's i-th parameter from root, a module that m is
// in. One that is tied may have another name where it comes from.
func (m *module) parameterPath(root *module, i int) string {
	return program.Join(strings.TrimPrefix(strings.TrimPrefix(m.path, root.path), "."), m.class.Params[i].Name)
}

// param returns the place of the parameter or buffer at a path from m; graph
// has checked that it exists.
func (m *module) param(path string) **cell {
	for i := range m.class.Params { // a tied parameter may have another name where it comes from
		if m.class.Params[i].Name == path {
			return &m.params[i]
		}
	}
	for i := range m.class.Buffers {
		if m.class.Buffers[i].Name == path {
			return &m.buffers[i]
		}
	}
	for i := range m.class.Attrs {
		if m.class.Attrs[i].Name == path {
			return &m.attrs[i]
		}
	}
	for i, ch := range m.class.Children {
		if rest, ok := strings.CutPrefix(path, ch.Path+"."); ok {
			if c := m.children[i].param(rest); c != nil {
				return c
			}
		}
	}
	if base := m.child(program.BaseLayer); base != nil { // whose weight and bias a wrapper shows as its own
		return base.param(path)
	}
	return nil
}

// toDevice allocates the tensors of a module as Module.to does: children
// first, then its own parameters, then its own buffers.
func (p *interp) toDevice(m *module) {
	for _, ch := range m.registered {
		p.toDevice(ch)
	}
	outer := p.push()
	p.layer = m.layer
	p.load(m)
	for _, c := range m.params {
		p.move(c, true)
	}
	for _, c := range m.buffers {
		p.move(c, false)
	}
	p.flatten(m)
	p.pop(outer)
}

func (p *interp) move(c *cell, grad bool) {
	if c.t != nil {
		return
	}
	d := c.decl.DType
	if p.loading != nil && grad && d.IsFloating() {
		d = *p.loading
	}
	c.t = p.Leaf(trace.Parameters, d, grad && !c.frozen, c.decl.Size...)
	obj(c.t).param = grad
}

// parameters lists the parameters of modules, each once, in the order of
// Module.parameters: a module's own, then those of its children.
func parameters(ms []*module) []*cell {
	var out []*cell
	seen := map[*cell]bool{}
	for _, m := range ms {
		eachParameter(m, func(m *module, i int) {
			if c := m.params[i]; !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		})
	}
	return out
}

// eachParameter calls f for each parameter of m and of the modules in it, the
// i-th of the module that holds it; for one that several hold several times.
func eachParameter(m *module, f func(m *module, i int)) {
	for i := range m.params {
		f(m, i)
	}
	for _, ch := range m.registered {
		eachParameter(ch, f)
	}
}

func (m *module) eachBuffer(f func(*cell)) {
	for _, c := range m.buffers {
		f(c)
	}
	for _, ch := range m.children {
		ch.eachBuffer(f)
	}
}
