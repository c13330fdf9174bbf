package allocsim

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

var propertySeed = flag.Uint64("seed", 0, "run the property tests with this seed only")

// forSeeds runs a property test with n seeds, or with the one of -seed.
func forSeeds(t *testing.T, n uint64, f func(t *testing.T, r *rand.Rand)) {
	first, last := uint64(1), n
	if *propertySeed != 0 {
		first, last = *propertySeed, *propertySeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f(t, rand.New(rand.NewPCG(seed, 0)))
			if t.Failed() {
				t.Logf("again with: go test -run '%s' . -seed=%d", t.Name(), seed)
			}
		})
	}
}

// randomConfig draws a configuration; each option is at its default half of the
// time, so that combinations of few options are common.
func randomConfig(r *rand.Rand) Config {
	var c Config
	maybe := func() bool { return r.IntN(2) == 0 }
	if maybe() {
		c.MaxSplitSize = tensor.Bytes(21+r.IntN(200)) * tensor.MiB
	}
	if maybe() {
		c.MaxNonSplitRounding = tensor.Bytes(21+r.IntN(100)) * tensor.MiB
	}
	if maybe() {
		for i := range c.RoundupPower2Divisions {
			c.RoundupPower2Divisions[i] = r.IntN(2) << r.IntN(6)
		}
	}
	if maybe() {
		c.GarbageCollectionThreshold = 0.05 + 0.9*r.Float64()
	}
	c.ExpandableSegments = maybe()
	if maybe() {
		f := 0.3 + 0.7*r.Float64()
		c.MemoryFraction = &f
	}
	return c
}

// randomSize spreads sizes over the orders of magnitude, with many at the edges
// where the rules change.
func randomSize(r *rand.Rand) tensor.Bytes {
	if r.IntN(4) == 0 {
		edges := []tensor.Bytes{512, tensor.MiB, 2 * tensor.MiB, 10 * tensor.MiB, 20 * tensor.MiB, 32 * tensor.MiB}
		steps := []tensor.Bytes{0, 1, 511, 512, tensor.MiB}
		return max(1, edges[r.IntN(len(edges))]+tensor.Bytes(r.IntN(3)-1)*steps[r.IntN(len(steps))])
	}
	return tensor.Bytes(math.Exp(r.Float64()*math.Log(float64(60*tensor.MiB)))) + 1
}

// model is what a program knows of its memory: the blocks that it holds.
type model struct {
	t    *testing.T
	a    *Allocator
	d    *VirtualDriver
	live []liveBlock
}

type liveBlock struct {
	Block
	requested tensor.Bytes
	stream    int16
}

// check compares the allocator with the model.
func (m *model) check() {
	t := m.t
	s := m.a.Stats()
	_, capacity := m.d.MemInfo()
	if !(s.AllocatedBytes.All.Current <= s.ActiveBytes.All.Current &&
		s.ActiveBytes.All.Current <= s.ReservedBytes.All.Current && s.ReservedBytes.All.Current <= capacity) {
		t.Fatalf("allocated %v ≤ active %v ≤ reserved %v ≤ capacity %v does not hold", s.AllocatedBytes.All.Current,
			s.ActiveBytes.All.Current, s.ReservedBytes.All.Current, capacity)
	}
	if used := m.d.Counters().Used; used != s.ReservedBytes.All.Current {
		t.Fatalf("the device has given %d bytes, %d are reserved", used, s.ReservedBytes.All.Current)
	}

	// Segments are tiled by their blocks, and do not overlap.
	held := map[Address]BlockInfo{}
	streams := map[Address]int16{}
	var reserved tensor.Bytes
	var end Address
	for _, seg := range m.a.Snapshot() {
		if seg.Address < end {
			t.Fatalf("the segment at %#x overlaps the one before", seg.Address)
		}
		at := seg.Address
		for _, b := range seg.Blocks {
			if b.Address != at {
				t.Fatalf("a block is at %#x, the one before ends at %#x", b.Address, at)
			}
			at += Address(b.Size)
			if b.State == blockStateNames[active] {
				held[b.Address] = b
				streams[b.Address] = seg.Stream
			}
		}
		if at != seg.Address+Address(seg.TotalSize) {
			t.Fatalf("the segment at %#x has %d bytes, its blocks end at %#x", seg.Address, seg.TotalSize, at)
		}
		end = at
		reserved += seg.TotalSize
	}
	if reserved != s.ReservedBytes.All.Current {
		t.Fatalf("segments have %d bytes, %d are reserved", reserved, s.ReservedBytes.All.Current)
	}

	// The active blocks are those that the program holds.
	var allocated tensor.Bytes
	for _, l := range m.live {
		b, ok := held[l.Address]
		if !ok || b.RequestedSize != l.requested || b.Size < l.requested || streams[l.Address] != l.stream {
			t.Fatalf("the program holds %+v, the allocator %+v", l, b)
		}
		allocated += b.Size
	}
	if len(held) != len(m.live) || allocated != s.AllocatedBytes.All.Current {
		t.Fatalf("the program holds %d blocks of %d bytes, the allocator %d blocks, %d bytes", len(m.live), allocated,
			len(held), s.AllocatedBytes.All.Current)
	}
}

