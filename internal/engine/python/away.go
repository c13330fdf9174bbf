package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// offloadActivations are the hooks of OffloadActivations
// (trl/models/activation_offloading.py): a saved tensor is copied to the CPU on a
// stream of its own. The one on the GPU is kept until later ones have left, too, and
// comes back when its node runs.
type offloadActivations struct {
	p      *Interp
	o      *program.OffloadActivations
	params map[int32]bool // blocks of parameters
	number int64          // of tensors that were packed
	known  map[memoryKey]*away
	kept   []*away // that nodes gave up without unpacking
	ended  bool    // a backward pass has ended since the last call of a model
	left   []*away // that are still on the GPU, too; in the order of packing
	back   []*away // that were brought back; in the order of unpacking
	begun  bool    // the backward pass under way has unpacked one
	pass   int     // that began
	node   uint64  // that unpacked the last one
}

// memoryKey is by what a tensor that left is known: where it begins, and its type.
type memoryKey struct {
	block  int32
	offset int64
	dtype  tensor.DType
}

// away is what stands for a saved tensor.
type away struct {
	h      *offloadActivations
	number int64
	key    *memoryKey // by which h knows it; nil: it does not
	t      *op.Tensor // that is kept, or the copy on the CPU; nil: it was unpacked
	copied bool
	view   tensor.Layout // of t, when it is back
	gpu    *op.Tensor    // while it is among left or back
}

// OffloadActivations makes the hooks of a job; params are its parameters, roots its models.
func (p *Interp) OffloadActivations(params []*Cell, roots []*Module) {
	o := p.Offload.Away
	h := &offloadActivations{p: p, o: o, params: map[int32]bool{}, known: map[memoryKey]*away{}}
	for _, c := range params {
		h.params[autograd.Block(c.T)] = true
	}
	p.away = h
	for _, m := range roots {
		p.keepSaved(m, o.Except)
	}
}

// keepSaved opts modules out of what is copied.
func (p *Interp) keepSaved(m *Module, except program.Patterns) {
	if m.path != "" && except.Fits(m.path) {
		m.Hooks = stays{p}
	}
	for _, c := range m.Children {
		p.keepSaved(c, except)
	}
}

// Pack implements autograd.SavedHooks.
func (h *offloadActivations) Pack(t *op.Tensor) autograd.Packed {
	p := h.p
	h.number++
	x := &away{h: h, number: h.number}
	key := memoryKey{autograd.Block(t), t.Offset, t.DType}
	_, twice := h.known[key]
	if twice || autograd.OnHost(t) || int64(t.DType.Size())*t.Numel() < h.o.Min || h.params[key.block] {
		p.CountSaved(t)
		x.t = p.Keep(t)
		if twice {
			h.know(x, key)
		}
		return x
	}
	var last *op.Tensor // Python's variable of the loop
	for h.o.Streams && len(h.left) > 0 && h.left[0].number <= x.number-h.o.Stash {
		p.Drop(last)
		last = h.leave()
	}
	t = p.Keep(t)
	h.onStream(func() {
		x.copied = true
		if broadcast(t.Layout) { // the memory itself is copied
			all := p.Alias(t, tensor.Contiguous(tensor.D(int64(autograd.BlockBytes(t))/t.DType.Size())), t.DType)
			x.t, x.view = p.Transfer(all, true, h.o.Pinned, all.Layout), t.Layout
			p.Drop(all)
		} else {
			if !t.IsContiguous() || t.Offset != 0 {
				c := p.New(tensor.Contiguous(t.Size), t.DType)
				p.CopyTo(c, t)
				p.Drop(t)
				t = c
			}
			x.t, x.view = p.Transfer(t, true, h.o.Pinned, t.Layout), t.Layout
		}
		p.Mark(x.t, trace.Activations)
	})
	if h.o.Streams {
		x.gpu = t
		h.left = append(h.left, x)
		h.know(x, key)
	} else {
		p.Drop(t)
	}
	p.Drop(last)
	return x
}

// PackNumbers implements what counts tensors on the CPU, which stay there.
func (h *offloadActivations) PackNumbers(n int) { h.number += int64(n) }

// broadcast reports whether elements share memory by a stride of 0.
func broadcast(l tensor.Layout) bool {
	for i := range l.Rank() {
		if l.Stride.At(i) == 0 {
			return true
		}
	}
	return false
}

func (h *offloadActivations) onStream(f func()) {
	if h.o.Streams {
		h.p.OnStream(autograd.AwayStream, f)
		return
	}
	f()
}

