package allocsim

import (
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// TestHeld holds that a replay which begins in the middle of a recording, with what the
// allocator held there, goes on as the replay of the whole.
func TestHeld(t *testing.T) {
	compared := 0
	for _, path := range goldenPaths(t) {
		f := readTrace(t, readGzip(t, path))
		opts := replayOptions(t, f)
		if opts.Config.GarbageCollectionThreshold > 0 {
			continue // ages of blocks are not in a snapshot
		}
		opts.Series = true
		whole, err := Replay(f.Events, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []int{1, 2, 3} {
			k := len(f.Events) * part / 4
			var p Replayer
			if _, err := p.Replay(f.Events[:k], opts); err != nil {
				t.Fatal(err)
			}
			held := p.allocator.Snapshot()
			if len(held) == 0 || held[0].Address != virtualBase || p.allocator.waiting > 0 {
				continue
			}
			rest, ok := renumbered(f.Events[k:], &p)
			if !ok {
				continue // it frees a block whose allocation failed
			}
			late := opts
			late.Held = held
			var q Replayer
			r, err := q.Replay(rest, late)
			if err != nil {
				t.Fatalf("%s from event %d: %v", path, k, err)
			}
			if !slices.Equal(r.ReservedSeries, whole.ReservedSeries[k:]) || !slices.Equal(r.AllocatedSeries, whole.AllocatedSeries[k:]) {
				t.Errorf("%s from event %d: memory is not as in the replay of the whole", path, k)
			}
			compared++
		}
	}
	if compared < 50 {
		t.Errorf("%d replays were compared, too few", compared)
	}
}

// renumbered are events for a replay that begins with the blocks of another at its end.
func renumbered(events []trace.Event, p *Replayer) ([]trace.Event, bool) {
	type life struct {
		id int32
		at Address
	}
	var live []life
	for id, s := range p.known {
		if s == alive {
			live = append(live, life{int32(id), p.live[id].Address})
		}
	}
	slices.SortFunc(live, func(a, b life) int { return int(int64(a.at) - int64(b.at)) })
	ids := map[int32]int32{}
	for _, l := range live {
		if l.at != 0 {
			ids[l.id] = int32(len(ids) + 1)
		}
	}
	out := slices.Clone(events)
	for i := range out {
		e := &out[i]
		switch e.Kind {
		case trace.Alloc:
			ids[e.ID] = int32(len(ids) + 1)
			e.ID = ids[e.ID]
		case trace.Free:
			if ids[e.ID] == 0 {
				return nil, false
			}
			e.ID = ids[e.ID]
		}
	}
	return out, true
}

// TestHeldElsewhere holds that the addresses of another machine are moved to the virtual device's.
func TestHeldElsewhere(t *testing.T) {
	held := []SegmentInfo{{
		Address: 0x302000000, TotalSize: 20 * tensor.MiB, SegmentType: "large",
		Blocks: []BlockInfo{
			{0x302000000, 4 * tensor.MiB, 4*tensor.MiB - 7, "active_allocated"},
			{0x302400000, 16 * tensor.MiB, 0, "inactive"},
		},
	}}
	var p Replayer
	r, err := p.Replay([]trace.Event{{Kind: trace.Alloc, ID: 2, Bytes: 8 * tensor.MiB}, {Kind: trace.Free, ID: 1}}, ReplayOptions{Held: held})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Stats
	if s.ReservedBytes.All.Current != 20*tensor.MiB || s.AllocatedBytes.All.Current != 8*tensor.MiB || s.AllocatedBytes.All.Peak != 12*tensor.MiB {
		t.Errorf("reserved %v, allocated %v, at most %v; want 20 MiB, 8 MiB and 12 MiB", s.ReservedBytes.All.Current, s.AllocatedBytes.All.Current, s.AllocatedBytes.All.Peak)
	}
}

// TestHeldWrong holds that what no snapshot can be is an error.
func TestHeldWrong(t *testing.T) {
	block := []BlockInfo{{1 << 45, 2 * tensor.MiB, 5, "active_allocated"}}
	for _, held := range [][]SegmentInfo{
		{{Address: 1 << 45, TotalSize: 2 * tensor.MiB, SegmentType: "medium", Blocks: block}},
		{{Address: 1 << 45, TotalSize: 2 * tensor.MiB, SegmentType: "small", Stream: -1, Blocks: block}},
		{{Address: 1 << 45, TotalSize: 2 * tensor.MiB, SegmentType: "small", Blocks: block}, {Address: 1<<45 + 512, TotalSize: 2 * tensor.MiB, SegmentType: "small", Blocks: block}},
	} {
		if _, err := Replay(nil, ReplayOptions{Held: held}); err == nil {
			t.Errorf("%+v: restored", held)
		}
	}
}
