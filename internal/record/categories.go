package record

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// roles says what is seen of a call: which storages are those of parameters, and which
// are results of the forward pass.
func (p *player) roles(c *call, fresh []int) {
	p.own(c)
	for _, v := range c.tensors {
		for _, t := range stored(v) {
			if t.Flags&Parameter == 0 || !p.r.Storages[t.Storage].CUDA || p.params[t.Storage] {
				continue
			}
			p.params[t.Storage] = true
			if len(p.modules) > 0 {
				p.owner[t.Storage] = p.p.Layer
			}
			if h := p.held[t.Storage]; h != nil {
				p.p.Mark(h, trace.Parameters)
			}
			n := p.r.Metas[t.Meta].Layout.Numel()
			p.out.Tensors++
			p.out.Parameters += n
			p.types[p.r.Metas[t.Meta].DType] += n
			if t.Flags&RequiresGrad != 0 {
				p.out.Trainable += n
			}
		}
	}
	role := trace.Temporaries
	switch {
	case c.schema.Name == "_to_copy" && !p.onDevice(c):
		role = trace.Inputs
	case p.p.Phase == trace.Forward && !c.Back:
		role = trace.Activations
	}
	for _, n := range fresh {
		if h := p.held[n]; h != nil {
			p.p.Mark(h, role)
			p.blocks[n] = autograd.Block(h)
		}
	}
}

// own notes for which layers optimizers work: what stands beside a parameter in a call, or at
// its place in lists, belongs to the same layer.
func (p *player) own(c *call) {
	if p.p.Phase != trace.Optimizer {
		return
	}
	var lists [][]*Ref
	for _, n := range c.order {
		lists = append(lists, refs(c.tensors[n]))
	}
	lists = append(lists, refs(c.Outs))
	for i := range lists[0] {
		layer, known := int32(0), false
		for _, l := range lists {
			if len(l) == len(lists[0]) && l[i] != nil {
				if at, ok := p.owner[l[i].Storage]; ok {
					layer, known = at, true
					break
				}
			}
		}
		for _, l := range lists {
			if known && len(l) == len(lists[0]) && l[i] != nil && p.r.Metas[l[i].Meta].Layout.Size == p.r.Metas[lists[0][i].Meta].Layout.Size {
				p.owner[l[i].Storage] = layer
			}
		}
	}
}

// near is the layer of what an operator outside of modules works on: its parameter's, or that
// of its first tensor.
func (p *player) near(c *call) int32 {
	for _, n := range c.order {
		list := stored(c.tensors[n])
		if _, many := c.tensors[n].([]any); many && len(list) > 1 {
			return 0
		}
		for _, t := range list {
			if at, ok := p.owner[t.Storage]; ok {
				return at
			}
		}
	}
	return 0
}

// precisions are the types of parameters as train.precision has them.
var precisions = map[tensor.DType]string{tensor.Float32: "fp32", tensor.Float16: "fp16", tensor.BFloat16: "bf16"}

// precision is that of most parameters, and what autocast computes in.
func (p *player) precision() string {
	if len(p.types) == 0 {
		return "no parameters seen"
	}
	var most tensor.DType
	for d, n := range p.types {
		if n > p.types[most] || n == p.types[most] && d < most {
			most = d
		}
	}
	name := precisions[most]
	if d, err := tensor.ParseDType(p.cast); err == nil && p.cast != "" {
		amp := "amp-" + precisions[d]
		if name == "fp32" || name == "" {
			return amp
		}
		return name + " weights, " + amp
	}
	if name == "" {
		return most.String()
	}
	return name
}

// categorize says of the other blocks what they are for, by when they live: what backward
// passes make and optimizers find are gradients, what optimizers make and keep is their
// state, and what was made among the parameters and never goes are buffers.
func (o *Played) categorize() {
	tr := o.Trace
	born := make([]int32, len(tr.Categories)) // the event
	died := make([]int32, len(tr.Categories))
	for i := range tr.Events {
		switch e := &tr.Events[i]; e.Kind {
		case trace.Alloc:
			born[e.ID], died[e.ID] = int32(i), -1
		case trace.Free:
			died[e.ID] = int32(i)
		}
	}
	model := int32(-1) // where the last parameter is made before the first step
	for id, c := range tr.Categories {
		if c == trace.Parameters && id > 0 && tr.Events[born[id]].Step == 0 {
			model = max(model, born[id])
		}
	}
	for id := 1; id < len(tr.Categories); id++ {
		b := &tr.Events[born[id]]
		end := len(tr.Events)
		if died[id] >= 0 {
			end = int(died[id])
		}
		if at, ok := o.owners[int32(id)]; ok {
			b.Layer = at
		}
		c := &tr.Categories[id]
		switch {
		case *c == trace.Parameters || *c == trace.Workspace:
		case b.Step == 0 && died[id] < 0 && born[id] < model: // buffers
			*c = trace.Parameters
		case *c == trace.Inputs || *c == trace.Activations:
		case b.Phase == trace.Backward && o.updates.within(int(born[id]), end):
			*c = trace.Gradients
		case b.Phase == trace.Optimizer && (died[id] < 0 || tr.Events[end].Phase != trace.Optimizer || tr.Events[end].Step != b.Step):
			*c = trace.OptimizerState
		}
	}
	o.Totals = Totals(tr)
}

// Totals are the most that lived at one time of each category.
func Totals(tr *trace.Trace) (out [trace.NumCategories]tensor.Bytes) {
	var live [trace.NumCategories]tensor.Bytes
	sizes := make([]tensor.Bytes, len(tr.Categories))
	for i := range tr.Events {
		switch e := &tr.Events[i]; e.Kind {
		case trace.Alloc:
			c := tr.Categories[e.ID]
			sizes[e.ID] = e.Bytes
			live[c] += e.Bytes
			out[c] = max(out[c], live[c])
		case trace.Free:
			live[tr.Categories[e.ID]] -= sizes[e.ID]
		}
	}
	return out
}

// marks are the numbers of events before which something begins, in order.
type marks []int

// within reports whether one lies between two events.
func (m marks) within(from, to int) bool {
	for _, at := range m {
		if at > from && at <= to {
			return true
		}
	}
	return false
}
