package allocsim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
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
// not be in the same state again for very long.
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

// pastBlocks bounds the blocks of the states that are kept of a loop's first turns.
const pastBlocks = 1 << 19

// repeat replays the turns of a loop. Once the allocator is in a state in which it
// was before, what is left of them changes nothing: saved, unless nil, is the one in
// which its events were replayed for the first time.
func (r *run) repeat(k int, saved *state, ahead int64) (stop bool, err error) {
	l := &r.opts.Loops[k]
	if l.Begin == l.End {
		return false, nil
	}
	inner := r.inner(l.Begin, l.End, k)
	var past []*state // of the first turns; then Brent's algorithm finds a period of any length
	if saved != nil {
		saved.turn = -1
		past = append(past, saved)
	}
	var last *state
	now, room, next, done := r.takeState(), pastBlocks, int64(0), false
	defer func() {
		r.states = append(append(r.states, now), past...)
		if last != nil {
			r.states = append(r.states, last)
		}
	}()
	since := 0 // events since a state was looked at, which takes as long as so many blocks
	quiet, asked, left := int64(0), r.driver.counters, r.allocator.stats.AllocatedBytes.All.Current
	for turn := int64(0); ; {
		s := &r.allocator.stats
		if since += l.End - l.Begin; since >= len(r.allocator.blocks) && !done {
			like := func(p *state) bool {
				return p.allocated == s.AllocatedBytes.All.Current && p.reserved == s.ReservedBytes.All.Current
			}
			keeps := turn < quietTurns && room >= len(r.allocator.blocks)
			var from *state
			if keeps || turn >= next || last != nil && like(last) || slices.ContainsFunc(past, like) {
				since = 0
				r.observeState(l, now, func(n trace.Rename) int32 { return n.From })
				now.turn = turn
				if i := slices.IndexFunc(past, now.equals); i >= 0 {
					from = past[i]
				} else if last != nil && last.equals(now) {
					from = last
				}
			}
			switch {
			case from != nil && l.Turns == 0:
				return false, nil
			case from != nil:
				period := turn - from.turn
				whole := (l.Turns - turn) / period
				s.NumAllocRetries += whole * (s.NumAllocRetries - from.retries)
				turn += whole * period
				done = true
			case keeps:
				room -= len(now.blocks)
				past, now = append(past, now), r.takeState()
			case turn >= next:
				if last == nil {
					last = r.takeState()
				}
				last, now, next = now, last, 2*turn
			}
		}
		if turn++; l.Turns > 0 && turn > l.Turns {
			return false, nil
		}
		if r.left < int64(l.End-l.Begin) || r.opts.Meter.Left() < r.opts.KeepWork {
			r.result.CutShort = true
			return false, nil
		}
		r.rename(l.Names)
		if stop, err := r.turn(l, inner, ahead+turn*l.Steps); stop || err != nil {
			return stop, err
		}
		if l.Turns == 0 {
			r.result.Turns = turn
		}
		quiet++
		if now := s.AllocatedBytes.All.Current; r.driver.counters != asked || now > left {
			quiet, asked, left = 0, r.driver.counters, now
		}
		if l.Turns == 0 && quiet >= quietTurns {
			return false, nil
		}
	}
}

// turn replays a loop, and those inside, once.
func (r *run) turn(l *trace.Loop, inner []int, ahead int64) (stop bool, err error) {
	for i := l.Begin; i < l.End; i++ {
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
	oom, err := r.play(i, e, len(r.events), r.opts)
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

// state is what decides what an allocator does next: its blocks, and where those
// lie whose names a loop changes.
type state struct {
	allocated, reserved tensor.Bytes
	retries, turn       int64
	hash                uint64 // of what follows
	blocks              []blockAt
	named               []Address
}

// takeState is room for a state.
func (r *Replayer) takeState() *state {
	n := len(r.states)
	if n == 0 {
		return &state{}
	}
	s := r.states[n-1]
	r.states = r.states[:n-1]
	return s
}

// blockAt is a block as it was.
type blockAt struct {
	addr      Address
	size      tensor.Bytes
	requested tensor.Bytes // of one in use
	age       int64        // of one that is cached, if ages count
	stream    int16
	pool      uint8
	state     blockState
}

func (s *state) equals(o *state) bool {
	return s.hash == o.hash && slices.Equal(s.blocks, o.blocks) && slices.Equal(s.named, o.named)
}

// observeState writes down the present state; name tells which block a loop's name is
// that of.
func (r *run) observeState(l *trace.Loop, s *state, name func(trace.Rename) int32) {
	a := &r.allocator
	s.allocated, s.reserved, s.retries = a.stats.AllocatedBytes.All.Current, a.stats.ReservedBytes.All.Current, a.stats.NumAllocRetries
	s.blocks, s.named = slices.Grow(s.blocks[:0], len(a.blocks)), s.named[:0]
	hash := uint64(14695981039346656037)
	a.scratch = a.scratch[:0] // the lowest block of each segment
	for i := range a.blocks {
		if b := &a.blocks[i]; b.size > 0 && b.prev == none { // no free slot of the arena
			a.scratch = append(a.scratch, int32(i))
		}
	}
	slices.SortFunc(a.scratch, func(i, k int32) int { return cmp.Compare(a.blocks[i].addr, a.blocks[k].addr) })
	for _, i := range a.scratch {
		for ; i != none; i = a.blocks[i].next {
			b := &a.blocks[i]
			at := blockAt{addr: b.addr, size: b.size, stream: b.stream, pool: b.pool, state: b.state}
			switch {
			case b.state >= active:
				at.requested = b.requested
			case b.state == inactive && a.counts:
				at.age = a.age(b)
			}
			s.blocks = append(s.blocks, at)
			hash = (hash ^ uint64(at.addr) ^ uint64(at.requested)<<1 ^ uint64(at.state)) * hashFactor
		}
	}
	r.opts.Meter.Work(blockWork * int64(len(a.blocks)))
	for _, n := range l.Names {
		at := r.live[name(n)].Address
		s.named = append(s.named, at)
		hash = (hash ^ uint64(at)) * hashFactor
	}
	s.hash = hash
}

// hashFactor is the prime of FNV-1a.
const hashFactor = 1099511628211
