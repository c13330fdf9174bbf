package python

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// FromPretrained reads a model from a checkpoint to the device
// (transformers/core_model_loading.py and caching_allocator_warmup in
// modeling_utils.py): a block of the size of all weights comes and goes, then come the
// tensors in the natural order of their names in the checkpoint, then the buffers that are in no
// checkpoint, and then the biases of tied layers again. What the checkpoint has in parts is joined: when
// these are read, if weights are quantized, else when all is, as four threads read ahead, so that near
// tensors may come in another order.
func (p *Interp) FromPretrained(root *Module, l *program.Loading) {
	tensors, buffers := storedTensors(root, l.Without)
	if l.Auto { // get_max_memory of accelerate
		p.Drop(p.Leaf(trace.Temporaries, tensor.Int64, false, 1))
	}
	p.warmUp(tensors, l)
	read, order := inCheckpoint(tensors, l)
	if !l.Quantize {
		for _, r := range read {
			p.readNow(r, l)
		}
	}
	for _, j := range order {
		for _, r := range j.parts {
			p.readNow(r, l)
		}
		p.join(j, l)
	}
	for _, t := range buffers {
		p.read(t, l)
	}
	p.adjustBiases(root)
}

// adjustBiases makes the bias of a layer whose weight is another's again, as tie_weights pads
// it to the rows of that weight (_adjust_bias in transformers/modeling_utils.py).
func (p *Interp) adjustBiases(m *Module) {
	for i, ch := range m.Class.Children {
		for _, t := range ch.Ties {
			of, weight := strings.CutSuffix(t.Param, "weight")
			if !weight || ch.Class.FindParam(of+"bias") == nil {
				continue
			}
			c := *m.Children[i].param(of + "bias")
			p.Layer = c.Layer
			old := c.T
			c.T = p.Leaf(trace.Parameters, old.DType, autograd.Of(old).Requires, c.Decl.Size...)
			autograd.Of(c.T).Param = true
			p.Drop(old)
		}
		p.adjustBiases(m.Children[i])
	}
}

// stored is a tensor of a model under its first name.
type stored struct {
	name  string
	m     *Module
	cell  *Cell
	param bool
}

// storedTensors lists the tensors of a model that a checkpoint has, without a module, and its buffers that are
// in none, in the order of Module.buffers.
func storedTensors(root *Module, without string) (tensors, buffers []stored) {
	seen := map[*Cell]bool{}
	var walk func(m *Module)
	walk = func(m *Module) {
		for i, c := range m.Params {
			if !seen[c] {
				seen[c] = true
				tensors = append(tensors, stored{m.ParameterPath(root, i), m, c, true})
			}
		}
		for _, c := range m.Buffers {
			switch {
			case seen[c] || m.Class.Quantized != nil: // that of a quantized weight comes with it
			case c.Decl.NonPersistent:
				buffers = append(buffers, stored{m: m, cell: c})
			default:
				tensors = append(tensors, stored{program.Join(m.path, c.Decl.Name), m, c, false})
			}
			seen[c] = true
		}
		for _, ch := range m.Registered {
			if without != "" && m == root && ch == root.child(without) {
				continue
			}
			walk(ch)
		}
	}
	walk(root)
	return tensors, buffers
}

// worthy is by how many bytes weights must exceed what is reserved and unused, so that
// caching_allocator_warmup asks for a block.
const worthy = 3 << 29 // 1.5 GiB

// warmUp allocates and frees a block of the bytes of all weights: half a byte for each
// element that is stored in 4 bits. A block that memory which is reserved and unused would
// hold is made smaller by so much, or so large that this memory does not hold it.
func (p *Interp) warmUp(tensors []stored, l *program.Loading) {
	var halves int64
	for _, t := range tensors {
		n := tensor.D(t.cell.Decl.Size...).Numel()
		switch q := t.m.Class.Quantized; {
		case q != nil && t.cell == t.m.Params[0]:
			halves += q.In * q.Out * int64(q.Bits) / 4
		default:
			halves += 2 * n * loadedType(t.cell, t.param, l).Size()
		}
	}
	bytes := halves / 2
	switch unused := p.unused(); {
	case bytes > 2*unused:
		bytes -= unused
	case bytes-unused > worthy:
		bytes = unused + 1
	default:
		bytes = 0
	}
	if n := bytes / 2; n > 0 {
		p.Drop(p.Leaf(trace.Temporaries, tensor.Float16, false, n))
	}
}

// unused is what the allocator has reserved and not allocated, as it does without
// PYTORCH_CUDA_ALLOC_CONF on a device that has enough.
func (p *Interp) unused() int64 {
	events := p.Trace().Events
	if len(events) == 0 {
		return 0
	}
	r, err := allocsim.Replay(events, allocsim.ReplayOptions{})
	if err != nil {
		p.Fail("%v", err)
	}
	return int64(r.Stats.ReservedBytes.All.Current - r.Stats.AllocatedBytes.All.Current)
}

// loadedType is the type that a tensor has before it is read.
func loadedType(c *Cell, param bool, l *program.Loading) tensor.DType {
	if param && c.Decl.DType.IsFloating() {
		return l.DType
	}
	return c.Decl.DType
}

// read allocates the tensor of a parameter or buffer, unless it is there.
func (p *Interp) read(t stored, l *program.Loading) {
	c := t.cell
	if c.T != nil {
		return
	}
	p.Layer = c.Layer
	c.T = p.Leaf(trace.Parameters, t.readIn(l), t.param && !c.Frozen, c.Decl.Size...)
	autograd.Of(c.T).Param = t.param
}

// readIn is the type in which a tensor is read.
func (t *stored) readIn(l *program.Loading) tensor.DType {
	if slices.ContainsFunc(l.Float32, func(part string) bool { return strings.Contains(t.name, part) }) {
		return tensor.Float32
	}
	return loadedType(t.cell, t.param, l)
}

// loadQuantized reads the weight of a linear layer to the device and quantizes it there:
// one of 8 bits by way of host memory, one of a Conv1D after it was transposed
// (Bnb4bitQuantize and Bnb8bitQuantize in transformers/integrations/bitsandbytes.py). One
// that the checkpoint has quantized is read as it is.
func (p *Interp) loadQuantized(m *Module, l *program.Loading) {
	q := m.Class.Quantized
	outer := p.Push()
	p.Layer = m.Layer
	p.Env().GradMode = false
	defer p.Pop(outer)
	if l.Stored {
		if p.Executes() {
			p.Fail("weights that the checkpoint has quantized cannot be computed with: their values are not known")
		}
		parts := []*op.Tensor{p.Leaf(trace.Parameters, m.Params[0].Decl.DType, false, m.Params[0].Decl.Size...)}
		for _, c := range m.Buffers {
			parts = append(parts, p.Leaf(trace.Parameters, c.Decl.DType, false, c.Decl.Size...))
		}
		m.hold(p, parts)
		return
	}
	value := p.Leaf(trace.Temporaries, l.DType, false, q.Out, q.In)
	w := value
	switch {
	case q.Bits == 8:
		w = p.Leaf(trace.Temporaries, tensor.Float16, false, q.Out, q.In)
	case q.Transposed:
		w = p.Leaf(trace.Temporaries, l.DType, false, q.Out, q.In)
	}
	parts := p.quantized(m, w)
	if w != value {
		p.Drop(w)
	}
	p.Drop(value)
	m.hold(p, parts)
}
