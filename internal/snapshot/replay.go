package snapshot

import (
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// History is what a device's events say, as a trace that package allocsim replays.
type History struct {
	Held   []allocsim.SegmentInfo // before the first event
	Events []trace.Event
	// Of[i] is the index of the recorded event that Events[i] comes from.
	Of []int
	// Reserved[i] is what was reserved after Events[i].
	Reserved []tensor.Bytes
	// Available is how much the process could reserve, as far as the events tell: what the device had
	// free when a request failed, and what was reserved then. 0 if none failed.
	Available tensor.Bytes
}

// History makes a trace of the device's events. Streams and private pools are numbered as they
// come: blocks of one are never handed out to another.
func (d *Device) History() (*History, error) {
	begin, err := d.Begin()
	if err != nil {
		return nil, err
	}
	b := &builder{History: &History{}, d: d, owners: map[owner]int16{{}: 0}, ids: map[uint64]int32{}}
	b.held(begin)
	for i := 0; i < len(d.Events); i++ {
		i = b.event(i)
	}
	return b.History, nil
}

// owner is who may use a block: a stream, and a private pool.
type owner struct {
	stream int64
	pool   [2]int64
}

type builder struct {
	*History
	d        *Device
	owners   map[owner]int16
	ids      map[uint64]int32 // of blocks that live, by address
	born     int32
	reserved tensor.Bytes
}

// owner numbers who owns a block at an address. Events tell the stream alone; the pool is that of the segment
// that is there at the end.
func (b *builder) owner(stream int64, address uint64) int16 {
	o := owner{stream: stream}
	for _, s := range b.d.Segments {
		if s.Pool != [2]int64{} && address >= s.Address && address < s.Address+uint64(s.Size) {
			o.pool = s.Pool
		}
	}
	n, ok := b.owners[o]
	if !ok {
		n = int16(min(len(b.owners), 1<<14))
		b.owners[o] = n
	}
	return n
}

// held lists what is held before the first event.
func (b *builder) held(begin []Segment) {
	for i := range begin {
		s := &begin[i]
		info := allocsim.SegmentInfo{
			Address: allocsim.Address(s.Address), TotalSize: s.Size, Stream: b.owner(s.Stream, s.Address),
			SegmentType: "large", IsExpandable: s.Expandable,
		}
		if s.Small {
			info.SegmentType = "small"
		}
		for j := range s.Blocks {
			block := &s.Blocks[j]
			state := "inactive"
			if block.State != Inactive {
				state = "active_allocated"
				b.born++
				b.ids[block.Address] = b.born
			}
			info.Blocks = append(info.Blocks, allocsim.BlockInfo{
				Address: allocsim.Address(block.Address), Size: block.Size, RequestedSize: block.Requested, State: state,
			})
		}
		b.Held = append(b.Held, info)
		b.reserved += s.Size
	}
}

// add adds an event to the trace.
func (b *builder) add(i int, e trace.Event) {
	b.Events, b.Of, b.Reserved = append(b.Events, e), append(b.Of, i), append(b.Reserved, b.reserved)
}

// event adds the events that a recorded one, and those that belong to it, stand for; it returns
// the last one that it took.
func (b *builder) event(i int) int {
	e := &b.d.Events[i]
	switch e.Action {
	case Alloc:
		b.born++
		b.ids[e.Address] = b.born
		b.add(i, trace.Event{Kind: trace.Alloc, ID: b.born, Bytes: e.Size, Stream: b.owner(e.Stream, e.Address)})
	case FreeCompleted:
		b.add(i, trace.Event{Kind: trace.Free, ID: b.ids[e.Address]})
		delete(b.ids, e.Address)
	case SegmentAlloc, SegmentMap:
		b.reserved += e.Size
	case SegmentFree, SegmentUnmap:
		return b.released(i)
	case OOM: // Size is rounded already
		if e.Address < 1<<62 {
			b.Available = max(b.Available, tensor.Bytes(e.Address)+b.reserved)
		}
		b.born++
		b.add(i, trace.Event{Kind: trace.Alloc, ID: b.born, Bytes: max(e.Size, 1), Stream: b.owner(e.Stream, 0)})
	}
	return i
}

// released takes a run of events that return memory to the device: of empty_cache, or of a
// request for which the device had no memory, in which case the replay does it of itself.
func (b *builder) released(i int) int {
	events := b.d.Events
	end := i
	for end < len(events) && (events[end].Action == SegmentFree || events[end].Action == SegmentUnmap) {
		b.reserved -= events[end].Size
		end++
	}
	if !b.byRequest(&events[i], end) {
		b.add(i, trace.Event{Kind: trace.EmptyCache})
	}
	return end - 1
}

// byRequest reports whether a request released memory: a segment or a failure comes next, in
// the same place of the program.
func (b *builder) byRequest(e *Event, next int) bool {
	if next == len(b.d.Events) {
		return false
	}
	n := &b.d.Events[next]
	switch n.Action {
	case SegmentAlloc, SegmentMap, OOM:
		return !e.Stack.has("empty_cache") && (e.Stack == nil || n.Stack == nil || e.Stack.key() == n.Stack.key())
	}
	return false
}

// has reports whether a function of a name is at work.
func (s *Stack) has(name string) bool {
	if s == nil {
		return false
	}
	for i := range s.Frames {
		if s.Frames[i].Name == name {
			return true
		}
	}
	return false
}

// key is a text that equal stacks share.
func (s *Stack) key() string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	for i := range s.Frames {
		f := &s.Frames[i]
		b.WriteString(f.File)
		b.WriteByte(0)
		b.WriteString(f.Name)
		b.WriteByte(0)
		b.WriteByte(byte(f.Line))
		b.WriteByte(byte(f.Line >> 8))
		b.WriteByte(byte(f.Line >> 16))
	}
	return b.String()
}
