package allocsim

import (
	"errors"
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Block is memory that Alloc handed out. The zero Block stands for no memory:
// what a request of 0 bytes gets.
type Block struct {
	Address Address
	index   int32
}

// Options tune an Allocator beyond what PYTORCH_CUDA_ALLOC_CONF can.
type Options struct {
	Device int    // the GPU's index, for messages
	Events Events // when other streams are done; nil means at once
}

// Allocator is PyTorch's native CUDA caching allocator for one device. It is
// not safe for concurrent use.
type Allocator struct {
	cfg    Config // with defaults filled in
	driver Driver
	opts   Options
	stats  Stats

	limited bool         // a memory fraction is set
	limit   tensor.Bytes // total_allocated_memory may not exceed it
	counts  bool         // lookups are counted, since collect may need ages

	cachedOnly bool // requests fail for which no block is cached

	blocks   []block             // arena
	spare    []int32             // free slots of it
	segments []expandableSegment // all that were ever reserved
	scratch  []int32             // blocks to release, while the sets change
	looked   int64               // cached blocks that were looked at, all in a row
	streams  []streamState       // by stream number
	lookups  [numPools]int64     // get_free_blocks_call_count
	waiting  int                 // events in all queues
	uses     useList             // arena of record_stream's lists
}

// streamState is what one stream owns: blocks never change streams.
type streamState struct {
	free     [numPools]freeSet
	unmapped [numPools]unmappedSet
	queue    eventQueue
}

// New returns an allocator without memory. It fails only if the memory fraction
// of cfg is out of range.
func New(cfg Config, d Driver, opts Options) (*Allocator, error) {
	a := &Allocator{}
	if err := a.init(cfg, d, opts); err != nil {
		return nil, err
	}
	return a, nil
}

// init brings a into its first state, keeping the capacity of its arenas.
func (a *Allocator) init(cfg Config, d Driver, opts Options) error {
	a.cfg, a.driver, a.opts = cfg.withDefaults(), d, opts
	a.stats = Stats{}
	a.limited, a.limit, a.counts, a.cachedOnly = false, 0, false, false
	a.blocks, a.spare, a.segments = a.blocks[:0], a.spare[:0], a.segments[:0]
	for i := range a.streams {
		a.streams[i].reset()
	}
	a.lookups = [numPools]int64{}
	a.waiting = 0
	a.uses.reset()
	if f := cfg.MemoryFraction; f != nil {
		return a.SetMemoryFraction(*f)
	}
	return nil
}

func (s *streamState) reset() {
	for p := range numPools {
		s.free[p].clear()
		s.unmapped[p].clear()
	}
	s.queue.clear()
}

// Reset forgets all blocks, statistics and the memory fraction set since New,
// without a word to the driver, which must be fresh. The arenas keep their
// capacity, so that many replays cost one set of them.
func (a *Allocator) Reset() error { return a.init(a.cfg, a.driver, a.opts) }

// SetMemoryFraction is torch.cuda.set_per_process_memory_fraction: the
// allocator will hold at most f times the device's memory, 0 ≤ f ≤ 1. What it
// holds already stays.
func (a *Allocator) SetMemoryFraction(f float64) error {
	if !(f >= 0 && f <= 1) {
		return fmt.Errorf("memory fraction is %v; allowed is a number from 0 to 1", f)
	}
	_, total := a.driver.MemInfo()
	a.limited, a.limit = true, tensor.Bytes(f*float64(total))
	a.counts = a.cfg.GarbageCollectionThreshold > 0
	return nil
}

// Stats returns the statistics.
func (a *Allocator) Stats() Stats { return a.stats }

// ResetPeaks is torch.cuda.reset_peak_memory_stats.
func (a *Allocator) ResetPeaks() { a.stats.resetPeaks() }

// request is one allocation on its way.
type request struct {
	bytes   tensor.Bytes // as asked for
	size    tensor.Bytes // rounded
	segment tensor.Bytes // to ask of cudaMalloc
	stream  int16
	pool    uint8
}

// Alloc returns a block of n bytes for work on the given stream. Zero bytes are
// the zero Block. If there is no room, even after the cache was released, the
// error is an *OOMError; other errors come from the driver or say that n or
// the stream is negative.
func (a *Allocator) Alloc(n tensor.Bytes, stream int16) (Block, error) {
	switch {
	case n == 0:
		return Block{}, nil
	case n < 0 || stream < 0:
		return Block{}, fmt.Errorf("allocation of %d bytes on stream %d; allowed are numbers from 0", int64(n), stream)
	case n >= oneExabyte:
		return Block{}, &OOMError{Requested: n, Device: a.opts.Device}
	}
	if a.waiting > 0 {
		a.processEvents()
	}
	size := a.cfg.roundSize(n)
	r := request{bytes: n, size: size, stream: stream, pool: uint8(poolFor(size))}
	i, at := a.findFree(&r)
	if i == none {
		if a.cachedOnly {
			return Block{}, errNotCached
		}
		var err error
		if i, err = a.takeFromDevice(&r); err != nil {
			return Block{}, err
		}
	}
	i = a.handOut(i, at, &r)
	a.checkInvariants()
	return Block{a.blocks[i].addr, i}, nil
}

var errNotCached = errors.New("no block is cached for the request")

// stream returns the state of a stream, making it on first use.
func (a *Allocator) stream(s int16) *streamState {
	for int(s) >= len(a.streams) {
		a.streams = append(a.streams, streamState{})
	}
	return &a.streams[s]
}

// freeSet returns the set that a block belongs to while inactive.
func (a *Allocator) freeSet(b *block) *freeSet { return &a.streams[b.stream].free[b.pool] }

// unmappedSet returns the set that a block belongs to while unmapped.
func (a *Allocator) unmappedSet(b *block) *unmappedSet { return &a.streams[b.stream].unmapped[b.pool] }

// cache puts a block into its free set.
func (a *Allocator) cache(i int32) { a.cacheAt(i, nowhere) }

// cacheAt puts a block into its free set in place of what is at a position.
func (a *Allocator) cacheAt(i int32, at freePos) {
	b := &a.blocks[i]
	b.state = inactive
	b.gcBase = a.lookups[b.pool]
	set := a.freeSet(b)
	if at == nowhere {
		set.insert(b.size, b.addr, i)
	} else {
		set.change(at, b.size, b.addr, i)
	}
}

// findFree finds the smallest cached block of the stream and pool that is large
// enough, the lowest of several, and where it is in its set; none, nowhere if there
// is none or if the oversize rules forbid it. The rules look at the best fit
// only: a block that they forbid ends the search.
func (a *Allocator) findFree(r *request) (int32, freePos) {
	if a.counts {
		a.lookups[r.pool]++
	}
	set := &a.stream(r.stream).free[r.pool]
	at := set.atLeast(r.size)
	i := set.get(at)
	if i == none {
		return none, nowhere
	}
	if a.cfg.ExpandableSegments {
		// What a block can grow to counts as its size, so that the end of a
		// segment stays whole while something else fits.
		for {
			next := set.next(at)
			j := set.get(next)
			if j == none || a.growable(j) >= a.growable(i) {
				break
			}
			at, i = next, j
		}
	}
	b := &a.blocks[i]
	if limit := a.cfg.MaxSplitSize; r.size < limit {
		if b.size >= limit {
			return none, nowhere // a small request must not break up an oversize block
		}
	} else if b.size >= r.size+a.cfg.MaxNonSplitRounding {
		return none, nowhere // it could not be split, and too much would be wasted
	}
	return i, at
}

// growable returns the size of a block with the unmapped space after it.
func (a *Allocator) growable(i int32) tensor.Bytes {
	b := &a.blocks[i]
	if b.next != none && a.blocks[b.next].state == unmapped {
		return b.size + a.blocks[b.next].size
	}
	return b.size
}

// takeFromDevice serves a request for which no block is cached, releasing
// cached memory in PyTorch's order where the device has none left. After a
// release the cache is not searched again.
func (a *Allocator) takeFromDevice(r *request) (int32, error) {
	r.segment = a.cfg.segmentSize(r.size)
	if a.counts {
		if err := a.collect(); err != nil {
			return none, err
		}
	}
	i, err := a.grow(r)
	if errors.Is(err, ErrOutOfMemory) {
		enough, releaseErr := a.releaseOversize(r)
		if releaseErr != nil {
			return none, releaseErr
		}
		if enough {
			i, err = a.grow(r)
		}
	}
	if errors.Is(err, ErrOutOfMemory) {
		if err := a.releaseCached(); err != nil {
			return none, err
		}
		a.stats.NumAllocRetries++
		i, err = a.grow(r)
	}
	if errors.Is(err, ErrOutOfMemory) {
		a.stats.NumOOMs++
		return none, a.oomError(r)
	}
	return i, err
}

func (a *Allocator) oomError(r *request) *OOMError {
	free, total := a.driver.MemInfo()
	return &OOMError{
		Requested: r.bytes,
		Tried:     r.segment,
		Device:    a.opts.Device,
		Capacity:  total,
		Free:      free,
		Limit:     a.limit,
		Limited:   a.limited,
		Allocated: a.stats.AllocatedBytes.All.Current,
		Reserved:  a.stats.ReservedBytes.All.Current,
	}
}

// shouldSplit reports whether a request of the given rounded size gets only a
// part of the block.
func (a *Allocator) shouldSplit(b *block, size tensor.Bytes) bool {
	rest := b.size - size
	if b.pool == smallPool || a.cfg.ExpandableSegments {
		return rest >= minBlockSize
	}
	return size < a.cfg.MaxSplitSize && rest > smallSize
}

// handOut makes a block an active one, which is at a position of its free set or
// nowhere, split if need be: the lower part is handed out, the upper one cached. It
// returns the active block.
func (a *Allocator) handOut(i int32, at freePos, r *request) int32 {
	b := &a.blocks[i]
	pool := b.pool
	wasSplit := b.isSplit()
	if a.shouldSplit(b, r.size) {
		rest := i
		i = a.newBlock(block{
			addr: b.addr, size: r.size, prev: b.prev, next: rest,
			segment: b.segment, uses: none, stream: b.stream, pool: pool,
		})
		a.link(i)
		upper := &a.blocks[rest]
		upper.addr += Address(r.size)
		upper.size -= r.size
		a.cacheAt(rest, at)
		b = &a.blocks[i]
		switch {
		case b.segment != none:
		case wasSplit: // the cached piece shrank
			a.stats.InactiveSplitBytes.sub(pool, r.size)
		default: // a whole segment became two pieces
			a.stats.InactiveSplitBytes.add(pool, upper.size)
			a.stats.InactiveSplit.add(pool, 1)
		}
	} else {
		if at != nowhere {
			a.freeSet(b).removeAt(at)
		}
		if wasSplit && b.segment == none {
			a.stats.InactiveSplitBytes.sub(pool, b.size)
			a.stats.InactiveSplit.sub(pool, 1)
		}
	}
	b.state = active
	b.requested = r.bytes
	a.stats.Allocation.add(pool, 1)
	a.stats.AllocatedBytes.add(pool, b.size)
	a.stats.Active.add(pool, 1)
	a.stats.ActiveBytes.add(pool, b.size)
	a.stats.RequestedBytes.add(pool, r.bytes)
	if b.size >= a.cfg.MaxSplitSize {
		a.stats.OversizeAllocations.add(1)
	}
	return i
}

// Free gives a block back. It can be reused at once by its own stream, unless
// RecordStream named others. The zero Block is ignored; a block that is not
// handed out is a mistake of the caller, and panics.
func (a *Allocator) Free(handle Block) {
	if handle.Address == 0 {
		return
	}
	b := a.handedOut(handle)
	a.stats.Allocation.sub(b.pool, 1)
	a.stats.AllocatedBytes.sub(b.pool, b.size)
	if b.size >= a.cfg.MaxSplitSize {
		a.stats.OversizeAllocations.sub(1)
	}
	if b.uses != none {
		a.insertEvents(handle.index)
	} else {
		a.deactivate(handle.index)
	}
	a.checkInvariants()
}

// handedOut returns the block behind a handle, and panics if it is not handed
// out (any more).
func (a *Allocator) handedOut(handle Block) *block {
	if i := int(handle.index); i < len(a.blocks) {
		if b := &a.blocks[i]; b.state == active && b.addr == handle.Address {
			return b
		}
	}
	panic(fmt.Sprintf("allocsim: block at %#x is not allocated", handle.Address))
}

// deactivate joins a block that nothing uses any more with its inactive
// neighbours and caches the whole (free_block).
func (a *Allocator) deactivate(i int32) {
	b := &a.blocks[i]
	pool, size, requested := b.pool, b.size, b.requested
	var splits int64 // net change of the inactive pieces of split segments
	var splitBytes tensor.Bytes
	set, at := a.freeSet(b), nowhere // of a neighbour, in whose place it comes
	for _, n := range [2]int32{b.prev, b.next} {
		if n == none || a.blocks[n].state != inactive {
			continue
		}
		if at != nowhere {
			set.removeAt(at)
		}
		joined, addr := a.blocks[n].size, a.blocks[n].addr
		at = set.search(joined, addr)
		a.join(i, n)
		splits--
		splitBytes -= joined
	}
	a.cacheAt(i, at)
	if b.isSplit() {
		splits++
		splitBytes += b.size
	}
	if b.segment == none {
		a.stats.InactiveSplit.change(pool, splits)
		a.stats.InactiveSplitBytes.change(pool, splitBytes)
	}
	a.stats.Active.sub(pool, 1)
	a.stats.ActiveBytes.sub(pool, size)
	a.stats.RequestedBytes.sub(pool, requested)
}

// EmptyCache is torch.cuda.empty_cache: it waits for pending blocks and returns
// to the device every segment, or granule of an expandable one, of which nothing
// is in use. An error comes from the driver.
func (a *Allocator) EmptyCache() error {
	err := a.releaseCached()
	a.checkInvariants()
	return err
}
