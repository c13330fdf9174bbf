package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// torch.utils.checkpoint with use_reentrant=False, as torch/utils/checkpoint.py
// has it: while the function runs, a pack hook puts a holder in the place of
// each tensor that autograd saves. The first holder that is unpacked in a
// backward pass makes the function run again, under a hook that hands each
// holder its tensor; the run is stopped when the last one has it.

// callee is what a checkpoint calls: a module, a function of the module at work,
// or some modules one after the other.
type callee struct {
	self  *Module
	fn    *program.Func // nil: self is called
	chain []*Module

	forward *program.Func // of self; nil: the class's

	// keywords are arguments that functools.partial holds, in the order in which
	// its dict lets go of them.
	keywords []Value
}

// invoke calls c. It keeps no hold of args, which stay the caller's.
func (p *Interp) invoke(c callee, args []Value) Value {
	if c.chain != nil {
		return p.invokeChain(c.chain, args[0])
	}
	own := append(p.HoldAll(args), p.HoldAll(c.keywords)...)
	if c.fn != nil {
		return p.CallFunction(c.self, c.fn, own)
	}
	return p.CallModule(c.self, c.forward, own)
}

// invokeChain is run_function of checkpoint_sequential: for each module,
// input = module(input).
func (p *Interp) invokeChain(chain []*Module, arg Value) Value {
	fr := &Frame{Slots: []Value{p.Hold(arg)}}
	p.trail.enter(*fr)
	for _, m := range chain {
		var room [1]Value
		p.Store(fr, 0, p.CallModule(m, nil, append(room[:0], p.Hold(fr.Slots[0]))))
	}
	p.trail.leave()
	return fr.Slots[0]
}

// checkpointFrame is _CheckpointFrame: what one call keeps until the tensors
// that it would have saved are released.
type checkpointFrame struct {
	p      *Interp
	callee callee
	args   []Value        // None in the place of tensors, which inputs saves
	inputs *autograd.Node // _NoopSaveInputs
	places []int          // of its tensors among args
	refs   int            // hooks of saved tensors, and the call while it runs

	autocast bool // as it was
	lower    tensor.DType
	random   uint64 // the state of random numbers, as it was
	eval     *bool  // of the model at work
	modes    *autograd.Selective

	holders []*holder // in the order of packing; these references are weak
	task    int       // the backward pass for which they have their tensors
	next    int       // the next one to get its own
}

// holder is _Holder: it stands for a saved tensor.
type holder struct {
	frame *checkpointFrame
	t     *op.Tensor   // recomputed and not unpacked yet
	older []*op.Tensor // recomputed for other backward passes and never unpacked
	dead  bool

	size  tensor.Dims // of the tensor in the forward pass
	dtype tensor.DType
}

// noopSaveInputs is the autograd.Function that saves the arguments. It is never
// run.
var noopSaveInputs = &op.Op{Name: "_NoopSaveInputs", Node: "_NoopSaveInputsBackward"}

// callCheckpoint evaluates a call through torch.utils.checkpoint. The caller's
// arguments drop when it has returned.
func (p *Interp) callCheckpoint(fr *Frame, e *program.Expr, args []Value) Value {
	c := e.Checkpoint
	var v Value
	switch {
	case c.Segments > 0:
		v = p.checkpointSequential(fr, e, args[0])
	case e.Kind == program.CallFun:
		v = p.checkpoint(c, callee{self: fr.Self, fn: e.Func}, args)
	default:
		n := len(args)
		for n > 0 && n <= len(e.Names) && e.Names[n-1] != "" {
			n--
		}
		v = p.checkpoint(c, callee{self: fr.Self.Children[e.Child], forward: e.Forward, keywords: p.HoldAll(args[n:])}, args[:n])
	}
	if p.Recomputing > 0 { // they were on the evaluation stack until now
		p.trail.pop(len(p.trail.temps) - len(args))
	}
	for _, a := range args {
		p.LetGo(a)
	}
	return v
}

