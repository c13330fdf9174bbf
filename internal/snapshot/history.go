package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// Begin returns the segments of the device before its first event: the events are undone, from
// the last to the first. An error names an event that does not agree with the segments.
//
// Of a block that lived then and was freed later the events tell what was requested. Its size is
// that, rounded to 512 bytes, or as much as PyTorch leaves unsplit.
func (d *Device) Begin() ([]Segment, error) {
	u := newUndo(d)
	for i := len(d.Events) - 1; i >= 0; i-- {
		if msg := u.event(&d.Events[i]); msg != "" {
			return nil, &Error{fmt.Sprintf("device_traces[%d][%d]", d.Index, i), msg}
		}
	}
	segments, msg := u.tiled()
	if msg != "" {
		return nil, &Error{fmt.Sprintf("device_traces[%d]", d.Index), msg}
	}
	return segments, nil
}

// undo is the memory of a device, on the way back through its events.
type undo struct {
	segments []Segment // by address, without blocks
	blocks   map[uint64]*Block
}

func newUndo(d *Device) *undo {
	u := &undo{blocks: map[uint64]*Block{}}
	for _, s := range d.Segments {
		for i := range s.Blocks {
			if b := s.Blocks[i]; b.State != Inactive {
				u.blocks[b.Address] = &b
			}
		}
		s.Blocks = nil
		u.segments = append(u.segments, s)
	}
	return u
}

// event undoes one; what it returns says why it cannot have happened.
func (u *undo) event(e *Event) string {
	switch e.Action {
	case Alloc:
		b := u.blocks[e.Address]
		if b == nil || b.State != Allocated {
			return fmt.Sprintf("allocates at %#x, where no block is afterwards", e.Address)
		}
		delete(u.blocks, e.Address)
	case FreeRequested:
		b := u.blocks[e.Address]
		if b == nil || b.State != Pending {
			return fmt.Sprintf("gives back a block at %#x, of which nothing is known afterwards", e.Address)
		}
		b.State = Allocated
	case FreeCompleted:
		if u.blocks[e.Address] != nil {
			return fmt.Sprintf("frees a block at %#x, where one is afterwards", e.Address)
		}
		if u.at(e.Address) < 0 {
			return fmt.Sprintf("frees a block at %#x, where no segment is", e.Address)
		}
		u.blocks[e.Address] = &Block{Address: e.Address, Size: max(e.Size, 1).CeilTo(512), Requested: e.Size, State: Pending}
	case SegmentAlloc, SegmentMap:
		return u.remove(e)
	case SegmentFree, SegmentUnmap:
		u.insert(e)
	}
	return ""
}

// at is the index of the segment that holds an address; -1 if none does.
func (u *undo) at(a uint64) int {
	i, found := slices.BinarySearchFunc(u.segments, a, func(s Segment, a uint64) int { return cmp.Compare(s.Address, a) })
	if !found {
		i--
	}
	if i < 0 || a >= u.segments[i].Address+uint64(u.segments[i].Size) {
		return -1
	}
	return i
}

// remove takes memory away that an event took from the device. Of an expandable segment it may be
// a part of a range.
func (u *undo) remove(e *Event) string {
	i := u.at(e.Address)
	if i < 0 {
		return fmt.Sprintf("takes memory at %#x, where none is afterwards", e.Address)
	}
	s := u.segments[i]
	end := e.Address + uint64(e.Size)
	if end > s.Address+uint64(s.Size) || !s.Expandable && (e.Address != s.Address || e.Size != s.Size) {
		return fmt.Sprintf("takes %d bytes at %#x, where %d bytes are afterwards", int64(e.Size), e.Address, int64(s.Size))
	}
	below, above := s, s
	below.Size = tensor.Bytes(e.Address - s.Address)
	above.Address, above.Size = end, tensor.Bytes(s.Address+uint64(s.Size)-end)
	parts := slices.DeleteFunc([]Segment{below, above}, func(s Segment) bool { return s.Size == 0 })
	u.segments = slices.Replace(u.segments, i, i+1, parts...)
	return ""
}

// insert gives memory back that an event returned to the device. Its pool is what its size says, or
// for a range of an expandable segment the neighbour.
func (u *undo) insert(e *Event) {
	s := Segment{Address: e.Address, Size: e.Size, Stream: e.Stream, Small: e.Size == smallSegment, Expandable: e.Action == SegmentUnmap}
	i, _ := slices.BinarySearchFunc(u.segments, s.Address, func(s Segment, a uint64) int { return cmp.Compare(s.Address, a) })
	u.segments = slices.Insert(u.segments, i, s)
	if !s.Expandable {
		return
	}
	for _, j := range []int{i + 1, i} { // with the range above, and with the one below
		if j < 1 || j >= len(u.segments) {
			continue
		}
		a, b := &u.segments[j-1], &u.segments[j]
		if a.Expandable && b.Expandable && a.Stream == b.Stream && a.Address+uint64(a.Size) == b.Address {
			a.Small = a.Small && b.Small // a range of large blocks is never as small as one of small ones
			a.Size += b.Size
			u.segments = slices.Delete(u.segments, j, j+1)
		}
	}
}

// smallSegment is kSmallBuffer: the size of a segment of small blocks, which no other has.
const smallSegment = 2 * tensor.MiB

// unsplit is kSmallSize: what is left over of a large block is not split off unless it is larger.
const unsplit = tensor.MiB

// tiled returns the segments with their blocks; or says which block is in no segment.
func (u *undo) tiled() ([]Segment, string) {
	var live []*Block
	for _, b := range u.blocks {
		live = append(live, b)
	}
	slices.SortFunc(live, func(a, b *Block) int { return cmp.Compare(a.Address, b.Address) })
	for i := range u.segments {
		s := &u.segments[i]
		at, end := s.Address, s.Address+uint64(s.Size)
		for ; len(live) > 0 && live[0].Address < end; live = live[1:] {
			b := live[0]
			if b.Address < at {
				return nil, fmt.Sprintf("the block at %#x is in no segment when the events begin", b.Address)
			}
			if b.Address > at {
				s.Blocks = append(s.Blocks, Block{Address: at, Size: tensor.Bytes(b.Address - at)})
			}
			next := end
			if len(live) > 1 {
				next = min(next, live[1].Address)
			}
			room := tensor.Bytes(next - b.Address)
			if rest := room - b.Size; rest < 512 || !s.Small && !s.Expandable && rest <= unsplit {
				b.Size = room
			}
			b.Requested = min(b.Requested, b.Size)
			s.Blocks = append(s.Blocks, *b)
			at = b.Address + uint64(b.Size)
		}
		if at < end {
			s.Blocks = append(s.Blocks, Block{Address: at, Size: tensor.Bytes(end - at)})
		}
	}
	if len(live) > 0 {
		return nil, fmt.Sprintf("the block at %#x is in no segment when the events begin", live[0].Address)
	}
	return u.segments, ""
}
