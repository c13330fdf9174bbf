package allocsim

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// state is what decides what an allocator does next: its blocks, and where those
// lie whose names a loop changes.
type state struct {
	allocated, reserved tensor.Bytes
	retries, turn       int64
	device              DriverCounters
	hash                uint64 // of what follows
	blocks              []blockAt
	named               []namedAt
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

// history is the states that a loop's turns leave: all of the first turns, and then those
// that Brent's algorithm keeps, which finds a period of any length.
type history struct {
	run   *run
	loop  *trace.Loop
	first []*state
	last  *state // of the others
	now   *state
	room  int   // blocks of states that may be kept yet
	next  int64 // the turn whose state comes in the place of last
	since int64 // events since a state was looked at, which takes as long as so many blocks
}

// firstBlocks bounds the blocks of the states that are kept of a loop's first turns: 20 MiB.
const firstBlocks = 1 << 19

// history begins with the state in which the events were replayed for the first time, unless
// that is nil.
func (r *run) history(l *trace.Loop, saved *state) *history {
	h := &history{run: r, loop: l, now: r.takeState(), room: firstBlocks, since: int64(l.End - l.Begin)}
	if saved != nil {
		saved.turn = -1
		h.first = append(h.first, saved)
	}
	return h
}

// close gives the rooms of the states back.
func (h *history) close() {
	r := h.run
	r.states = append(append(r.states, h.now), h.first...)
	if h.last != nil {
		r.states = append(r.states, h.last)
	}
}

// look looks at the state after a turn, if it may be one that was there before, which it
// returns then, or is kept. It also reports whether the turn left the large pools as it
// found them, and asked nothing of the device.
func (h *history) look(turn int64) (before *state, fixed bool) {
	a := &h.run.allocator
	like := func(s *state) bool {
		return s.allocated == a.stats.AllocatedBytes.All.Current && s.reserved == a.stats.ReservedBytes.All.Current
	}
	keeps := turn < quietTurns && h.room >= len(a.blocks)
	if h.since < int64(len(a.blocks)) || !keeps && turn < h.next && (h.last == nil || !like(h.last)) && !slices.ContainsFunc(h.first, like) {
		return nil, false
	}
	h.since = 0
	h.run.observeState(h.loop, h.now, func(n trace.Rename) int32 { return n.From })
	h.now.turn = turn
	if i := slices.IndexFunc(h.first, h.now.equals); i >= 0 {
		return h.first[i], false
	}
	if h.last != nil && h.last.equals(h.now) {
		return h.last, false
	}
	switch {
	case keeps:
		if n := len(h.first); n > 0 {
			s := h.first[n-1]
			fixed = s.turn == turn-1 && s.device == h.now.device && s.equalsInLarge(h.now)
		}
		h.room -= len(h.now.blocks)
		h.first, h.now = append(h.first, h.now), h.run.takeState()
	case turn >= h.next:
		if h.last == nil {
			h.last = h.run.takeState()
		}
		h.last, h.now, h.next = h.now, h.last, 2*turn
	}
	return nil, fixed
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

// namedAt is a block that a loop's name is that of.
type namedAt struct {
	addr  Address
	large bool // in a large pool
}

func (s *state) equals(o *state) bool {
	return s.hash == o.hash && slices.Equal(s.blocks, o.blocks) && slices.Equal(s.named, o.named)
}

// equalsInLarge reports whether the large pools are the same in both states.
func (s *state) equalsInLarge(o *state) bool {
	i := 0
	next := func() *blockAt {
		for ; i < len(o.blocks); i++ {
			if b := &o.blocks[i]; b.pool == largePool {
				i++
				return b
			}
		}
		return nil
	}
	for k := range s.blocks {
		if b := &s.blocks[k]; b.pool == largePool {
			if c := next(); c == nil || *b != *c {
				return false
			}
		}
	}
	return next() == nil && slices.EqualFunc(s.named, o.named, func(a, b namedAt) bool { return a == b || !a.large && !b.large })
}

// isLarge reports whether the block of an ID lives and is in a large pool.
func (r *run) isLarge(id int32) bool {
	return r.known[id] == alive && r.live[id].Address != 0 && r.allocator.blocks[r.live[id].index].pool == largePool
}

// observeState writes down the present state; name tells which block a loop's name is
// that of.
func (r *run) observeState(l *trace.Loop, s *state, name func(trace.Rename) int32) {
	a := &r.allocator
	s.allocated, s.reserved, s.retries = a.stats.AllocatedBytes.All.Current, a.stats.ReservedBytes.All.Current, a.stats.NumAllocRetries
	s.device = r.driver.counters
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
		id := name(n)
		at := namedAt{r.live[id].Address, r.isLarge(id)}
		s.named = append(s.named, at)
		hash = (hash ^ uint64(at.addr)) * hashFactor
	}
	s.hash = hash
}

// hashFactor is the prime of FNV-1a.
const hashFactor = 1099511628211
