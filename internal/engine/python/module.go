package python

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Module is one instance of a class.
type Module struct {
	Class    *program.Class
	path     string
	Layer    int32 // of path, in the trace
	Params   []*Cell
	Buffers  []*Cell
	attrs    []*Cell
	Children []*Module

	Registered []*Module // the children in PyTorch's order

	Hooks ForwardHooks // of forward; nil: none

	forward *program.Func // in place of the class's
}

// ForwardHooks are what Module.register_forward_pre_hook and register_forward_hook
// were given, such as those of fully_shard.
type ForwardHooks interface {
	// PreForward returns what goes into forward in the place of the arguments, which have
	// these keywords, "" or none where they stand by their position, and after those what
	// lives as long as the call; both are the caller's.
	PreForward(args []Value, names []string) []Value
	// PostForward returns what the call does, and takes over what forward returned.
	PostForward(v Value) Value
}

// hasHooks reports whether a module or one in it has hooks.
func (m *Module) hasHooks() bool {
	return m.Hooks != nil || slices.ContainsFunc(m.Children, (*Module).hasHooks)
}

// Cell holds a parameter or buffer; tied parameters share one.
type Cell struct {
	class *program.Class // that declares it
	Decl  *program.Param
	T     *op.Tensor // nil until the model is moved to the device
	Layer int32

	Frozen  bool // does not require grad
	adapter bool // a weight of an adapter
	valued  bool // the backend has initialized it, or a row has made its value

	device *op.Tensor // the copy on the device, while t is on the CPU

	Part     tensor.Dims   // of tensor parallelism: size of this rank's part of it, with which the module computes; no dimensions: it has the whole
	Gradient GradPlacement // of tensor parallelism

	Divided bool       // t is this rank's part of it
	Hidden  bool       // it is no parameter of its module any more, but a view of one (use_orig_params=False)
	Whole   *op.Tensor // gathered from all ranks, until it is divided again
}

// GradPlacement is the placement of a parameter's gradient, if that is a DTensor.
type GradPlacement uint8

const (
	GradTensor    GradPlacement = iota // it is none
	GradReplicate                      // each rank has it whole
	GradShard                          // a part of it, as of the parameter
	GradPartial                        // a summand
)

// Redistributes reports whether the gradient does not lie as the parameter does, for
// which an optimizer's functions change its placement.
func (c *Cell) Redistributes() bool {
	return c.Gradient == GradPartial || c.Gradient == GradReplicate && c.Part.Len() > 0
}

// Size is that of the parameter as its module computes with it.
func (c *Cell) Size() tensor.Dims {
	if c.Part.Len() > 0 {
		return c.Part
	}
	return tensor.D(c.Decl.Size...)
}

// Leaf allocates a tensor that no operator made: an input, a parameter.
func (p *Interp) Leaf(c trace.Category, d tensor.DType, requiresGrad bool, size ...int64) *op.Tensor {
	return p.LeafOf(c, d, requiresGrad, tensor.Contiguous(tensor.D(size...)))
}

// LeafOf is Leaf with a layout.
func (p *Interp) LeafOf(c trace.Category, d tensor.DType, requiresGrad bool, l tensor.Layout) *op.Tensor {
	t := p.New(l, d)
	o := autograd.Of(t)
	o.Requires = requiresGrad
	p.Mark(t, c)
	return t
}

// Instantiate makes the modules of a class, without their tensors.
func (p *Interp) Instantiate(c *program.Class, path string) *Module {
	p.Meter.Hold(moduleBytes + tensor.Bytes(len(path)))
	m := &Module{Class: c, path: path, Layer: p.NewLayer(path, c)}
	m.Params, m.Buffers, m.attrs = cells(c, c.Params, m.Layer), cells(c, c.Buffers, m.Layer), cells(c, c.Attrs, m.Layer)
	for _, ch := range c.Children {
		sub := ch.Path
		if path != "" {
			sub = path + "." + ch.Path
		}
		m.Children = append(m.Children, p.Instantiate(ch.Class, sub))
	}
	for _, i := range c.Registered() {
		m.Registered = append(m.Registered, m.Children[i])
	}
	for i, ch := range c.Children {
		for _, t := range ch.Ties {
			*m.Children[i].param(t.Param) = *m.param(t.Source)
		}
	}
	return m
}

// cells are the places of what a module of that class and layer declares.
func cells(c *program.Class, decls []program.Param, layer int32) []*Cell {
	if len(decls) == 0 {
		return nil
	}
	made, out := make([]Cell, len(decls)), make([]*Cell, len(decls))
	for i := range decls {
		made[i] = Cell{class: c, Decl: &decls[i], Layer: layer}
		out[i] = &made[i]
	}
	return out
}

// ParameterPath is the path of m's i-th parameter from root, a module that m is
// in. One that is tied may have another name where it comes from.
func (m *Module) ParameterPath(root *Module, i int) string {
	name := m.Params[i].Decl.Name
	if i < len(m.Class.Params) {
		name = m.Class.Params[i].Name
	}
	return program.Join(m.pathFrom(root), name)
}

