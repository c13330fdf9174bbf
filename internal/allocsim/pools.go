package allocsim

import (
	"slices"

	"github.com/memplan/memplan/internal/trace"
)

// parts are the events and names of a loop, by the size of the pools whose blocks they are
// about; events by their indices.
//
// A block never changes its pool, so that pools act on each other only where memory is asked
// of the device, or is given back. If a turn asks for none and leaves the large pools as it
// found them, so does the next one, and all of them until the small pools need memory: those
// turns are replayed in the small pools alone. Blocks of these have the sizes that are
// requested, rounded, so that as much is allocated at each event as in the turn before.
type parts struct {
	small, large           []int32
	smallNames, largeNames []trace.Rename
}

// apart tells the parts of a loop of which a turn was just replayed. It returns nil if it does
// more than allocate and free, or if pools act on each other in other ways.
func (r *run) apart(l *trace.Loop) *parts {
	if r.allocator.counts || r.opts.observe != nil {
		return nil
	}
	p := &parts{large: make([]int32, 0, l.End-l.Begin)}
	large := make([]bool, len(r.known)) // by block ID
	for _, n := range l.Names {
		if r.isLarge(n.From) {
			large[n.From], large[n.To] = true, true
			p.largeNames = append(p.largeNames, n)
		} else {
			p.smallNames = append(p.smallNames, n)
		}
	}
	for i := l.Begin; i < l.End; i++ {
		switch e := &r.events[i]; e.Kind {
		case trace.Alloc:
			large[e.ID] = poolFor(r.allocator.cfg.roundSize(e.Bytes)) == largePool
		case trace.Free:
		case trace.SetStream:
			continue
		default:
			return nil
		}
		if large[r.events[i].ID] {
			p.large = append(p.large, int32(i))
		} else {
			p.small = append(p.small, int32(i))
		}
	}
	return p
}

// turnOfSmall replays a turn of a loop in the small pools. If these need memory of the device,
// the large pools catch up, and it returns the event from which on the turn is to be replayed
// in all pools; otherwise the loop's end.
func (r *run) turnOfSmall(l *trace.Loop, p *parts) (next int) {
	a := &r.allocator
	peaks := a.stats
	r.rename(p.smallNames)
	a.cachedOnly = true
	next = r.replayPart(p.small, l.End)
	a.cachedOnly = false
	if next < l.End {
		r.rename(p.largeNames)
		k, _ := slices.BinarySearch(p.large, int32(next))
		r.replayPart(p.large[:k], next)
	}
	a.stats.resetPeaks() // events came in another order than the program's
	a.stats.raisePeaks(&peaks)
	return next
}

// replayPart replays events, whose blocks are all cached: it returns the first that asks the
// device for memory, or end.
func (r *run) replayPart(events []int32, end int) int {
	for k, i := range events {
		e := &r.events[i]
		if e.Kind == trace.Free {
			r.allocator.Free(r.live[e.ID])
			r.known[e.ID] = dead
			continue
		}
		b, err := r.allocator.Alloc(e.Bytes, e.Stream)
		if err != nil {
			events, end = events[:k], int(i)
			break
		}
		r.live[e.ID], r.known[e.ID] = b, alive
	}
	r.left -= int64(len(events))
	r.opts.Meter.Work(eventWork * int64(len(events)))
	return end
}
