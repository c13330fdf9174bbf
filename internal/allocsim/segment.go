package allocsim

import "github.com/memplan/memplan/internal/tensor"

// grow takes new memory from the device for a request (alloc_block) and returns
// it as a block that is in no set. An error that wraps ErrOutOfMemory may mean
// the memory fraction as well as the device.
func (a *Allocator) grow(r *request) (int32, error) {
	// The fraction is held against the size of a segment even where an expandable
	// one would map less.
	if a.limited && a.stats.ReservedBytes.All.Current+r.segment > a.limit {
		return none, ErrOutOfMemory
	}
	if a.cfg.ExpandableSegments {
		return a.growExpandable(r)
	}
	addr, err := a.driver.Malloc(r.segment)
	if err != nil {
		return none, err
	}
	a.stats.Segment.add(r.pool, 1)
	a.stats.ReservedBytes.add(r.pool, r.segment)
	a.stats.NumDeviceAlloc++
	if r.segment >= a.cfg.MaxSplitSize {
		a.stats.OversizeSegments.add(1)
	}
	return a.newBlock(block{
		addr: addr, size: r.segment, prev: none, next: none,
		segment: none, uses: none, stream: r.stream, pool: r.pool,
	}), nil
}

// release returns an inactive block that is a whole cudaMalloc segment to the
// device.
func (a *Allocator) release(i int32) error {
	b := a.blocks[i]
	a.freeSet(&b).remove(b.size, b.addr)
	a.dropBlock(i)
	a.stats.NumDeviceFree++
	a.stats.Segment.sub(b.pool, 1)
	a.stats.ReservedBytes.sub(b.pool, b.size)
	if b.size >= a.cfg.MaxSplitSize {
		a.stats.OversizeSegments.sub(1)
	}
	return a.driver.Free(b.addr, b.size)
}

// releaseOversize frees oversize segments of the request's stream and pool
// (release_available_cached_blocks): the smallest that alone is as large as the
// request, or else the largest ones until they are so together. It reports
// whether that was enough; what it freed stays freed if not. Without
// max_split_size there are no oversize segments, and blocks of expandable
// segments are passed over.
func (a *Allocator) releaseOversize(r *request) (bool, error) {
	limit := a.cfg.MaxSplitSize
	if limit == noSplitLimit || a.cfg.ExpandableSegments {
		return false, nil
	}
	key := max(r.size, limit)
	set := &a.stream(r.stream).free[r.pool]
	if i := set.get(set.atLeast(key)); i != none {
		return true, a.release(i)
	}
	var released tensor.Bytes
	for released < key {
		i := set.last()
		if i == none || a.blocks[i].size < limit {
			return false, nil
		}
		released += a.blocks[i].size
		if err := a.release(i); err != nil {
			return false, err
		}
	}
	return true, nil
}

// releaseCached waits for pending blocks, then returns every inactive segment
// to the device, and every granule of an expandable segment that lies wholly in
// an inactive block (release_cached_blocks). Pieces of segments that are in use
// stay: they cannot be given back.
func (a *Allocator) releaseCached() error {
	a.synchronizeEvents()
	for _, pool := range [...]int{largePool, smallPool} {
		a.scratch = a.scratch[:0]
		for s := range a.streams {
			a.scratch = a.streams[s].free[pool].appendTo(a.scratch)
		}
		a.looked += int64(len(a.scratch))
		for _, i := range a.scratch {
			var err error
			if a.blocks[i].segment != none {
				err = a.releaseExpandable(i)
			} else if !a.blocks[i].isSplit() {
				err = a.release(i)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// collect frees segments that have not been used for long, once more than the
// threshold is reserved (garbage_collect_cached_blocks). A block's age is the
// number of lookups in the large pool since it was cached. Each round frees all
// whole segments of at least the average age, until enough is freed; a round
// does not stop halfway. Nothing is waited for.
func (a *Allocator) collect() error {
	reserved := a.stats.ReservedBytes.All.Current
	threshold := tensor.Bytes(a.cfg.GarbageCollectionThreshold * float64(a.limit))
	if reserved <= threshold {
		return nil
	}
	target := reserved - threshold
	a.scratch = a.scratch[:0]
	for s := range a.streams {
		a.scratch = a.streams[s].free[largePool].appendTo(a.scratch)
	}
	a.looked += int64(len(a.scratch))
	var totalAge float64
	candidates := a.scratch[:0]
	for _, i := range a.scratch {
		if b := &a.blocks[i]; !b.isSplit() && b.segment == none {
			totalAge += float64(a.age(b))
			candidates = append(candidates, i)
		}
	}
	var reclaimed tensor.Bytes
	for freed := true; freed && reclaimed < target && len(candidates) > 0; {
		freed = false
		average := totalAge / float64(len(candidates))
		kept := candidates[:0]
		for _, i := range candidates {
			b := &a.blocks[i]
			if float64(a.age(b)) < average {
				kept = append(kept, i)
				continue
			}
			freed = true
			reclaimed += b.size
			totalAge -= float64(a.age(b))
			if err := a.release(i); err != nil {
				return err
			}
		}
		candidates = kept
	}
	return nil
}

func (a *Allocator) age(b *block) int64 { return a.lookups[b.pool] - b.gcBase }
