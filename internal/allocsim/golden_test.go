package allocsim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// golden is what PyTorch's allocator did with a trace. The oversize statistics
// were recorded as their current value only.
type golden struct {
	Expected struct {
		Stats
		OversizeAllocations int64           `json:"oversize_allocations"`
		OversizeSegments    int64           `json:"oversize_segments"`
		Driver              DriverCounters  `json:"driver"`
		OOMEvents           []int           `json:"oom_events"`
		Reserved            []tensor.Bytes  `json:"reserved"`
		Allocated           []tensor.Bytes  `json:"allocated"`
		Addr                []*tensor.Bytes `json:"addr"`
		Off                 []*tensor.Bytes `json:"off"`
	} `json:"expected"`
}

// TestGolden replays the recorded traces and compares every event.
func TestGolden(t *testing.T) {
	for _, path := range goldenPaths(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json.gz"), func(t *testing.T) {
			data := readGzip(t, path)
			var want golden
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			compareGolden(t, readTrace(t, data), &want)
		})
	}
}

// goldenPaths are the files of the recorded traces.
func goldenPaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(needs.File(t, "golden", "*.json.gz"))
	if err != nil || len(paths) != 44 {
		t.Fatalf("found %d golden traces, want 44 (%v)", len(paths), err)
	}
	return paths
}

func compareGolden(t *testing.T, f *trace.File, g *golden) {
	want := &g.Expected
	opts := replayOptions(t, f)
	opts.Series = true
	addr, off := make([]*tensor.Bytes, len(f.Events)), make([]*tensor.Bytes, len(f.Events))
	var p Replayer
	opts.observe = func(i int, b Block) {
		at := tensor.Bytes(b.Address - virtualBase)
		addr[i] = &at
		if !opts.Config.ExpandableSegments {
			head := b.index
			for p.allocator.blocks[head].prev != none {
				head = p.allocator.blocks[head].prev
			}
			inside := tensor.Bytes(b.Address - p.allocator.blocks[head].addr)
			off[i] = &inside
		}
	}
	r, err := p.Replay(f.Events, opts)
	if err != nil {
		t.Fatal(err)
	}
	failed := tensor.Bytes(-1)
	for i, oom := range r.OOMs {
		if i >= len(want.OOMEvents) || oom.Event != want.OOMEvents[i] {
			t.Fatalf("event %d: out of memory, want %v", oom.Event, want.OOMEvents)
		}
		addr[oom.Event] = &failed
	}
	if len(r.OOMs) != len(want.OOMEvents) {
		t.Errorf("out of memory %d times, want %v", len(r.OOMs), want.OOMEvents)
	}
	for i := range f.Events {
		if r.ReservedSeries[i] != want.Reserved[i] || r.AllocatedSeries[i] != want.Allocated[i] {
			t.Fatalf("event %d, %+v: reserved %d, allocated %d; want %d, %d", i, f.Events[i],
				r.ReservedSeries[i], r.AllocatedSeries[i], want.Reserved[i], want.Allocated[i])
		}
		if !samePlace(addr[i], want.Addr[i]) || !samePlace(off[i], want.Off[i]) {
			t.Fatalf("event %d, %+v: the block is elsewhere", i, f.Events[i])
		}
	}
	got := r.Stats
	if got.OversizeAllocations.Current != want.OversizeAllocations || got.OversizeSegments.Current != want.OversizeSegments {
		t.Errorf("oversize: %d allocations, %d segments; want %d, %d", got.OversizeAllocations.Current,
			got.OversizeSegments.Current, want.OversizeAllocations, want.OversizeSegments)
	}
	got.OversizeAllocations, got.OversizeSegments = Stat[int64]{}, Stat[int64]{}
	if got != want.Stats {
		t.Errorf("statistics\n got %+v\nwant %+v", got, want.Stats)
	}
	if r.Driver != want.Driver {
		t.Errorf("driver\n got %+v\nwant %+v", r.Driver, want.Driver)
	}
}

func samePlace(a, b *tensor.Bytes) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// TestRecorded replays recorded training steps and compares the peaks of every
// step.
func TestRecorded(t *testing.T) {
	data, err := os.ReadFile(needs.File(t, "truth-replay", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name  string `json:"name"`
		Steps []struct {
			PeakAllocated tensor.Bytes `json:"peak_allocated_bytes"`
			PeakReserved  tensor.Bytes `json:"peak_reserved_bytes"`
		} `json:"steps"`
		EndReserved    tensor.Bytes `json:"end_reserved_bytes"`
		Segments       int64        `json:"segments"`
		NumDeviceAlloc int64        `json:"num_device_alloc"`
		NumDeviceFree  int64        `json:"num_device_free"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			f := readTrace(t, readGzip(t, needs.File(t, "truth-replay", c.Name+".json.gz")))
			r, err := Replay(f.Events, replayOptions(t, f))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Steps) != len(c.Steps)+1 || r.Steps[0].Step != 0 {
				t.Fatalf("%d steps, want the set-up and %d", len(r.Steps), len(c.Steps))
			}
			for i, want := range c.Steps {
				got := r.Steps[i+1]
				if got.PeakAllocated.Allocated != want.PeakAllocated || got.PeakReserved.Reserved != want.PeakReserved {
					t.Errorf("step %d: peaks %d allocated, %d reserved; want %d, %d", got.Step,
						got.PeakAllocated.Allocated, got.PeakReserved.Reserved, want.PeakAllocated, want.PeakReserved)
				}
			}
			s := r.Stats
			if s.ReservedBytes.All.Current != c.EndReserved || s.Segment.All.Current != c.Segments ||
				s.NumDeviceAlloc != c.NumDeviceAlloc || s.NumDeviceFree != c.NumDeviceFree {
				t.Errorf("at the end: %+v, want %+v", s, c)
			}
		})
	}
}

func readGzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readTrace(t testing.TB, data []byte) *trace.File {
	t.Helper()
	f, err := trace.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// replayOptions returns the circumstances of a recorded trace.
func replayOptions(t testing.TB, f *trace.File) ReplayOptions {
	t.Helper()
	cfg, err := ParseConfig(f.Config, torchver.Recorded)
	if err != nil {
		t.Fatal(err)
	}
	return ReplayOptions{Config: cfg, Capacity: f.Capacity, MemoryFraction: f.MemoryFraction}
}
