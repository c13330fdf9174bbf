package engine

import (
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
	self  *module
	fn    *program.Func // nil: self is called
	chain []*module

	forward *program.Func // of self; nil: the class's

	// keywords are arguments that functools.partial holds, in the order in which
	// its dict lets go of them.
	keywords []value
}

// invoke calls c. It keeps no hold of args, which stay the caller's.
func (p *interp) invoke(c callee, args []value) value {
	if c.chain != nil {
		return p.invokeChain(c.chain, args[0])
	}
	own := append(p.holdAll(args), p.holdAll(c.keywords)...)
	if c.fn != nil {
		return p.callFunction(c.self, c.fn, own)
	}
	return p.callModule(c.self, c.forward, own)
}

// invokeChain is run_function of checkpoint_sequential: for each module,
// input = module(input).
func (p *interp) invokeChain(chain []*module, arg value) value {
	fr := &frame{slots: []value{p.hold(arg)}}
	p.trail.enter(*fr)
	for _, m := range chain {
		var room [1]value
		p.store(fr, 0, p.callModule(m, nil, append(room[:0], p.hold(fr.slots[0]))))
	}
	p.trail.leave()
	return fr.slots[0]
}

// checkpointFrame is _CheckpointFrame: what one call keeps until the tensors
// that it would have saved are released.
type checkpointFrame struct {
	p      *interp
	callee callee
	args   []value // None in the place of tensors, which inputs saves
	inputs *node   // _NoopSaveInputs
	places []int   // of its tensors among args
	refs   int     // hooks of saved tensors, and the call while it runs

	autocast bool // as it was
	lower    tensor.DType
	random   uint64 // the state of random numbers, as it was
	modes    *selective

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
func (p *interp) callCheckpoint(fr *frame, e *program.Expr, args []value) value {
	c := e.Checkpoint
	var v value
	switch {
	case c.Segments > 0:
		v = p.checkpointSequential(fr, e, args[0])
	case e.Kind == program.CallFun:
		v = p.checkpoint(c, callee{self: fr.self, fn: e.Func}, args)
	default:
		n := len(args)
		for n > 0 && n <= len(e.Names) && e.Names[n-1] != "" {
			n--
		}
		v = p.checkpoint(c, callee{self: fr.self.children[e.Child], forward: e.Forward, keywords: p.holdAll(args[n:])}, args[:n])
	}
	if p.recomputing > 0 { // they were on the evaluation stack until now
		p.trail.pop(len(p.trail.temps) - len(args))
	}
	for _, a := range args {
		p.letGo(a)
	}
	return v
}

// checkpointSequential is torch.utils.checkpoint.checkpoint_sequential.
func (p *interp) checkpointSequential(fr *frame, e *program.Expr, arg value) value {
	c := e.Checkpoint
	var modules []*module
	if c.Chain == nil {
		modules = fr.self.children[e.Child].children
	}
	for _, i := range c.Chain {
		modules = append(modules, fr.self.children[i])
	}
	input := &frame{slots: []value{p.hold(arg)}}
	p.trail.enter(*input)
	var out value
	for _, s := range c.Cut(len(modules)) {
		part := callee{chain: modules[s.From:s.To]}
		if s.Checkpoint {
			p.store(input, 0, p.checkpoint(c, part, input.slots))
		} else {
			out = p.invoke(part, input.slots)
		}
	}
	p.trail.leave()
	p.letGo(input.slots[0])
	return out
}

// checkpoint is torch.utils.checkpoint.checkpoint; args stay the caller's.
func (p *interp) checkpoint(c *program.Checkpoint, to callee, args []value) value {
	if c.Reentrant {
		return p.checkpointReentrant(to, args)
	}
	if !p.Env().GradMode {
		p.trail.enter(frame{slots: to.keywords})
		v := p.invoke(to, args)
		p.trail.leave()
		p.letGoEach(to.keywords)
		return v
	}
	f := &checkpointFrame{p: p, callee: to, refs: 1, autocast: p.Env().Autocast, lower: p.Env().AutocastDType, random: p.random()}
	if len(c.Save) > 0 {
		f.modes = newSelective(c.Save)
	}
	own := &frame{checkpoint: f, held: p.holdAll(args)}
	p.trail.enter(*own)
	f.saveInputs(args)
	outer := p.push()
	if f.modes != nil {
		p.enterMode(f.modes)
	}
	p.enterHooks(f)
	v := p.invoke(to, args)
	p.pop(outer)
	p.trail.leave()
	p.letGoAll(own.held)
	p.dropCheckpoint(f)
	return v
}

// saveInputs is _NoopSaveInputs.apply.
func (f *checkpointFrame) saveInputs(args []value) {
	p := f.p
	var tensors []*op.Tensor
	for i, a := range args {
		if a.t == nil {
			f.args = append(f.args, p.hold(a))
			continue
		}
		f.args, f.places, tensors = append(f.args, value{}), append(f.places, i), append(tensors, a.t)
	}
	f.inputs = p.newFunction(noopSaveInputs, tensors)
	p.saveFor(f.inputs, tensors)
}

// dropCheckpoint gives up one reference to f.
func (p *interp) dropCheckpoint(f *checkpointFrame) {
	if f.refs--; f.refs > 0 {
		return
	}
	if f.modes != nil {
		f.modes.clear(p.Player)
	}
	p.letGoEach(f.callee.keywords)
	p.letGoAll(f.args)
	n := f.inputs
	f.inputs = nil
	p.abandon(n)
}

// Pack implements savedHooks: _checkpoint_hook.
func (f *checkpointFrame) Pack(t *op.Tensor) packed {
	h := &holder{frame: f, size: t.Size, dtype: t.DType}
	f.holders = append(f.holders, h)
	f.refs++
	return h
}

// Unpack implements packed. The tensor is the caller's alone from then on.
func (h *holder) Unpack() *op.Tensor {
	p := h.frame.p
	if h.frame.task != p.pass() {
		h.frame.recompute()
	}
	t := h.t
	if t == nil {
		p.Fail("a tensor of a checkpoint is unpacked a second time in one backward pass")
	}
	h.t = nil
	return t
}

// Drop implements packed.
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
	f.task, f.next = p.pass(), 0
	for _, h := range f.holders {
		if h.t != nil {
			h.older, h.t = append(h.older, h.t), nil
		}
	}
	args := p.holdAll(f.args)
	for k, i := range f.places {
		args[i] = value{t: p.unpackInput(f.inputs, k)}
	}
	random := p.random()
	p.untilStop(func() {
		p.forkRNG(args, f.random)
		p.Env().GradMode = true
		p.enterCheckpoint(f.autocast, f.lower)
		p.leaveModes()
		if f.modes != nil {
			p.enterMode(f.modes.second)
		}
		p.enterHooks((*recomputation)(f))
		p.letGo(p.invoke(f.callee, args))
	})
	p.forkRNG(args, random)
	if f.next != len(f.holders) {
		p.Fail("the recomputation of a checkpoint saves %d tensors, the forward pass saved %d", f.next, len(f.holders))
	}
	p.letGoAll(args)
}

