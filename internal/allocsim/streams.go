package allocsim

import (
	"fmt"
	"slices"
)

// Events tells when streams have done the work that is queued on them now. The
// allocator asks it about blocks that RecordStream named other streams for. A
// runtime implements it with CUDA events; without one, work is done at once.
type Events interface {
	// Record marks the end of the work that is queued on a stream
	// (cudaEventRecord) and returns a name for the mark.
	Record(stream int16) (event uint64)
	// Done reports whether the work before a mark is done (cudaEventQuery). It is
	// not asked again about a mark that is.
	Done(event uint64) bool
	// Wait returns when the work before a mark is done (cudaEventSynchronize).
	Wait(event uint64)
}

// RecordStream is Tensor.record_stream: after it is freed, the block is not
// reused before the work that is then queued on stream is done. Naming the
// stream that the block was allocated on has no effect. A block that is not
// handed out, or a negative stream, is a mistake of the caller, and panics.
func (a *Allocator) RecordStream(handle Block, stream int16) {
	if handle.Address == 0 {
		return
	}
	if stream < 0 {
		panic(fmt.Sprintf("allocsim: stream %d", stream))
	}
	b := a.handedOut(handle)
	if stream != b.stream && !a.uses.contains(b.uses, stream) {
		b.uses = a.uses.push(b.uses, stream)
	}
}

// pendingEvent is a mark that a freed block waits for.
type pendingEvent struct {
	event uint64
	block int32
}

// eventQueue holds the marks on one stream, first in, first out.
type eventQueue struct {
	events []pendingEvent
}

func (q *eventQueue) clear() { q.events = q.events[:0] }

// insertEvents makes a freed block pending on the streams that were recorded
// for it. Even if their work is done, it is found out only by the next Alloc or
// EmptyCache.
func (a *Allocator) insertEvents(i int32) {
	b := &a.blocks[i]
	b.state = pending
	for n := b.uses; n != none; n = a.uses.nodes[n].next {
		s := a.uses.nodes[n].stream
		var event uint64
		if a.opts.Events != nil {
			event = a.opts.Events.Record(s)
		}
		q := &a.stream(s).queue
		q.events = append(q.events, pendingEvent{event, i})
		b.events++
		a.waiting++
	}
	a.uses.free(b.uses)
	b.uses = none
}

// processEvents frees pending blocks whose last mark is passed. On each stream
// it stops at the first mark that is not.
func (a *Allocator) processEvents() {
	for s := range a.streams {
		q := &a.streams[s].queue
		done := 0
		for _, e := range q.events {
			if a.opts.Events != nil && !a.opts.Events.Done(e.event) {
				break
			}
			a.passEvent(e.block)
			done++
		}
		q.events = slices.Delete(q.events, 0, done)
	}
}

// synchronizeEvents waits for all marks and frees all pending blocks.
func (a *Allocator) synchronizeEvents() {
	a.stats.NumSyncAllStreams++
	for s := range a.streams {
		q := &a.streams[s].queue
		for _, e := range q.events {
			if a.opts.Events != nil {
				a.opts.Events.Wait(e.event)
			}
			a.passEvent(e.block)
		}
		q.clear()
	}
}

func (a *Allocator) passEvent(i int32) {
	a.waiting--
	b := &a.blocks[i]
	if b.events--; b.events == 0 {
		a.deactivate(i)
	}
}

// useList is an arena of lists of streams.
type useList struct {
	nodes []useNode
	spare int32
}

type useNode struct {
	stream int16
	next   int32
}

func (l *useList) reset() { l.nodes, l.spare = l.nodes[:0], none }

func (l *useList) contains(head int32, stream int16) bool {
	for n := head; n != none; n = l.nodes[n].next {
		if l.nodes[n].stream == stream {
			return true
		}
	}
	return false
}

// push adds a stream to a list and returns the new head.
func (l *useList) push(head int32, stream int16) int32 {
	n := l.spare
	if n != none {
		l.spare = l.nodes[n].next
	} else {
		n = int32(len(l.nodes))
		l.nodes = append(l.nodes, useNode{})
	}
	l.nodes[n] = useNode{stream, head}
	return n
}

// free returns all nodes of a list.
func (l *useList) free(head int32) {
	for head != none {
		next := l.nodes[head].next
		l.nodes[head].next, l.spare = l.spare, head
		head = next
	}
}
