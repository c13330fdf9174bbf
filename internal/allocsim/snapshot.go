package allocsim

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// SegmentInfo describes a segment, or a mapped range of an expandable one, with
// the names of torch.cuda.memory_snapshot.
type SegmentInfo struct {
	Address       Address      `json:"address"`
	TotalSize     tensor.Bytes `json:"total_size"`
	AllocatedSize tensor.Bytes `json:"allocated_size"` // of blocks handed out
	ActiveSize    tensor.Bytes `json:"active_size"`    // of blocks handed out or pending
	RequestedSize tensor.Bytes `json:"requested_size"` // what the active blocks were asked for
	Stream        int16        `json:"stream"`
	SegmentType   string       `json:"segment_type"` // "small" or "large", the pool
	IsExpandable  bool         `json:"is_expandable"`
	Blocks        []BlockInfo  `json:"blocks"` // by address, without gaps
}

// BlockInfo describes a block of a segment.
type BlockInfo struct {
	Address       Address      `json:"address"`
	Size          tensor.Bytes `json:"size"`
	RequestedSize tensor.Bytes `json:"requested_size"` // 0 if inactive
	State         string       `json:"state"`          // as in blockStateNames
}

// blockStateNames are PyTorch's names of the states that a snapshot shows.
var blockStateNames = [...]string{inactive: "inactive", active: "active_allocated", pending: "active_pending_free"}

// poolNames are PyTorch's names of segment types.
var poolNames = [numPools]string{smallPool: "small", largePool: "large"}

// Snapshot describes all memory that the allocator holds, by address.
func (a *Allocator) Snapshot() []SegmentInfo {
	var segments []SegmentInfo
	for i := range a.blocks {
		if a.isHead(int32(i)) {
			segments = append(segments, a.describe(int32(i)))
		}
	}
	slices.SortFunc(segments, func(x, y SegmentInfo) int { return cmp.Compare(x.Address, y.Address) })
	return segments
}

// isHead reports whether a slot of the arena holds the first block of a segment
// or of a mapped range.
func (a *Allocator) isHead(i int32) bool {
	b := &a.blocks[i]
	return b.size > 0 && b.state != unmapped && (b.prev == none || a.blocks[b.prev].state == unmapped)
}

// describe returns the segment or mapped range that begins with block i.
func (a *Allocator) describe(i int32) SegmentInfo {
	head := &a.blocks[i]
	s := SegmentInfo{
		Address:      head.addr,
		Stream:       head.stream,
		SegmentType:  poolNames[head.pool],
		IsExpandable: head.segment != none,
	}
	for ; i != none && a.blocks[i].state != unmapped; i = a.blocks[i].next {
		b := &a.blocks[i]
		info := BlockInfo{Address: b.addr, Size: b.size, State: blockStateNames[b.state]}
		s.TotalSize += b.size
		if b.state != inactive {
			info.RequestedSize = b.requested
			s.ActiveSize += b.size
			s.RequestedSize += b.requested
		}
		if b.state == active {
			s.AllocatedSize += b.size
		}
		s.Blocks = append(s.Blocks, info)
	}
	return s
}
