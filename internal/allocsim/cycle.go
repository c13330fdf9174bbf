package allocsim

import (
	"errors"
	"fmt"

	"github.com/memplan/memplan/internal/trace"
)

// Cycle is a part of a trace, at its end, that goes on and on: the steps of a
// job once they are alike. Where each turn leaves more than it found, the
// allocator runs out of memory in some turn, and only a replay tells in which:
// what is left splits segments that others could have used.
type Cycle struct {
	Begin int // its first event; the last is that of the trace
	// Limit is the number of events after which the replay stops.
	Limit int
}

// place is where a block lies while a cycle is replayed.
type place struct {
	id    int64
	block Block
	state lifeState
}

// repeat replays the cycle of opts. Blocks are numbered in the order of their
// birth: in each turn every number is larger by the number of blocks that are
// born in one. A block that is older than any that a turn frees is never freed,
// and forgotten.
func (p *Replayer) repeat(events []trace.Event, opts *ReplayOptions, r *Result) error {
	c := opts.Cycle
	cycle := events[c.Begin:]
	var born, last, oldest int64
	for i := range events {
		if events[i].Kind == trace.Alloc {
			if last++; int64(events[i].ID) != last {
				return fmt.Errorf("event %d: a cycle needs blocks that are numbered in the order of their birth; %d comes after %d", i, events[i].ID, last-1)
			}
			if i >= c.Begin {
				born++
			}
		}
	}
	now := last - born
	for i := range cycle {
		switch e := &cycle[i]; e.Kind {
		case trace.Alloc:
			now++
		case trace.Free:
			oldest = max(oldest, now-int64(e.ID))
		}
	}
	ring := make([]place, oldest+1)
	for id := max(last-oldest, 1); id <= last; id++ {
		ring[id%int64(len(ring))] = place{id, p.live[id], p.known[id]}
	}
	replayed := 0
	for turn := int64(1); replayed+len(cycle) <= c.Limit; turn++ {
		for i := range cycle {
			opts.Meter.Work(1 + p.allocator.looked)
			p.allocator.looked = 0
			e := &cycle[i]
			id := int64(e.ID) + turn*born
			at := &ring[id%int64(len(ring))]
			switch e.Kind {
			case trace.Alloc:
				*at = place{id: id, state: alive}
				b, err := p.allocator.Alloc(e.Bytes, e.Stream)
				if err == nil {
					at.block = b
					break
				}
				var oom *OOMError
				if !errors.As(err, &oom) {
					return err
				}
				at.state = failed
				if opts.MayFail == nil || !opts.MayFail(c.Begin+i) {
					r.OOMs = append(r.OOMs, OOM{Event: c.Begin + i, Turn: turn, Err: oom})
					if opts.StopAtOOM {
						return nil
					}
				}
			case trace.Free:
				if at.id != id || at.state == dead {
					return fmt.Errorf("event %d: turn %d of the cycle frees block %d, which is not there", c.Begin+i, turn, id)
				}
				if at.state == alive {
					p.allocator.Free(at.block)
				}
				at.state = dead
			case trace.EmptyCache:
				if err := p.allocator.EmptyCache(); err != nil {
					return err
				}
			}
		}
		replayed += len(cycle)
		r.Cycles = turn
	}
	return nil
}