// enterCheckpoint enters torch.autocast as it was in the forward pass. The
// thread of the backward pass is in no region of its own, so that the cache of
// converted parameters is empty at first and cleared at the end.
func (p *interp) enterCheckpoint(on bool, lower tensor.DType) {
	p.Env().Autocast = false
	if on {
		p.enterAutocast(lower)
	}
}

// forkRNG sets the state of the device's random numbers to that of the forward
// pass, or back. The states themselves are kept in the memory of the host. Only
// devices of tensors among the arguments count.
func (p *interp) forkRNG(args []value, state uint64) {
	if p.executes() {
		p.backend.SetRandom(state)
	}
	for _, a := range args {
		if a.t != nil {
			p.reseed()
		} else if a.list != nil {
			p.forkRNG(a.list.items, state)
		}
	}
}

// recomputation is _recomputation_hook of a frame.
type recomputation checkpointFrame

// Pack implements savedHooks: the next holder gets the tensor, and so does the
// graph of the recomputation, which dies with it.
func (r *recomputation) Pack(t *op.Tensor) packed {
	p := r.p
	if r.next == len(r.holders) {
		p.Fail("the recomputation of a checkpoint saves more tensors than the forward pass did")
	}
	x := p.Alias(t, t.Layout, t.DType)
	p.mark(x, trace.Activations)
	p.countSaved(x)
	h := r.holders[r.next]
	if !h.dead {
		if t.Size != h.size || t.DType != h.dtype {
			p.Fail("the recomputation of a checkpoint saves %v of shape %v where the forward pass saved %v of shape %v, which PyTorch refuses", t.DType, t.Size, h.dtype, h.size)
		}
		h.t = p.Keep(x)
	}
	if r.next++; r.next == len(r.holders) {
		p.trail.frames = append(p.trail.frames, frame{slots: []value{{t: x}}})
		panic(stopRecomputation{})
	}
	return keptTensor{p, x}
}

// keptTensor is what a pack hook returns that keeps a tensor as it is.
type keptTensor struct {
	p *interp
	t *op.Tensor
}

func (k keptTensor) Unpack() *op.Tensor { return k.p.Keep(k.t) }

func (k keptTensor) Drop() { k.p.Drop(k.t) }
