package allocsim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// restore puts an allocator without memory into the state that Snapshot describes, and returns
// its blocks in use by address. Blocks that are pending are in use. What Snapshot does not describe
// is assumed: an expandable segment begins with the lowest of its mapped ranges, and cached blocks were
// cached just now, which the garbage collection would notice.
//
// Addresses are those of segments less a constant, so that they begin where the virtual device's do.
func (a *Allocator) restore(segments []SegmentInfo, d *VirtualDriver) ([]Block, error) {
	segments = slices.Clone(segments)
	slices.SortFunc(segments, func(x, y SegmentInfo) int { return cmp.Compare(x.Address, y.Address) })
	var used []Block
	var base Address
	reserved := map[streamPool]int32{} // the expandable segment, in a.segments
	last := map[int32]int32{}          // its last block
	for k := range segments {
		s := &segments[k]
		pool := slices.Index(poolNames[:], s.SegmentType)
		if pool < 0 || s.Stream < 0 {
			return nil, fmt.Errorf("the segment at %#x has type %q and stream %d", s.Address, s.SegmentType, s.Stream)
		}
		if k == 0 {
			base = s.Address - virtualBase
		}
		seg, prev := none, none
		at := s.Address - base
		if s.IsExpandable {
			var err error
			if seg, prev, err = a.restoreRange(s, at, uint8(pool), reserved, last, d); err != nil {
				return nil, err
			}
		} else if err := d.occupyAt(at, s.TotalSize); err != nil {
			return nil, err
		}
		for _, info := range s.Blocks {
			i := a.newBlock(block{
				addr: info.Address - base, size: info.Size, requested: info.RequestedSize, prev: prev, next: none,
				segment: seg, uses: none, stream: s.Stream, pool: uint8(pool), state: inactive,
			})
			a.link(i)
			prev = i
			if info.State != blockStateNames[inactive] {
				a.blocks[i].state = active
				used = append(used, Block{a.blocks[i].addr, i})
			}
		}
		if seg != none {
			last[seg] = prev
		} else {
			a.stats.Segment.add(uint8(pool), 1)
			if s.TotalSize >= a.cfg.MaxSplitSize {
				a.stats.OversizeSegments.add(1)
			}
		}
		a.stats.ReservedBytes.add(uint8(pool), s.TotalSize)
	}
	a.restoreRests(last)
	a.restoreBlocks()
	a.checkInvariants()
	return used, nil
}

// streamPool is what an expandable segment is for.
type streamPool struct {
	stream int16
	pool   uint8
}

// restoreRange maps a range of an expandable segment, and returns the segment and the block below the range.
func (a *Allocator) restoreRange(s *SegmentInfo, at Address, pool uint8, reserved map[streamPool]int32, last map[int32]int32, d *VirtualDriver) (seg, prev int32, _ error) {
	key := streamPool{s.Stream, pool}
	seg, ok := reserved[key]
	if ok {
		r := &a.segments[seg]
		ok = at+Address(s.TotalSize) <= r.addr+Address(r.size)
	}
	if !ok { // the first range of a segment
		granule := smallBuffer
		if pool == largePool {
			granule = a.cfg.LargeSegmentSize
		}
		_, total := d.MemInfo()
		size := max((total + total/8).CeilTo(granule), s.TotalSize)
		if err := d.reserveAt(at, size); err != nil {
			return none, none, err
		}
		a.segments = append(a.segments, expandableSegment{at, size, granule})
		seg = int32(len(a.segments) - 1)
		reserved[key], last[seg] = seg, none
	}
	r := &a.segments[seg]
	d.take(s.TotalSize/r.granule, r.granule.CeilTo(devicePage))
	prev = last[seg]
	end := r.addr
	if prev != none {
		end = a.blocks[prev].addr + Address(a.blocks[prev].size)
	}
	if end < at {
		gap := a.newBlock(block{
			addr: end, size: tensor.Bytes(at - end), prev: prev, next: none,
			segment: seg, uses: none, stream: s.Stream, pool: pool, state: unmapped,
		})
		a.link(gap)
		a.unmappedSet(a.withStream(gap)).insert(a, gap)
		prev = gap
	}
	return seg, prev, nil
}

// withStream is a block, whose stream has its state.
func (a *Allocator) withStream(i int32) *block {
	a.stream(a.blocks[i].stream)
	return &a.blocks[i]
}

// restoreRests adds what is unmapped at the end of expandable segments.
func (a *Allocator) restoreRests(last map[int32]int32) {
	for seg := range a.segments {
		r, prev := a.segments[seg], last[int32(seg)]
		b := a.blocks[prev]
		end := b.addr + Address(b.size)
		if all := r.addr + Address(r.size); end < all {
			i := a.newBlock(block{
				addr: end, size: tensor.Bytes(all - end), prev: prev, next: none,
				segment: int32(seg), uses: none, stream: b.stream, pool: b.pool, state: unmapped,
			})
			a.link(i)
			a.unmappedSet(a.withStream(i)).insert(a, i)
		}
	}
}

// restoreBlocks puts the blocks into their sets and counts them.
func (a *Allocator) restoreBlocks() {
	for i := range a.blocks {
		b := a.withStream(int32(i))
		switch b.state {
		case inactive:
			a.cache(int32(i))
			if b.isSplit() && b.segment == none {
				a.stats.InactiveSplit.add(b.pool, 1)
				a.stats.InactiveSplitBytes.add(b.pool, b.size)
			}
		case active:
			a.stats.Allocation.add(b.pool, 1)
			a.stats.AllocatedBytes.add(b.pool, b.size)
			a.stats.Active.add(b.pool, 1)
			a.stats.ActiveBytes.add(b.pool, b.size)
			a.stats.RequestedBytes.add(b.pool, b.requested)
			if b.size >= a.cfg.MaxSplitSize {
				a.stats.OversizeAllocations.add(1)
			}
		}
	}
}

// occupyAt is Malloc of a stated place, whatever the capacity.
func (d *VirtualDriver) occupyAt(a Address, n tensor.Bytes) error {
	n = n.CeilTo(devicePage)
	if err := d.reserveAt(a, n); err != nil {
		return err
	}
	d.take(1, n)
	return nil
}

// reserveAt is Reserve of a stated place.
func (d *VirtualDriver) reserveAt(a Address, n tensor.Bytes) error {
	n = n.CeilTo(devicePage)
	for i := range d.gaps {
		g := d.gaps[i]
		end := g.at + Address(g.size)
		if a < g.at || a+Address(n) > end {
			continue
		}
		below, above := span{g.at, tensor.Bytes(a - g.at)}, span{a + Address(n), tensor.Bytes(end - a - Address(n))}
		parts := []span{below, above}
		parts = slices.DeleteFunc(parts, func(s span) bool { return s.size == 0 })
		d.gaps = slices.Replace(d.gaps, i, i+1, parts...)
		return nil
	}
	return fmt.Errorf("%d bytes at %#x are in use, or outside of the address space", int64(n), a)
}
