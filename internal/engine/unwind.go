package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// The recomputation of a checkpoint ends by an exception as soon as the last
// saved tensor is there (_StopRecomputationError). What the interrupted code
// holds dies in Python's and C++'s order: first what operators under way own,
// then the values on the evaluation stacks, from the top; the locals of Python's
// frames live in the traceback until the exception itself goes, the innermost
// frame first (CPython: exception_unwind, tb_dealloc, frame_dealloc). The trail
// remembers all of that while a checkpoint is recomputed.

// stopRecomputation is the exception.
type stopRecomputation struct{}

// trail holds what code under way owns, the innermost last.
type trail struct {
	active  int // recomputations under way
	guards  []*guard
	temps   []value // on the evaluation stacks
	running int     // from here on temps are the arguments of the operator at work
	frames  []frame // of Python functions
}

// mark is a place on the trail.
type mark struct{ guards, temps, frames, running int }

func (t *trail) mark() mark { return mark{len(t.guards), len(t.temps), len(t.frames), t.running} }

// push notes a value on the evaluation stack.
func (t *trail) push(v value) {
	if t.active > 0 {
		t.temps = append(t.temps, v)
	}
}

// pop takes the values from n on off the stack: something else owns them now,
// or they were dropped.
func (t *trail) pop(n int) { t.temps = t.temps[:n] }

// enter notes the frame of a call, leave its end.
func (t *trail) enter(fr frame) {
	if t.active > 0 {
		t.frames = append(t.frames, fr)
	}
}

func (t *trail) leave() {
	if t.active > 0 {
		t.frames = t.frames[:len(t.frames)-1]
	}
}

// made notes the node of the operator at work until something refers to it.
func (t *trail) made(n *node) {
	if t.active > 0 {
		t.guards[len(t.guards)-1].node = n
	}
}

// guard is the player as operators see it while a checkpoint is recomputed. It
// remembers what an operator owns.
type guard struct {
	*Player
	call  *op.Call
	owned []*op.Tensor
	node  *node // that nothing refers to yet
}

// guard makes the guard of an operator; call is nil for the conversions of
// autocast.
func (p *Player) guard(call *op.Call) *guard {
	g := &guard{Player: p, call: call}
	p.trail.guards = append(p.trail.guards, g)
	return g
}

// unguard ends the innermost operator.
func (p *Player) unguard() {
	t := &p.trail
	last := len(t.guards) - 1
	t.guards[last] = nil
	t.guards = t.guards[:last]
}

func (g *guard) own(t *op.Tensor) *op.Tensor {
	g.owned = append(g.owned, t)
	return t
}

// New implements op.Exec.
func (g *guard) New(l tensor.Layout, d tensor.DType) *op.Tensor { return g.own(g.Player.New(l, d)) }

// NewIn implements op.Exec.
func (g *guard) NewIn(n tensor.Bytes, l tensor.Layout, d tensor.DType) *op.Tensor {
	return g.own(g.Player.NewIn(n, l, d))
}

// Alias implements op.Exec.
func (g *guard) Alias(t *op.Tensor, l tensor.Layout, d tensor.DType) *op.Tensor {
	return g.own(g.Player.Alias(t, l, d))
}

// ViewOf implements op.Exec.
func (g *guard) ViewOf(t *op.Tensor, l tensor.Layout) *op.Tensor { return g.own(g.Player.ViewOf(t, l)) }

// Keep implements op.Exec.
func (g *guard) Keep(t *op.Tensor) *op.Tensor { return g.own(g.Player.Keep(t)) }

// SumTo implements op.Exec.
func (g *guard) SumTo(t *op.Tensor, shape tensor.Dims) *op.Tensor {
	return g.own(g.Player.SumTo(t, shape))
}

// Youngest is what op.Call.Youngest asks for.
func (g *guard) Youngest(t *op.Tensor) {
	if i := slices.Index(g.owned, t); i >= 0 {
		g.owned = append(slices.Delete(g.owned, i, i+1), t)
	}
}

// Do implements op.Exec.
func (g *guard) Do(r *op.Op, args any, in ...*op.Tensor) []*op.Tensor {
	outs := g.Player.Do(r, args, in...)
	g.owned = append(g.owned, outs...)
	return outs
}

// Drop implements op.Exec.
func (g *guard) Drop(ts ...*op.Tensor) {
	for _, t := range ts {
		for i := len(g.owned) - 1; i >= 0 && t != nil; i-- {
			if g.owned[i] == t {
				g.owned = slices.Delete(g.owned, i, i+1)
				break
			}
		}
	}
	g.Player.Drop(ts...)
}

// untilStop runs the recomputation of a checkpoint, which a pack hook may stop.
func (p *Player) untilStop(body func()) {
	t := &p.trail
	outer, from := p.push(), t.mark()
	t.active++
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
	t.active--
	onloaded := p.onloaded
	p.pop(outer)
	if stopped {
		if onloaded != p.onloaded {
			p.Fail("a checkpoint's recomputation ends inside of a module whose parameters are on the CPU (offload.parameters); PyTorch then skips the hook that takes them back")
		}
		p.unwindStacks(from)
	}
	t.running = from.running
	p.clearCasts()
	if stopped {
		p.unwindFrames(from)
	}
}

// unwindStacks drops what operators own and what lies on evaluation stacks. What
// an operator was to return dies from the first on, as the elements of a
// std::tuple do; an operator that fails gives up its arguments from the first
// on, too.
func (p *Player) unwindStacks(from mark) {
	t := &p.trail
	for i := len(t.guards) - 1; i >= from.guards; i-- {
		g := t.guards[i]
		var outs []*op.Tensor
		if g.call != nil {
			outs = g.call.Out
		}
		for k := len(g.owned) - 1; k >= 0; k-- {
			if !slices.Contains(outs, g.owned[k]) {
				p.Drop(g.owned[k])
			}
		}
		p.Drop(outs...)
		if n := g.node; n != nil {
			n.refs++
			p.dropNode(n)
		}
	}
	t.guards = t.guards[:from.guards]
	if t.running >= from.temps {
		for _, v := range t.temps[t.running:] {
			p.drop(v)
		}
		t.temps = t.temps[:t.running]
	}
	for i := len(t.temps) - 1; i >= from.temps; i-- {
		p.drop(t.temps[i])
	}
	t.temps = t.temps[:from.temps]
}

// unwindFrames clears the frames that a traceback kept.
func (p *Player) unwindFrames(from mark) {
	t := &p.trail
	for i := len(t.frames) - 1; i >= from.frames; i-- {
		fr := &t.frames[i]
		for _, v := range fr.slots {
			p.drop(v)
		}
		for k := len(fr.held) - 1; k >= 0; k-- { // a tuple
			p.drop(fr.held[k])
		}
		if fr.checkpoint != nil {
			p.dropCheckpoint(fr.checkpoint)
		}
		if n := fr.node; n != nil {
			n.refs++
			p.dropNode(n)
		}
	}
	t.frames = t.frames[:from.frames]
}
