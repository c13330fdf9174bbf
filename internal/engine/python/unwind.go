package python

import "github.com/memplan/memplan/internal/engine/autograd"

// The recomputation of a checkpoint ends by an exception as soon as the last
// saved tensor is there (_StopRecomputationError). What the interrupted code
// holds is freed in Python's and C++'s order: first what operators under way own,
// then the values on the evaluation stacks, from the top; the locals of Python's
// frames live in the traceback until the exception itself goes, the innermost
// frame first (CPython: exception_unwind, tb_dealloc, frame_dealloc). The trail
// remembers all of that while a checkpoint is recomputed.

// stopRecomputation is the exception.
type stopRecomputation struct{}

// trail holds what code under way owns, the innermost last.
type trail struct {
	player  *autograd.Player
	temps   []Value // on the evaluation stacks
	running int     // from here on temps are the arguments of the operator at work
	frames  []Frame // of Python functions
}

// mark is a place on the trail.
type mark struct{ guards, temps, frames, running int }

func (t *trail) mark() mark { return mark{t.player.Working(), len(t.temps), len(t.frames), t.running} }

// push notes a value on the evaluation stack.
func (t *trail) push(v Value) {
	if t.player.Recomputing > 0 {
		t.temps = append(t.temps, v)
	}
}

// pop takes the values from n on off the stack: something else owns them now,
// or they were dropped.
func (t *trail) pop(n int) { t.temps = t.temps[:n] }

// enter notes the frame of a call, leave its end.
func (t *trail) enter(fr Frame) {
	if t.player.Recomputing > 0 {
		t.frames = append(t.frames, fr)
	}
}

func (t *trail) leave() {
	if t.player.Recomputing > 0 {
		t.frames = t.frames[:len(t.frames)-1]
	}
}

// untilStop runs the recomputation of a checkpoint, which a pack hook may stop.
func (p *Interp) untilStop(body func()) {
	t := &p.trail
	outer, from := p.Push(), t.mark()
	p.Recomputing++
	t.running = -1
	stopped := func() (stopped bool) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case stopRecomputation:
				stopped = true
			default:
				panic(r)
			}
		}()
		body()
		return false
	}()
	p.Recomputing--
	onGPU := p.onGPU
	p.Pop(outer)
	if stopped {
		if onGPU != p.onGPU {
			p.Fail("a checkpoint's recomputation ends inside of a module whose parameters are on the CPU (offload.parameters); PyTorch then skips the hook that takes them back")
		}
		p.unwindStacks(from)
	}
	t.running = from.running
	p.ClearCasts()
	if stopped {
		p.unwindFrames(from)
	}
}

// unwindStacks drops what operators own and what lies on evaluation stacks. What
// an operator was to return is freed from the first on, as the elements of a
// std::tuple do; an operator that fails gives up its arguments from the first
// on, too.
func (p *Interp) unwindStacks(from mark) {
	t := &p.trail
	p.Unwind(from.guards)
	if t.running >= from.temps {
		for _, v := range t.temps[t.running:] {
			p.LetGo(v)
		}
		t.temps = t.temps[:t.running]
	}
	for i := len(t.temps) - 1; i >= from.temps; i-- {
		p.LetGo(t.temps[i])
	}
	t.temps = t.temps[:from.temps]
}

// unwindFrames clears the frames that a traceback kept.
func (p *Interp) unwindFrames(from mark) {
	t := &p.trail
	for i := len(t.frames) - 1; i >= from.frames; i-- {
		fr := &t.frames[i]
		for _, v := range fr.Slots {
			p.LetGo(v)
		}
		for k := len(fr.held) - 1; k >= 0; k-- { // a tuple
			p.LetGo(fr.held[k])
		}
		if fr.checkpoint != nil {
			p.dropCheckpoint(fr.checkpoint)
		}
		p.Abandon(fr.node)
	}
	t.frames = t.frames[:from.frames]
}
