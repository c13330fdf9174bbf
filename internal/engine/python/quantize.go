package python

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Quantize puts quantized layers in the place of others, before the model is
// moved to the device.
func (p *Interp) Quantize(root *Module, q *program.Quantization) {
	if q == nil {
		return
	}
	for _, place := range q.Layers {
		old, m := p.put(root, place)
		if len(m.Params) > 1 {
			m.Params[1] = old.Params[1]
		}
		m.Params[0].Frozen = true
	}
	p.loading = &q.DType
}

// load moves the weight of a quantized layer to the device, where it is
// quantized (Params4bit._quantize, Int8Params._quantize in
// bitsandbytes/nn/modules.py).
func (p *Interp) load(m *Module) {
	q := m.Class.Quantized
	if q == nil || m.Params[0].T != nil {
		return
	}
	outer := p.Push()
	p.Layer = m.Layer
	p.Env().GradMode = false
	source := q.Source
	if q.Bits == 8 {
		source = tensor.Float16
	}
	w := p.Leaf(trace.Temporaries, source, false, q.Out, q.In)
	parts := p.quantized(m, w)
	p.Drop(w)
	p.Pop(outer)
	m.hold(p, parts)
}

// quantized makes what is kept of the weight of a quantized layer.
func (p *Interp) quantized(m *Module, w *op.Tensor) []*op.Tensor {
	q := m.Class.Quantized
	if p.Executes() {
		decl := &program.Param{Name: "weight", Size: []int64{q.Out, q.In}, DType: w.DType}
		p.Must(p.backend.Initialize(w, Initial{Class: m.Class, Param: decl, Name: program.Join(m.path, decl.Name)}))
	}
	if q.Bits == 8 {
		return p.Do(aten.Int8Quantize, nil, w)
	}
	parts := p.Do(aten.Quantize4bit, &aten.Quantize4bitArgs{Type: q.Type, Double: q.Double, First: !p.maxTable, Storage: q.Storage}, w)
	p.maxTable = p.maxTable || q.Double
	return parts
}

// hold gives a quantized layer its tensors.
func (m *Module) hold(p *Interp, parts []*op.Tensor) {
	for _, t := range parts {
		p.Mark(t, trace.Parameters)
	}
	m.Params[0].T, m.Params[0].valued = parts[0], true
	for i, c := range m.Buffers {
		c.T, c.valued = parts[i+1], true
	}
}

// Convert converts the parameters of a model that has been loaded: as the program asks, or
// each to its own type.
func (p *Interp) Convert(root *Module, m *program.Model, engine bool) {
	switch {
	case m.Loaded != nil && m.Loaded.OnDevice:
		for _, c := range m.Loaded.Convert {
			if c.Copies || c.Engine != engine {
				continue
			}
			p.convert(root, func(path string, _ *Cell) (tensor.DType, bool) { return c.DType, c.Of(path) })
			if c.EmptyCache {
				p.EmptyCache()
			}
		}
	case m.Quantized != nil && !engine:
		p.convert(root, func(_ string, c *Cell) (tensor.DType, bool) { return c.Decl.DType, true })
	}
}

// convert gives the parameters of a model the types that to says, but for quantized
// weights.
func (p *Interp) convert(root *Module, to func(path string, c *Cell) (tensor.DType, bool)) {
	outer := p.Push()
	defer p.Pop(outer)
	EachParameter(root, func(m *Module, i int) {
		c := m.Params[i]
		if c.T == nil || c.Decl.Fixed || !c.T.DType.IsFloating() {
			return
		}
		d, ok := to(m.pathFrom(root), c)
		if !ok || c.T.DType == d {
			return
		}
		p.Layer = c.Layer
		t := p.Leaf(trace.Parameters, d, autograd.Of(c.T).Requires, c.Decl.Size...)
		autograd.Of(t).Param = true
		p.Drop(c.T)
		c.T = t
	})
}
