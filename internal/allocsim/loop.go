package allocsim

import (
	"fmt"

	"github.com/memplan/memplan/internal/trace"
)

// run is a replay under way.
type run struct {
	*Replayer
	events []trace.Event
	opts   *ReplayOptions
	result *Result
	step   *Step // at work
	left   int64 // events of loops that may still be replayed
}

// inner lists the loops that are part of the events from begin to end, of those
// before the given one, in the order in which they end.
func (r *run) inner(begin, end, before int) []int {
	var out []int
	for k, l := range r.opts.Loops[:before] {
		if l.Begin >= begin && l.End > begin && l.End <= end {
			out = append(out, k)
		}
	}
	return out
}

// The work in replaying an event, and in looking at a block of the state.
const (
	eventWork = 2
	blockWork = 5
)

// quietTurns is after how many turns of a loop without an end, in which nothing was
// asked of the device and which leave no more than they find, no more is expected:
// where blocks go round among each other, as in LBFGS' history, the allocator may
// not be in the same state again for very long. In 44 example jobs of Axolotl and
// LLaMA-Factory, at most one such turn came before another in which the device was asked;
// in 87, a state came again after 42 turns at the latest.
const quietTurns = 64

// began is the state in which the events of a loop were replayed for the first time, if
// it is looked at: that takes as long as replaying so many events.
func (r *run) began(l *trace.Loop) *state {
	if l.Begin == l.End || l.End-l.Begin < len(r.allocator.blocks) {
		return nil
	}
	s := r.takeState()
	r.observeState(l, s, func(n trace.Rename) int32 { return n.To })
	return s
}

// repeat replays the turns of a loop. Once the allocator is in a state in which it
// was before, what is left of them changes nothing: saved, unless nil, is the one in
// which its events were replayed for the first time.
func (r *run) repeat(k int, saved *state, ahead int64) (stop bool, err error) {
	l := &r.opts.Loops[k]
	if l.Begin == l.End {
		return false, nil
	}
	inner := r.inner(l.Begin, l.End, k)
	h := r.history(l, saved)
	defer h.close()
	var apart *parts // nil: turns are replayed in all pools
	quiet, asked, least := int64(0), r.driver.counters, r.allocator.stats.AllocatedBytes.All.Current
	for turn, done := int64(0), false; ; {
		s := &r.allocator.stats
		if !done {
			from, fixed := h.look(turn)
			switch {
			case from != nil && l.Turns == 0:
				return false, nil
			case from != nil:
				period := turn - from.turn
				more := (l.Turns - turn) / period
				s.NumAllocRetries += more * (s.NumAllocRetries - from.retries)
				turn += more * period
				done = true
			case fixed && apart == nil && len(inner) == 0:
				apart = r.apart(l)
			}
		}
		if turn++; l.Turns > 0 && turn > l.Turns {
			return false, nil
		}
		if r.left < int64(l.End-l.Begin) || r.opts.Meter.Left() < r.opts.KeepWork {
			r.result.CutShort = true
			return false, nil
		}
		before, next := r.left, l.Begin
		if apart != nil {
			if next = r.turnOfSmall(l, apart); next < l.End {
				apart = nil
			}
		} else {
			r.rename(l.Names)
		}
		if stop, err := r.turn(l, next, inner, ahead+turn*l.Steps); stop || err != nil {
			return stop, err
		}
		h.since += before - r.left
		if l.Turns == 0 {
			r.result.Turns = turn
		}
		quiet++
		if now := s.AllocatedBytes.All.Current; r.driver.counters != asked || now > least {
			quiet, asked, least = 0, r.driver.counters, now
		}
		if l.Turns == 0 && quiet >= quietTurns {
			return false, nil
		}
	}
}

// turn replays a loop from an event on, and those inside, once.
func (r *run) turn(l *trace.Loop, from int, inner []int, ahead int64) (stop bool, err error) {
	for i := from; i < l.End; i++ {
		if e := &r.events[i]; e.Kind == trace.Alloc {
			r.known[e.ID], r.live[e.ID] = unborn, Block{}
		}
		if stop, err := r.event(i, ahead); stop || err != nil {
			return stop, err
		}
		r.left--
		for ; len(inner) > 0 && r.opts.Loops[inner[0]].End == i+1; inner = inner[1:] {
			if stop, err := r.repeat(inner[0], nil, ahead); stop || err != nil {
				return stop, err
			}
		}
	}
	return false, nil
}

// rename gives blocks the names by which a turn knows them.
func (r *run) rename(names []trace.Rename) {
	type held struct {
		block Block
		state lifeState
	}
	moved := make([]held, len(names))
	for i, n := range names {
		moved[i] = held{r.live[n.From], r.known[n.From]}
	}
	for _, n := range names {
		r.known[n.From] = dead
	}
	for i, n := range names {
		r.live[n.To], r.known[n.To] = moved[i].block, moved[i].state
	}
}

// event replays one event, whose step is so many ahead of its own. It reports
// whether the replay stops.
func (r *run) event(i int, ahead int64) (stop bool, err error) {
	e := &r.events[i]
	r.opts.Meter.Work(eventWork + r.allocator.looked)
	r.allocator.looked = 0
	oom, err := r.play(i, e, len(r.events)+r.held, r.opts)
	if err != nil {
		return false, fmt.Errorf("event %d: %w", i, err)
	}
	s := &r.allocator.stats
	r.result.note(i, ahead, r.step, s)
	if ph := &r.result.Phases[e.Phase]; e.Kind == trace.Alloc {
		ph.Allocated = max(ph.Allocated, s.AllocatedBytes.All.Current)
		ph.Reserved = max(ph.Reserved, s.ReservedBytes.All.Current)
	}
	if oom != nil && (r.opts.MayFail == nil || !r.opts.MayFail(i)) {
		r.result.OOMs = append(r.result.OOMs, OOM{Event: i, Ahead: ahead, Err: oom})
		return r.opts.StopAtOOM, nil
	}
	return false, nil
}
