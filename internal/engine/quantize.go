package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// quantize puts quantized layers in the place of others, before the model is
// moved to the device.
func (p *interp) quantize(root *module, q *program.Quantization) {
	if q == nil {
		return
	}
	for _, place := range q.Layers {
		old, m := p.put(root, place)
		if len(m.params) > 1 {
			m.params[1] = old.params[1]
		}
		m.params[0].frozen = true
	}
	p.loading = &q.DType
}

// load moves the weight of a quantized layer to the device, where it is
// quantized (Params4bit._quantize, Int8Params._quantize in
// bitsandbytes/nn/modules.py).
func (p *interp) load(m *module) {
	q := m.class.Quantized
	if q == nil || m.params[0].t != nil {
		return
	}
	outer := p.push()
	p.layer = m.layer
	p.Env().GradMode = false
	source := q.Source
	if q.Bits == 8 {
		source = tensor.Float16
	}
	w := p.Leaf(trace.Temporaries, source, false, q.Out, q.In)
	if p.executes() {
		decl := &program.Param{Name: "weight", Size: []int64{q.Out, q.In}, DType: source}
		p.must(p.backend.Initialize(w, Initial{Class: m.class, Param: decl, Name: program.Join(m.path, decl.Name)}))
	}
	var parts []*op.Tensor
	if q.Bits == 8 {
		parts = p.Do(op.Int8Quantize, nil, w)
	} else {
		parts = p.Do(op.Quantize4bit, &op.Quantize4bitArgs{Type: q.Type, Double: q.Double, First: !p.maxTable}, w)
		p.maxTable = p.maxTable || q.Double
	}
	p.Drop(w)
	p.pop(outer)
	for _, t := range parts {
		p.mark(t, trace.Parameters)
	}
	m.params[0].t, m.params[0].valued = parts[0], true
	for i, c := range m.buffers {
		c.t, c.valued = parts[i+1], true
	}
}

// convert gives the parameters that a model of quantized layers has beside them
// their own type, if they were loaded in another
// (peft.prepare_model_for_kbit_training).
func (p *interp) convert(root *module, q *program.Quantization) {
	if q == nil {
		return
	}
	outer := p.push()
	for _, c := range parameters([]*module{root}) {
		if d := c.decl.DType; d.IsFloating() && c.t.DType != d {
			p.layer = c.layer
			t := p.Leaf(trace.Parameters, d, obj(c.t).requires, c.decl.Size...)
			obj(t).param = true
			p.Drop(c.t)
			c.t = t
		}
	}
	p.pop(outer)
}