// TestRandomPrograms runs random programs under random options.
func TestRandomPrograms(t *testing.T) {
	forSeeds(t, 60, func(t *testing.T, r *rand.Rand) {
		cfg := randomConfig(r)
		capacity := tensor.Bytes(100+r.IntN(900)) * tensor.MiB
		t.Logf("conf %q, capacity %v", cfg, capacity)
		d := NewVirtualDriver(capacity)
		events := &fakeEvents{busy: map[int16]bool{}}
		a, err := New(cfg, d, Options{Events: events})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{t: t, a: a, d: d}
		for i := range 2000 {
			switch op := r.IntN(100); {
			case op < 48:
				l := liveBlock{requested: randomSize(r), stream: int16(r.IntN(3))}
				if l.Block, err = a.Alloc(l.requested, l.stream); err == nil {
					m.live = append(m.live, l)
				} else if oom := (*OOMError)(nil); !errors.As(err, &oom) {
					t.Fatal(err)
				}
			case op < 94 && len(m.live) > 0:
				j := r.IntN(len(m.live))
				a.Free(m.live[j].Block)
				m.live = slices.Delete(m.live, j, j+1)
			case op < 97 && len(m.live) > 0:
				a.RecordStream(m.live[r.IntN(len(m.live))].Block, int16(r.IntN(4)))
			case op < 98:
				events.busy[int16(r.IntN(4))] = true
			case op < 99:
				delete(events.busy, int16(r.IntN(4)))
			default:
				if err := a.EmptyCache(); err != nil {
					t.Fatal(err)
				}
			}
			if i%50 == 0 {
				m.check()
			}
		}
		for _, l := range m.live {
			a.Free(l.Block)
		}
		m.live = nil
		m.check()
		if s := a.Stats(); s.AllocatedBytes.All.Current != 0 || s.Allocation.All.Current != 0 {
			t.Errorf("all is freed, but %d bytes are allocated", s.AllocatedBytes.All.Current)
		}
		if err := a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		s := a.Stats()
		if s.ReservedBytes.All.Current != 0 || s.ActiveBytes.All.Current != 0 || s.RequestedBytes.All.Current != 0 ||
			s.InactiveSplitBytes.All.Current != 0 || s.Segment.All.Current != 0 || len(a.Snapshot()) != 0 {
			t.Errorf("all is freed and the cache empty, but: %+v", s)
		}
		// An expandable segment into which nothing could ever be mapped is kept.
		if !cfg.ExpandableSegments && (len(d.gaps) != 1 || d.gaps[0] != span{virtualBase, virtualSpan}) {
			t.Errorf("address space is in use: %+v", d.gaps)
		}
	})
}

// TestFreeSet compares the set with a sorted slice.
func TestFreeSet(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, r *rand.Rand) {
		var s freeSet
		var want []freeEntry
		compare := func(a, b freeEntry) int {
			switch {
			case a.isBelow(b.size, b.addr):
				return -1
			case b.isBelow(a.size, a.addr):
				return 1
			}
			return 0
		}
		target := []int{10, 300, 3000}[r.IntN(3)]
		for i := range 20_000 {
			if i%5000 == 4999 {
				s.clear()
				want = nil
			}
			gone := len(want) > 0 && r.IntN(2*target) < len(want)
			at := nowhere // of what goes or changes
			if gone || len(want) > 0 && r.IntN(2) == 0 {
				j := r.IntN(len(want))
				at = s.search(want[j].size, want[j].addr)
				want = slices.Delete(want, j, j+1)
			}
			if gone {
				s.removeAt(at)
			} else {
				e := freeEntry{tensor.Bytes(1 + r.IntN(target)), Address(i), int32(i)}
				if at == nowhere {
					s.insert(e.size, e.addr, e.block)
				} else {
					s.change(at, e.size, e.addr, e.block)
				}
				j, _ := slices.BinarySearchFunc(want, e, compare)
				want = slices.Insert(want, j, e)
			}
			size := tensor.Bytes(r.IntN(target + 2))
			j, _ := slices.BinarySearchFunc(want, freeEntry{size: size}, compare)
			p := s.atLeast(size)
			if got := s.get(p); j == len(want) != (got == none) || j < len(want) && got != want[j].block {
				t.Fatalf("step %d: the best fit for %d is %d", i, size, got)
			}
			if j+1 < len(want) {
				if got := s.get(s.next(p)); got != want[j+1].block {
					t.Fatalf("step %d: the next after it is %d, want %d", i, got, want[j+1].block)
				}
			}
			if last := s.last(); len(want) == 0 != (last == none) || len(want) > 0 && last != want[len(want)-1].block {
				t.Fatalf("step %d: the largest is %d", i, last)
			}
		}
		for i, b := range s.appendTo(nil) {
			if b != want[i].block {
				t.Fatalf("entry %d is %d, want %d", i, b, want[i].block)
			}
		}
	})
}
