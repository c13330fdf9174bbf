package allocsim

import "github.com/memplan/memplan/internal/tensor"

// blockState says what a block is doing.
type blockState uint8

const (
	unmapped blockState = iota // address space without memory, in an expandable segment
	inactive                   // cached, in the free set of its stream and pool
	active                     // handed out
	pending                    // given back, but another stream may still use it
)

// none is the index of no block, segment or list node.
const none int32 = -1

// block is a piece of a segment. The pieces of one segment form a list in
// address order; no two inactive neighbours exist (freeing merges them), nor
// two unmapped ones.
//
// Blocks live in one slice and point to each other by index, so that a replay
// makes no garbage and a whole arena is reset at once.
type block struct {
	addr      Address
	size      tensor.Bytes // a multiple of 512
	requested tensor.Bytes // what the last request that got this block asked for
	gcBase    int64        // the pool's lookups when the block became inactive, see collect
	prev      int32        // neighbour below, in the same segment
	next      int32        // neighbour above
	segment   int32        // expandable segment, or none
	uses      int32        // list of streams that record_stream named, or none
	events    int32        // events to wait for while pending
	stream    int16
	pool      uint8
	state     blockState
}

// isSplit reports whether the block shares its segment with others.
func (b *block) isSplit() bool { return b.prev != none || b.next != none }

// newBlock takes a block from the arena. Pointers into a.blocks do not survive
// the call.
func (a *Allocator) newBlock(b block) int32 {
	if n := len(a.spare); n > 0 {
		i := a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.blocks[i] = b
		return i
	}
	a.blocks = append(a.blocks, b)
	return int32(len(a.blocks) - 1)
}

// dropBlock returns a block to the arena.
func (a *Allocator) dropBlock(i int32) {
	a.blocks[i] = block{prev: none, next: none, segment: none, uses: none}
	a.spare = append(a.spare, i)
}

// link makes i the block between its own prev and next.
func (a *Allocator) link(i int32) {
	b := &a.blocks[i]
	if b.prev != none {
		a.blocks[b.prev].next = i
	}
	if b.next != none {
		a.blocks[b.next].prev = i
	}
}

// merge joins neighbour into i, if it is in the given state, and drops it. i itself
// must be in no set; the neighbour is taken out of its own.
func (a *Allocator) merge(i, neighbour int32, state blockState) {
	if neighbour == none {
		return
	}
	n := &a.blocks[neighbour]
	if n.state != state {
		return
	}
	if state == inactive {
		a.freeSet(n).remove(n.size, n.addr)
	} else {
		a.unmappedSet(n).remove(a, neighbour)
	}
	a.join(i, neighbour)
}

// join makes i of two neighbours, which are in no set, and drops the other.
func (a *Allocator) join(i, neighbour int32) {
	b, n := &a.blocks[i], &a.blocks[neighbour]
	if b.prev == neighbour {
		b.addr = n.addr
		b.prev = n.prev
	} else {
		b.next = n.next
	}
	b.size += n.size
	a.link(i)
	a.dropBlock(neighbour)
}

// isAvailable reports whether the block could be part of a new allocation.
func (b *block) isAvailable() bool { return b.state <= inactive }
