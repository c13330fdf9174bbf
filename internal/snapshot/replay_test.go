package snapshot

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/torchver"
)

// readAll reads the recorded snapshots, by name.
func readAll(t *testing.T) map[string]*Snapshot {
	t.Helper()
	paths, err := filepath.Glob(needs.File(t, "snapshots", "*.pickle.gz"))
	if err != nil || len(paths) != 21 {
		t.Fatalf("found %d snapshots, want 21 (%v)", len(paths), err)
	}
	out := map[string]*Snapshot{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Read(z)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, z); err != nil {
			t.Fatal(err)
		}
		f.Close()
		out[strings.TrimSuffix(filepath.Base(path), ".pickle.gz")] = s
	}
	return out
}

// TestReplay replays the events of each snapshot and compares what is reserved after each event, and
// the segments and blocks at the end.
func TestReplay(t *testing.T) {
	for name, s := range readAll(t) {
		for i := range s.Devices {
			t.Run(name, func(t *testing.T) { compareReplay(t, s, &s.Devices[i]) })
		}
	}
}

func compareReplay(t *testing.T, s *Snapshot, d *Device) {
	h, err := d.History()
	if err != nil {
		t.Fatal(err)
	}
	config, err := allocsim.ParseConfig(s.Config, torchver.Recorded)
	if err != nil {
		t.Fatal(err)
	}
	var p allocsim.Replayer
	r, err := p.Replay(h.Events, allocsim.ReplayOptions{Config: config, Capacity: h.Available, Held: h.Held, Series: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range h.Events {
		if r.ReservedSeries[i] != h.Reserved[i] {
			t.Fatalf("event %d, %+v (recorded %d): reserved %v, recorded %v", i, e, h.Of[i], r.ReservedSeries[i], h.Reserved[i])
		}
	}
	sameSegments(t, d.Segments, p.Snapshot())
	oom := 0
	for i := range d.Events {
		if d.Events[i].Action == OOM {
			oom++
		}
	}
	if len(r.OOMs) != oom {
		t.Errorf("out of memory %d times, recorded %d", len(r.OOMs), oom)
	}
}

// sameSegments compares segments and blocks, except a constant in their addresses, and how far
// expandable segments are apart: they reserve 9/8 of the device, whose size no snapshot tells.
func sameSegments(t *testing.T, want []Segment, got []allocsim.SegmentInfo) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d segments at the end, recorded %d", len(got), len(want))
	}
	states := []string{Inactive: "inactive", Allocated: "active_allocated", Pending: "active_allocated"}
	for i := range want {
		w, g := &want[i], &got[i]
		base := w.Address - want[0].Address
		if !w.Expandable && uint64(g.Address-got[0].Address) != base || g.TotalSize != w.Size || (g.SegmentType == "small") != w.Small || len(g.Blocks) != len(w.Blocks) {
			t.Fatalf("segment %d is at %#x, %d bytes in %d blocks; recorded at %#x, %d bytes in %d blocks", i,
				g.Address-got[0].Address, g.TotalSize, len(g.Blocks), base, w.Size, len(w.Blocks))
		}
		for j := range w.Blocks {
			wb, gb := &w.Blocks[j], &g.Blocks[j]
			if uint64(gb.Address-g.Address) != wb.Address-w.Address || gb.Size != wb.Size || gb.State != states[wb.State] ||
				wb.State != Inactive && gb.RequestedSize != wb.Requested {
				t.Fatalf("segment %d, block %d: %+v, recorded %+v", i, j, *gb, *wb)
			}
		}
	}
}