// pathFrom is the path of m from root, a module that m is in.
func (m *Module) pathFrom(root *Module) string {
	return strings.TrimPrefix(strings.TrimPrefix(m.path, root.path), ".")
}

// param returns the place of the parameter or buffer at a path from m; graph
// has checked that it exists.
func (m *Module) param(path string) **Cell {
	for i := range m.Class.Params { // a tied parameter may have another name where it comes from
		if m.Class.Params[i].Name == path {
			return &m.Params[i]
		}
	}
	for i := range m.Class.Buffers {
		if m.Class.Buffers[i].Name == path {
			return &m.Buffers[i]
		}
	}
	for i := range m.Class.Attrs {
		if m.Class.Attrs[i].Name == path {
			return &m.attrs[i]
		}
	}
	for i, ch := range m.Class.Children {
		if rest, ok := strings.CutPrefix(path, ch.Path+"."); ok {
			if c := m.Children[i].param(rest); c != nil {
				return c
			}
		}
	}
	for _, name := range []string{program.BaseLayer, program.ModulesToSave} { // whose weight and bias a wrapper shows as its own
		if of := m.child(name); of != nil {
			return of.param(path)
		}
	}
	return nil
}

// ToDevice allocates the tensors of a module as Module.to does: children
// first, then its own parameters, then its own buffers.
func (p *Interp) ToDevice(m *Module) {
	for _, ch := range m.Registered {
		p.ToDevice(ch)
	}
	outer := p.Push()
	p.Layer = m.Layer
	p.load(m)
	for _, c := range m.Params {
		p.Move(c, true)
	}
	for _, c := range m.Buffers {
		p.Move(c, false)
	}
	p.flatten(m)
	p.Pop(outer)
}

// Move allocates the tensor of a parameter or buffer, unless it is there.
func (p *Interp) Move(c *Cell, grad bool) {
	if c.T != nil {
		return
	}
	d := c.Decl.DType
	if p.loading != nil && grad && d.IsFloating() {
		d = *p.loading
	}
	c.T = p.Leaf(trace.Parameters, d, grad && !c.Frozen, c.Decl.Size...)
	autograd.Of(c.T).Param = grad
}

// ToChannelsLast is Module.to(memory_format=torch.channels_last): a parameter or buffer
// of four dimensions, or of five, whose strides are not in that order gives its storage
// up for a copy.
func (p *Interp) ToChannelsLast(m *Module) {
	for _, ch := range m.Registered {
		p.ToChannelsLast(ch)
	}
	outer := p.Push()
	p.Layer = m.Layer
	p.Label("_to_copy")
	for _, c := range slices.Concat(m.Params, m.Buffers) {
		if n := len(c.Decl.Size); n != 4 && n != 5 || c.T.IsChannelsLast() {
			continue
		}
		var t *op.Tensor
		p.On(autograd.OnHost(c.T), false, func() { t = p.LeafOf(trace.Parameters, c.T.DType, false, tensor.ChannelsLast(c.T.Size)) })
		p.CopyTo(t, c.T)
		p.MoveInto(c.T, t, t.Layout)
		p.Drop(t)
	}
	p.flatten(m) // RNNBase._apply
	p.Pop(outer)
}

// Parameters lists the parameters of modules, each once, in the order of
// Module.parameters: a module's own, then those of its children.
func Parameters(ms []*Module) []*Cell {
	var out []*Cell
	seen := map[*Cell]bool{}
	for _, m := range ms {
		EachParameter(m, func(m *Module, i int) {
			if c := m.Params[i]; !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		})
	}
	return out
}

// EachParameter calls f for each parameter of m and of the modules in it, the
// i-th of the module that holds it; for one that several hold several times.
func EachParameter(m *Module, f func(m *Module, i int)) {
	for i, c := range m.Params {
		if !c.Hidden {
			f(m, i)
		}
	}
	for _, ch := range m.Registered {
		EachParameter(ch, f)
	}
}

// BreadthFirst lists m and the modules in it as a walk comes to them that takes all children of
// a module before theirs; without those that are left out, and what is in them. A container on
// the way to a child is a child itself.
func (m *Module) BreadthFirst(without func(*Module) bool) []*Module {
	type place struct {
		m    *Module // nil: a container
		kids []*Module
		at   string // its path
	}
	out := []*Module{}
	queue := []place{{m, m.Registered, m.path}}
	for ; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		if p.m != nil {
			out = append(out, p.m)
		}
		inside := map[string]int{} // containers, by their place in the queue
		for _, ch := range p.kids {
			name, _, deeper := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(ch.path, p.at), "."), ".")
			switch i, seen := inside[name]; {
			case deeper && seen:
				queue[i].kids = append(queue[i].kids, ch)
			case deeper:
				inside[name] = len(queue)
				queue = append(queue, place{nil, []*Module{ch}, program.Join(p.at, name)})
			case !without(ch):
				queue = append(queue, place{ch, ch.Registered, ch.path})
			}
		}
	}
	return out
}

// EachBuffer calls f for each buffer of m and of the modules in it.
func (m *Module) EachBuffer(f func(*Cell)) {
	for _, c := range m.Buffers {
		f(c)
	}
	for _, ch := range m.Children {
		ch.EachBuffer(f)
	}
}