// leave takes the first of those that are still on the GPU, whose tensor is the caller's.
func (h *offloadActivations) leave() *op.Tensor {
	x := h.left[0]
	h.left = h.left[1:]
	h.forget(x)
	t := x.gpu
	x.gpu = nil
	return t
}

func (h *offloadActivations) know(x *away, key memoryKey) { h.known[key], x.key = x, &key }

// forget ends that a tensor is known by its memory, unless another one is by now.
func (h *offloadActivations) forget(x *away) {
	if x.key != nil && h.known[*x.key] == x {
		delete(h.known, *x.key)
	}
	x.key = nil
}

// Unpack implements autograd.Packed.
func (x *away) Unpack() *op.Tensor {
	h, p := x.h, x.h.p
	if x.t == nil {
		p.Fail("a saved tensor is unpacked a second time, which OffloadActivations does not allow (retain_graph)")
	}
	if !h.begun {
		h.begun, h.pass, h.node = true, p.Pass(), 0
		p.AfterPass(h.end)
	}
	t := x.t
	x.t = nil
	if !x.copied {
		h.forget(x)
		return t
	}
	if !h.o.Streams {
		c := p.Transfer(t, false, false, t.LikeDense())
		p.Drop(t)
		return h.viewOf(c, x.view)
	}
	var before []*away // of the node that ran before
	if p.Pass() == h.pass && h.node != p.RunningNode() {
		h.node = p.RunningNode()
		before = append(before, h.back...)
	}
	var sharers int32
	brought := x.gpu == nil
	if brought {
		h.onStream(func() { x.gpu = h.viewOf(p.Transfer(t, false, false, t.LikeDense()), x.view) })
		h.back = append(h.back, x)
		sharers = autograd.Sharers(x.gpu)
	}
	v := p.Keep(x.gpu)
	p.AfterNode(func() { h.nodeRan(x, brought, sharers, before) })
	p.Drop(t)
	h.forget(x)
	return v
}

// viewOf is as_strided of what was copied, which it takes over.
func (h *offloadActivations) viewOf(t *op.Tensor, l tensor.Layout) *op.Tensor {
	v := h.p.ViewOf(t, l)
	h.p.Drop(t)
	return v
}

// nodeRan is the hook of a node that unpacked x. What was brought back for the nodes
// before is freed; x itself too, if something else refers to its memory by now.
func (h *offloadActivations) nodeRan(x *away, brought bool, sharers int32, before []*away) {
	p := h.p
	var locals []*op.Tensor
	if brought && x.gpu != nil {
		locals = append(locals, p.Keep(x.gpu))
		if autograd.Sharers(x.gpu) > sharers {
			h.drop(x)
		}
	}
	var last *op.Tensor
	for len(h.left) > 0 {
		p.Drop(last)
		last = h.leave()
	}
	for _, b := range before {
		h.drop(b)
	}
	p.Drop(locals...)
	p.Drop(last)
}

// drop gives up a tensor that was brought back.
func (h *offloadActivations) drop(x *away) {
	for i, b := range h.back {
		if b == x {
			h.back = append(h.back[:i:i], h.back[i+1:]...)
			h.p.Drop(x.gpu)
			x.gpu = nil
			return
		}
	}
}

// end is what the first unpacking of a backward pass leaves for its end.
func (h *offloadActivations) end() {
	for len(h.back) > 0 {
		h.drop(h.back[0])
	}
	h.begun, h.ended = false, true
}

// OffloadAgain is what a call of a model begins with: what no backward pass has unpacked
// is given up (OffloadActivations.__enter__).
func (p *Interp) OffloadAgain() {
	h := p.away
	if h == nil || !h.ended || !p.Env().GradMode {
		return
	}
	h.ended = false
	for len(h.left) > 0 {
		p.Drop(h.leave())
	}
	for _, x := range h.kept {
		p.Drop(x.t)
		x.t = nil
	}
	h.kept = nil
	clear(h.known)
}

// Drop implements autograd.Packed.
func (x *away) Drop() {
	if x.t != nil {
		x.h.kept = append(x.h.kept, x)
	}
}

// stays are hooks of a module whose saved tensors stay where they are (NoOpManager).
type stays struct{ p *Interp }

// PreForward implements ForwardHooks.
func (s stays) PreForward(args []Value, _ []string) []Value {
	s.p.EnterHooks(s)
	return s.p.HoldAll(args)
}

// PostForward implements ForwardHooks.
func (s stays) PostForward(v Value) Value { return v }

// Pack implements autograd.SavedHooks.
func (s stays) Pack(t *op.Tensor) autograd.Packed {
	s.p.CountSaved(t)
	return keptTensor{s.p, s.p.Keep(t)}
}