// checkpointSequential is torch.utils.checkpoint.checkpoint_sequential.
func (p *Interp) checkpointSequential(fr *Frame, e *program.Expr, arg Value) Value {
	c := e.Checkpoint
	var modules []*Module
	if c.Chain == nil {
		modules = fr.Self.Children[e.Child].Children
	}
	for _, i := range c.Chain {
		modules = append(modules, fr.Self.Children[i])
	}
	input := &Frame{Slots: []Value{p.Hold(arg)}}
	p.trail.enter(*input)
	var out Value
	for _, s := range c.Cut(len(modules)) {
		part := callee{chain: modules[s.From:s.To]}
		if s.Checkpoint {
			p.Store(input, 0, p.checkpoint(c, part, input.Slots))
		} else {
			out = p.invoke(part, input.Slots)
		}
	}
	p.trail.leave()
	p.LetGo(input.Slots[0])
	return out
}

// checkpoint is torch.utils.checkpoint.checkpoint; args stay the caller's.
func (p *Interp) checkpoint(c *program.Checkpoint, to callee, args []Value) Value {
	if c.Reentrant {
		return p.checkpointReentrant(to, args)
	}
	if !p.Env().GradMode {
		p.trail.enter(Frame{Slots: to.keywords})
		v := p.invoke(to, args)
		p.trail.leave()
		p.letGoEach(to.keywords)
		return v
	}
	f := &checkpointFrame{p: p, callee: to, refs: 1, autocast: p.Env().Autocast, lower: p.Env().AutocastDType, random: p.Random(), eval: p.eval}
	if len(c.Save) > 0 {
		f.modes = autograd.NewSelective(c.Save, c.Alternate)
	}
	own := &Frame{checkpoint: f, held: p.HoldAll(args)}
	p.trail.enter(*own)
	f.saveInputs(args)
	outer := p.Push()
	if f.modes != nil {
		p.EnterMode(f.modes)
	}
	p.EnterHooks(f)
	v := p.invoke(to, args)
	p.Pop(outer)
	p.trail.leave()
	p.LetGoAll(own.held)
	p.dropCheckpoint(f)
	return v
}

// saveInputs is _NoopSaveInputs.apply.
func (f *checkpointFrame) saveInputs(args []Value) {
	p := f.p
	var tensors []*op.Tensor
	for i, a := range args {
		if a.T == nil {
			f.args = append(f.args, p.Hold(a))
			continue
		}
		f.args, f.places, tensors = append(f.args, Value{}), append(f.places, i), append(tensors, a.T)
	}
	f.inputs = p.NewFunction(noopSaveInputs, tensors)
	p.CountNumbers(1) // its first argument, an empty tensor on the CPU
	p.SaveFor(f.inputs, tensors)
}

// dropCheckpoint gives up one reference to f.
func (p *Interp) dropCheckpoint(f *checkpointFrame) {
	if f.refs--; f.refs > 0 {
		return
	}
	if f.modes != nil {
		f.modes.Clear(p.Player)
	}
	p.letGoEach(f.callee.keywords)
	p.LetGoAll(f.args)
	n := f.inputs
	f.inputs = nil
	p.Abandon(n)
}

// checkpointed reports whether what is saved now belongs to a checkpoint that is not
// reentrant, or to its recomputation.
func (p *Interp) checkpointed() bool {
	switch p.Hooks().(type) {
	case *checkpointFrame, *recomputation:
		return true
	}
	return false
}

// Pack implements autograd.SavedHooks: _checkpoint_hook.
func (f *checkpointFrame) Pack(t *op.Tensor) autograd.Packed {
	h := &holder{frame: f, size: t.Size, dtype: t.DType}
	f.holders = append(f.holders, h)
	f.refs++
	return h
}

// Unpack implements autograd.Packed. The tensor is the caller's alone from then on.
func (h *holder) Unpack() *op.Tensor {
	p := h.frame.p
	if h.frame.task != p.Pass() {
		h.frame.recompute()
	}
	t := h.t
	if t == nil {
		p.Fail("a tensor of a checkpoint is unpacked a second time in one backward pass")
	}
	h.t = nil
	return t
}

