package allocsim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// churn makes a trace that grows to about live blocks of up to largest bytes,
// their sizes spread evenly over the orders of magnitude, and then keeps
// replacing random ones. That is much harder than training: the free blocks
// are many, and no two alike.
func churn(seed uint64, events, live int, largest tensor.Bytes) []trace.Event {
	r := rand.New(rand.NewPCG(seed, 0))
	var out []trace.Event
	var ids []int32
	born := int32(0)
	for len(out) < events {
		if len(ids) < live/2 || len(ids) < live && r.IntN(2) == 0 {
			born++
			size := math.Exp(r.Float64() * math.Log(float64(largest)))
			out = append(out, trace.Event{Kind: trace.Alloc, ID: born, Bytes: tensor.Bytes(size) + 1})
			ids = append(ids, born)
			continue
		}
		i := r.IntN(len(ids))
		out = append(out, trace.Event{Kind: trace.Free, ID: ids[i]})
		ids[i] = ids[len(ids)-1]
		ids = ids[:len(ids)-1]
	}
	return out
}

// repeat strings copies of a trace of recorded steps together.
func repeat(events []trace.Event, atLeast int) []trace.Event {
	var out []trace.Event
	live := map[int32]bool{}
	born := int32(0)
	for len(out) < atLeast {
		first := born
		for _, e := range events {
			if e.ID != 0 {
				e.ID += first
				born = max(born, e.ID)
				live[e.ID] = e.Kind == trace.Alloc
			}
			out = append(out, e)
		}
		for id := first + 1; id <= born; id++ {
			if live[id] {
				out = append(out, trace.Event{Kind: trace.Free, ID: id, Step: events[len(events)-1].Step})
			}
		}
		clear(live)
	}
	return out
}

func benchmarkReplay(b *testing.B, events []trace.Event, opts ReplayOptions) {
	var p Replayer
	if _, err := p.Replay(events, opts); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Replay(events, opts); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// BenchmarkRecorded replays recorded training steps, 100,000 events of each.
func BenchmarkRecorded(b *testing.B) {
	paths, err := filepath.Glob(needs.File(b, "truth-replay", "*.json.gz"))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		f := readTrace(b, readGzip(b, path))
		b.Run(strings.TrimSuffix(filepath.Base(path), ".json.gz"), func(b *testing.B) {
			benchmarkReplay(b, repeat(f.Events, 100_000), replayOptions(b, f))
		})
	}
}

// BenchmarkGolden replays each golden trace.
func BenchmarkGolden(b *testing.B) {
	paths, err := filepath.Glob(needs.File(b, "golden", "*.json.gz"))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		f := readTrace(b, readGzip(b, path))
		b.Run(strings.TrimSuffix(filepath.Base(path), ".json.gz"), func(b *testing.B) {
			benchmarkReplay(b, f.Events, replayOptions(b, f))
		})
	}
}

// BenchmarkChurn replays random traces with ever more blocks.
func BenchmarkChurn(b *testing.B) {
	for _, live := range []int{100, 1000, 10_000, 100_000} {
		for _, largest := range []tensor.Bytes{tensor.MiB, 100 * tensor.MiB} {
			b.Run(fmt.Sprintf("live=%d/largest=%v", live, largest), func(b *testing.B) {
				benchmarkReplay(b, churn(1, 4*live+100_000, live, largest), ReplayOptions{})
			})
		}
	}
}

// TestNoGarbage holds the allocator to its promise: once its arenas have grown,
// no event allocates. It counts over whole replays, whose result is a handful
// of allocations whatever the number of events.
func TestNoGarbage(t *testing.T) {
	for _, conf := range []Config{
		{},
		{ExpandableSegments: true},
		{MaxSplitSize: 32 * tensor.MiB},
	} {
		events := churn(2, 20_000, 1000, 20*tensor.MiB)
		var p Replayer
		allocs := testing.AllocsPerRun(3, func() {
			if _, err := p.Replay(events, ReplayOptions{Config: conf}); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 10 {
			t.Errorf("%q: %v allocations for %d events, want at most 10 in all", conf, allocs, len(events))
		}
	}
}
