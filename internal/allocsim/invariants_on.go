//go:build invariants

package allocsim

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// checkInvariants panics if the state contradicts itself. It looks at every
// block after every operation, so it is for tests: go test -tags invariants.
func (a *Allocator) checkInvariants() {
	var have [pending + 1][numPools]struct {
		bytes, requested tensor.Bytes
		count            int64
	}
	var split [numPools]struct {
		bytes tensor.Bytes
		count int64
	}
	events := 0
	for i := range a.blocks {
		b := &a.blocks[i]
		if b.size == 0 { // a spare slot
			continue
		}
		a.checkBlock(int32(i))
		h := &have[b.state][b.pool]
		h.bytes += b.size
		h.requested += b.requested
		h.count++
		events += int(b.events)
		if b.state == inactive && b.segment == none && b.isSplit() {
			split[b.pool].bytes += b.size
			split[b.pool].count++
		}
	}
	if events != a.waiting {
		broken("blocks wait for %d events, the queues hold %d", events, a.waiting)
	}
	for p := range uint8(numPools) {
		act, pend := have[active][p], have[pending][p]
		s := &a.stats
		same(p, "allocated_bytes", s.AllocatedBytes, act.bytes)
		same(p, "active_bytes", s.ActiveBytes, act.bytes+pend.bytes)
		same(p, "requested_bytes", s.RequestedBytes, act.requested+pend.requested)
		same(p, "reserved_bytes", s.ReservedBytes, act.bytes+pend.bytes+have[inactive][p].bytes)
		same(p, "inactive_split_bytes", s.InactiveSplitBytes, split[p].bytes)
		same(p, "allocation", s.Allocation, act.count)
		same(p, "active", s.Active, act.count+pend.count)
		same(p, "inactive_split", s.InactiveSplit, split[p].count)
	}
	a.checkSets(have[inactive][smallPool].count+have[inactive][largePool].count,
		have[unmapped][smallPool].count+have[unmapped][largePool].count)
}

// checkBlock checks a block against its neighbours and its own state.
func (a *Allocator) checkBlock(i int32) {
	b := &a.blocks[i]
	if b.size%minBlockSize != 0 || b.size < 0 {
		broken("block %d has %d bytes", i, b.size)
	}
	if (b.state == pending) != (b.events > 0) {
		broken("block %d in state %d waits for %d events", i, b.state, b.events)
	}
	if b.uses != none && b.state != active {
		broken("block %d in state %d has stream uses", i, b.state)
	}
	if b.prev != none && a.blocks[b.prev].next != i {
		broken("block %d is not the next of its prev", i)
	}
	if b.next == none {
		return
	}
	n := &a.blocks[b.next]
	if n.prev != i || n.addr != b.addr+Address(b.size) {
		broken("blocks %d and %d do not tile", i, b.next)
	}
	if n.stream != b.stream || n.pool != b.pool || n.segment != b.segment {
		broken("blocks %d and %d share a segment but not its stream and pool", i, b.next)
	}
	if b.state == n.state && b.state <= inactive {
		broken("neighbours %d and %d are both in state %d", i, b.next, b.state)
	}
}

// checkSets checks that the sets hold the inactive and unmapped blocks, once
// and in order.
func (a *Allocator) checkSets(wantInactive, wantUnmapped int64) {
	for s := range a.streams {
		for p := range numPools {
			var last freeEntry
			for _, leaf := range a.streams[s].free[p].leaves {
				for _, e := range leaf {
					b := &a.blocks[e.block]
					if b.state != inactive || b.size != e.size || b.addr != e.addr || int(b.stream) != s || int(b.pool) != p {
						broken("block %d does not belong where it is cached", e.block)
					}
					if !last.isBelow(e.size, e.addr) {
						broken("cached block %d is out of order", e.block)
					}
					last = e
					wantInactive--
				}
			}
			at := Address(0)
			for _, i := range a.streams[s].unmapped[p].blocks {
				b := &a.blocks[i]
				if b.state != unmapped || b.addr <= at || int(b.stream) != s || int(b.pool) != p {
					broken("block %d does not belong to the unmapped ones", i)
				}
				at = b.addr
				wantUnmapped--
			}
		}
	}
	if wantInactive != 0 || wantUnmapped != 0 {
		broken("%d inactive and %d unmapped blocks are in no set", wantInactive, wantUnmapped)
	}
}

// same checks one pool of a statistic.
func same[Q Quantity](pool uint8, name string, s PoolStat[Q], want Q) {
	if got := s.of(pool); got.Current != want || got.Peak < got.Current || got.Allocated-got.Freed != got.Current {
		broken("%s of the %s pool is %+v, the blocks have %v", name, poolNames[pool], *got, want)
	}
	if s.All.Current != s.Small.Current+s.Large.Current {
		broken("%s of all is not the sum of the pools", name)
	}
}

func broken(format string, args ...any) {
	panic("allocsim: broken invariant: " + fmt.Sprintf(format, args...))
}