// Drop implements autograd.Packed.
func (h *holder) Drop() {
	p := h.frame.p
	h.dead = true
	p.dropCheckpoint(h.frame)
	p.Drop(h.t)
	p.Drop(h.older...)
	h.t, h.older = nil, nil
}

// recompute runs the function again for the holders.
func (f *checkpointFrame) recompute() {
	p := f.p
	f.task, f.next = p.Pass(), 0
	for _, h := range f.holders {
		if h.t != nil {
			h.older, h.t = append(h.older, h.t), nil
		}
	}
	args := p.HoldAll(f.args)
	for k, i := range f.places {
		args[i] = Value{T: p.UnpackInput(f.inputs, k)}
	}
	random := p.Random()
	p.untilStop(func() {
		p.forkRNG(args, f.random)
		p.Env().GradMode = true
		p.modeNow(f.eval)
		p.enterCheckpoint(f.autocast, f.lower)
		p.LeaveModes()
		if f.modes != nil {
			p.EnterMode(f.modes.Second)
		}
		p.EnterHooks((*recomputation)(f))
		p.LetGo(p.invoke(f.callee, args))
	})
	p.forkRNG(args, random)
	if f.next != len(f.holders) {
		p.Fail("the recomputation of a checkpoint saves %d tensors, the forward pass saved %d", f.next, len(f.holders))
	}
	p.LetGoAll(args)
}

// enterCheckpoint enters torch.autocast as it was in the forward pass. The
// thread of the backward pass is in no region of its own, so that the cache of
// converted parameters is empty at first and cleared at the end.
func (p *Interp) enterCheckpoint(on bool, lower tensor.DType) {
	p.Env().Autocast = false
	if on {
		p.EnterAutocast(lower)
	}
}

// forkRNG sets the state of the device's random numbers to that of the forward
// pass, or back. The states themselves are kept in the memory of the host. Only
// devices of tensors among the arguments count.
func (p *Interp) forkRNG(args []Value, state uint64) {
	if p.Executes() {
		p.backend.SetRandom(state)
	}
	for _, a := range args {
		if a.T != nil {
			p.Reseed()
		} else if a.List != nil {
			p.forkRNG(a.List.Items, state)
		}
	}
}

// recomputation is _recomputation_hook of a frame.
type recomputation checkpointFrame

// Pack implements autograd.SavedHooks: the next holder gets the tensor, and so does the
// graph of the recomputation, which is freed with it.
func (r *recomputation) Pack(t *op.Tensor) autograd.Packed {
	p := r.p
	if r.next == len(r.holders) {
		p.Fail("the recomputation of a checkpoint saves more tensors than the forward pass did")
	}
	x := p.Alias(t, t.Layout, t.DType)
	p.Mark(x, trace.Activations)
	p.CountSaved(x)
	h := r.holders[r.next]
	if !h.dead {
		if t.Size != h.size || t.DType != h.dtype {
			p.Fail("the recomputation of a checkpoint saves %v of shape %v where the forward pass saved %v of shape %v, which PyTorch refuses", t.DType, t.Size, h.dtype, h.size)
		}
		h.t = p.Keep(x)
	}
	if r.next++; r.next == len(r.holders) {
		p.trail.frames = append(p.trail.frames, Frame{Slots: []Value{{T: x}}})
		panic(stopRecomputation{})
	}
	return keptTensor{p, x}
}

// keptTensor is what a pack hook returns that keeps a tensor as it is.
type keptTensor struct {
	p *Interp
	t *op.Tensor
}

// Unpack implements autograd.Packed.
func (k keptTensor) Unpack() *op.Tensor { return k.p.Keep(k.t) }

// Drop implements autograd.Packed.
func (k keptTensor) Drop() { k.p.Drop(k.t) }
