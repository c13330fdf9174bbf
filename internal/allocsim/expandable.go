package allocsim

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// expandableSegment is a reservation of address space for the blocks of one
// stream and pool. Memory is mapped into it granule by granule. Which granules
// are mapped follows from the blocks: an unmapped block is a run of whole
// granules, and so is the space between two of them.
type expandableSegment struct {
	addr    Address
	size    tensor.Bytes
	granule tensor.Bytes
}

// ceil and floor round an address to the granules of the segment.
func (s *expandableSegment) ceil(at Address) Address {
	return s.addr + Address(tensor.Bytes(at-s.addr).CeilTo(s.granule))
}

func (s *expandableSegment) floor(at Address) Address {
	return at - (at-s.addr)%Address(s.granule)
}

// growExpandable takes the lowest place of the request's stream and pool whose
// free and unmapped space is large enough, reserving a new segment if there is
// none, and maps what is missing there. The block that it returns is in no set
// and may be larger than the request.
//
// Where several ranges must be mapped and memory runs out, those that are mapped
// by then stay so, as cached blocks.
func (a *Allocator) growExpandable(r *request) (int32, error) {
	i := a.findSpace(r)
	if i == none {
		var err error
		if i, err = a.reserveSegment(r); err != nil {
			return none, err
		}
	}
	if a.blocks[i].state == unmapped {
		if err := a.mapBlock(i, min(a.blocks[i].size, r.size)); err != nil {
			return none, err
		}
	}
	for a.blocks[i].size < r.size {
		// The block above is unmapped: two inactive neighbours would be one.
		// Mapping it joins i, and the sum goes by the upper block's index.
		missing, above := r.size-a.blocks[i].size, a.blocks[i].next
		if err := a.mapBlock(above, min(a.blocks[above].size, missing)); err != nil {
			return none, err
		}
		i = above
	}
	b := &a.blocks[i]
	a.freeSet(b).remove(b.size, b.addr)
	return i, nil
}

// findSpace returns the block, inactive or unmapped, from which a large enough
// run of such blocks starts (find_expandable_block). Every such run that is not
// one cached block has an unmapped block first or second, so those are looked
// at, by address.
func (a *Allocator) findSpace(r *request) int32 {
	for _, i := range a.stream(r.stream).unmapped[r.pool].blocks {
		if below := a.blocks[i].prev; below != none && a.blocks[below].isAvailable() {
			i = below
		}
		var run tensor.Bytes
		for j := i; j != none && run < r.size && a.blocks[j].isAvailable(); j = a.blocks[j].next {
			run += a.blocks[j].size
		}
		if run >= r.size {
			return i
		}
	}
	return none
}

// reserveSegment makes an expandable segment: address space for 9/8 of the
// device's memory, in whole granules, so that memory freed at the front can
// move to the end. It starts as one unmapped block.
func (a *Allocator) reserveSegment(r *request) (int32, error) {
	granule := smallBuffer
	if r.pool == largePool {
		granule = a.cfg.LargeSegmentSize
	}
	_, total := a.driver.MemInfo()
	size := (total + total/8).CeilTo(granule)
	addr, err := a.driver.Reserve(size)
	if err != nil {
		return none, err
	}
	a.segments = append(a.segments, expandableSegment{addr, size, granule})
	i := a.newBlock(block{
		addr: addr, size: size, prev: none, next: none,
		segment: int32(len(a.segments) - 1), uses: none, stream: r.stream, pool: r.pool, state: unmapped,
	})
	a.unmappedSet(&a.blocks[i]).insert(a, i)
	return i, nil
}

// mapBlock puts memory behind the first n bytes of an unmapped block, in whole
// granules, and caches the mapped part, joined with its inactive neighbours,
// under the block's index. It maps everything or nothing.
func (a *Allocator) mapBlock(i int32, n tensor.Bytes) error {
	b := &a.blocks[i]
	seg := &a.segments[b.segment]
	n = n.CeilTo(seg.granule)
	if err := a.driver.Map(b.addr, n, seg.granule); err != nil {
		return err
	}
	set := a.unmappedSet(b)
	set.remove(a, i)
	if n < b.size {
		rest := a.newBlock(block{
			addr: b.addr + Address(n), size: b.size - n, prev: i, next: b.next,
			segment: b.segment, uses: none, stream: b.stream, pool: b.pool, state: unmapped,
		})
		a.link(rest)
		set.insert(a, rest)
		b = &a.blocks[i]
		b.size = n
	}
	a.merge(i, b.prev, inactive)
	a.merge(i, b.next, inactive)
	a.cache(i)
	a.stats.ReservedBytes.add(b.pool, n)
	a.stats.NumDeviceAlloc++
	return nil
}

// releaseExpandable unmaps the granules that lie wholly in an inactive block;
// what is left of it at the edges stays cached. A segment without memory is
// given up.
func (a *Allocator) releaseExpandable(i int32) error {
	b := &a.blocks[i]
	seg := a.segments[b.segment]
	from, to := seg.ceil(b.addr), seg.floor(b.addr+Address(b.size))
	if from >= to {
		return nil
	}
	n := tensor.Bytes(to - from)
	if err := a.driver.Unmap(from, n, seg.granule); err != nil {
		return err
	}
	a.freeSet(b).remove(b.size, b.addr)
	edge := block{segment: b.segment, uses: none, stream: b.stream, pool: b.pool}
	if lower := edge; from > b.addr {
		lower.addr, lower.size = b.addr, tensor.Bytes(from-b.addr)
		lower.prev, lower.next = b.prev, i
		a.cacheEdge(lower)
		b = &a.blocks[i]
	}
	if upper := edge; b.addr+Address(b.size) > to {
		upper.addr, upper.size = to, b.size-tensor.Bytes(to-b.addr)
		upper.prev, upper.next = i, b.next
		a.cacheEdge(upper)
		b = &a.blocks[i]
	}
	b.addr, b.size, b.state = from, n, unmapped
	a.merge(i, b.prev, unmapped)
	a.merge(i, b.next, unmapped)
	a.unmappedSet(b).insert(a, i)
	a.stats.ReservedBytes.sub(b.pool, n)
	a.stats.NumDeviceFree++
	if b.isSplit() {
		return nil
	}
	a.unmappedSet(b).remove(a, i)
	a.dropBlock(i)
	return a.driver.Unreserve(seg.addr, seg.size)
}

// cacheEdge adds a piece that was cut off a block.
func (a *Allocator) cacheEdge(b block) {
	i := a.newBlock(b)
	a.link(i)
	a.cache(i)
}

// unmappedSet holds the unmapped blocks of one stream and pool, by address.
type unmappedSet struct {
	blocks []int32
}

func (s *unmappedSet) clear() { s.blocks = s.blocks[:0] }

// search returns the position of an address.
func (s *unmappedSet) search(a *Allocator, addr Address) int {
	at, _ := slices.BinarySearchFunc(s.blocks, addr, func(i int32, addr Address) int {
		return cmp.Compare(a.blocks[i].addr, addr)
	})
	return at
}

func (s *unmappedSet) insert(a *Allocator, i int32) {
	s.blocks = slices.Insert(s.blocks, s.search(a, a.blocks[i].addr), i)
}

func (s *unmappedSet) remove(a *Allocator, i int32) {
	at := s.search(a, a.blocks[i].addr)
	s.blocks = slices.Delete(s.blocks, at, at+1)
}
