package allocsim

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// Short forms of events, for tables.
func alloc(id int32, n tensor.Bytes) trace.Event {
	return trace.Event{Kind: trace.Alloc, ID: id, Bytes: n}
}
func free(id int32) trace.Event { return trace.Event{Kind: trace.Free, ID: id} }

func inStep(step int32, events ...trace.Event) []trace.Event {
	for i := range events {
		events[i].Step = step
	}
	return events
}

func TestReplayPeaks(t *testing.T) {
	const mib = tensor.MiB
	events := slices.Concat(
		inStep(0, alloc(1, 30*mib)),
		inStep(1, alloc(2, 40*mib), alloc(3, 300), free(2)),
		inStep(2, free(3), alloc(4, 30*mib), alloc(5, 50*mib), free(5), alloc(6, 50*mib), free(6)),
		inStep(3, free(4)),
	)
	r, err := Replay(events, ReplayOptions{Series: true})
	if err != nil {
		t.Fatal(err)
	}
	if m := r.PeakAllocated; m.Event != 6 || m.Allocated != 110*mib || m.Requested != 110*mib || m.Reserved != 122*mib {
		t.Errorf("peak allocated %+v", m)
	}
	if m := r.PeakReserved; m.Event != 6 || m.Reserved != 122*mib {
		t.Errorf("peak reserved %+v", m)
	}
	type row struct{ step, begin, end, at int }
	var rows []row
	for _, s := range r.Steps {
		rows = append(rows, row{s.Step, s.Begin, s.End, s.PeakAllocated.Event})
	}
	// Step 3 frees only: its peak is what step 2 left.
	if want := []row{{0, 0, 1, 0}, {1, 1, 4, 2}, {2, 4, 10, 6}, {3, 10, 11, 9}}; !slices.Equal(rows, want) {
		t.Errorf("steps %v, want %v", rows, want)
	}
	last := r.Steps[3]
	if last.PeakAllocated.Allocated != 60*mib || last.EndAllocated != 30*mib || last.EndReserved != 122*mib {
		t.Errorf("last step %+v", last)
	}
	if got := LiveAt(events, r.PeakAllocated.Event); !slices.Equal(got, []int{0, 5, 6}) {
		t.Errorf("live at the peak: %v", got)
	}
	if got := LiveAt(events, 1000); !slices.Equal(got, []int{0}) {
		t.Errorf("live at the end: %v", got)
	}
	if got := LiveAt(events, -1); len(got) != 0 {
		t.Errorf("live before the first event: %v", got)
	}
	if len(r.ReservedSeries) != len(events) || r.AllocatedSeries[6] != r.PeakAllocated.Allocated {
		t.Errorf("series %v, %v", r.ReservedSeries, r.AllocatedSeries)
	}
}

// TestReplayResetPeaks tells the peaks that PyTorch would report, which events
// may reset, from those of the trace.
func TestReplayResetPeaks(t *testing.T) {
	events := slices.Concat(
		inStep(1, alloc(1, 4*tensor.MiB), free(1)),
		inStep(2, trace.Event{Kind: trace.ResetPeaks}, alloc(2, 2*tensor.MiB)),
		inStep(3, free(2), alloc(3, tensor.MiB)),
	)
	r, err := Replay(events, ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Stats.AllocatedBytes.All.Peak; got != 2*tensor.MiB {
		t.Errorf("peak since the reset %v", got)
	}
	if m := r.PeakAllocated; m.Event != 0 || m.Allocated != 4*tensor.MiB {
		t.Errorf("peak of the trace %+v", m)
	}
	if m := r.Steps[1].PeakAllocated; m.Allocated != 2*tensor.MiB || m.Event != 3 {
		t.Errorf("peak of step 2 %+v", m)
	}
}

func TestReplayOOM(t *testing.T) {
	events := []trace.Event{alloc(1, 30*tensor.MiB), alloc(2, 80*tensor.MiB), free(2), alloc(3, 20*tensor.MiB), alloc(4, 60*tensor.MiB)}
	r, err := Replay(events, ReplayOptions{Capacity: 100 * tensor.MiB, Device: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.OOMs) != 2 || r.OOMs[0].Event != 1 || r.OOMs[1].Event != 4 || r.Events != 5 || r.Stats.NumOOMs != 2 {
		t.Errorf("%+v", r)
	}
	if e := r.OOMs[0].Err; e.Requested != 80*tensor.MiB || e.Device != 3 || e.Free != 70*tensor.MiB {
		t.Errorf("%+v", e)
	}
	half := 0.5
	r, err = Replay(events, ReplayOptions{Capacity: 100 * tensor.MiB, MemoryFraction: &half, StopAtOOM: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.OOMs) != 1 || r.Events != 2 || r.Steps[0].End != 2 || r.OOMs[0].Err.Limit != 50*tensor.MiB {
		t.Errorf("%+v", r)
	}
}

func TestReplayRefuses(t *testing.T) {
	two := 2.0
	for _, c := range []struct {
		events []trace.Event
		opts   ReplayOptions
		want   string
	}{
		{[]trace.Event{alloc(1, 1), alloc(1, 1)}, ReplayOptions{}, "event 1: block 1 is allocated twice"},
		{[]trace.Event{alloc(1, 1), free(1), alloc(1, 1)}, ReplayOptions{}, "event 2: block 1 is allocated twice"},
		{[]trace.Event{alloc(2, 1)}, ReplayOptions{}, "event 0: allocation of block 2; allowed are"},
		{[]trace.Event{alloc(0, 1)}, ReplayOptions{}, "event 0: allocation of block 0"},
		{[]trace.Event{alloc(-1, 1)}, ReplayOptions{}, "event 0: allocation of block -1"},
		{[]trace.Event{alloc(1, -1)}, ReplayOptions{}, "event 0: allocation of -1 bytes"},
		{[]trace.Event{{Kind: trace.Alloc, ID: 1, Bytes: 1, Stream: -1}}, ReplayOptions{}, "event 0: allocation of 1 bytes on stream -1"},
		{[]trace.Event{free(1)}, ReplayOptions{}, "event 0: free of block 1, which was never allocated"},
		{[]trace.Event{free(-7)}, ReplayOptions{}, "event 0: free of block -7, which was never"},
		{[]trace.Event{alloc(1, 1), free(1), free(1)}, ReplayOptions{}, "event 2: free of block 1, which was freed before"},
		{[]trace.Event{{Kind: 77}}, ReplayOptions{}, "event 0: unknown kind 77"},
		{nil, ReplayOptions{MemoryFraction: &two}, "memory fraction is 2; allowed is a number from 0 to 1"},
	} {
		if _, err := Replay(c.events, c.opts); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.events, err, c.want)
		}
	}
}

// TestReplayerReuse checks that a used Replayer gives the results of a fresh one.
func TestReplayerReuse(t *testing.T) {
	var used Replayer
	for _, name := range []string{"05_edge", "31_oom", "22_streams", "00_grow", "23_oom"} {
		f := readTrace(t, readGzip(t, needs.File(t, "golden", name+".json.gz")))
		opts := replayOptions(t, f)
		opts.Series = true
		got, err := used.Replay(f.Events, opts)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Replay(f.Events, opts)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: a used replayer gives another result", name)
		}
	}
}

// TestReset does the same with an allocator.
func TestReset(t *testing.T) {
	cfg, err := ParseConfig("max_split_size_mb:32", torchver.Recorded)
	if err != nil {
		t.Fatal(err)
	}
	d := NewVirtualDriver(0)
	a, err := New(cfg, d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	run := func() string {
		for _, n := range []tensor.Bytes{300, 5 * tensor.MiB, 40 * tensor.MiB, 700} {
			b, err := a.Alloc(n, 0)
			if err != nil {
				t.Fatal(err)
			}
			if n > tensor.MiB {
				a.Free(b)
			}
		}
		var dump bytes.Buffer
		if err := a.Dump(&dump); err != nil {
			t.Fatal(err)
		}
		return dump.String()
	}
	first := run()
	d.reset(0, 0)
	if err := a.Reset(); err != nil {
		t.Fatal(err)
	}
	if second := run(); second != first {
		t.Errorf("after Reset:\n%s\nbefore:\n%s", second, first)
	}
}

func TestSimulationJSON(t *testing.T) {
	r, err := Replay([]trace.Event{alloc(1, 3*tensor.MiB), alloc(2, 700*tensor.MiB), free(1)},
		ReplayOptions{Capacity: 100 * tensor.MiB, Series: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(r.Simulation())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"memplan_simulation":1,` +
		`"allocated":{"current_bytes":0,"peak_bytes":3145728},` +
		`"reserved":{"current_bytes":20971520,"peak_bytes":20971520},` +
		`"active":{"current_bytes":0,"peak_bytes":3145728},` +
		`"requested":{"current_bytes":0,"peak_bytes":3145728},` +
		`"inactive_split":{"current_bytes":0,"peak_bytes":17825792},` +
		`"segments":1,"num_alloc_retries":1,"num_ooms":1,"num_device_alloc":1,"num_device_free":0,"oom_events":[1],` +
		`"series":{"reserved_bytes":[20971520,20971520,20971520],"allocated_bytes":[3145728,3145728,0]}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r, err = Replay(nil, ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err = json.Marshal(r.Simulation())
	if err != nil || !strings.HasSuffix(string(got), `"oom_events":[]}`) {
		t.Errorf("of nothing: %s, %v", got, err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"events":[["a",1,5],["f",1]]}`), "", int64(0))
	f.Add([]byte(`{"events":[["a",1,5],["s",3],["a",2,99999999],["e"],["a",3,1125899906842624]]}`), "expandable_segments:True", int64(1e8))
	f.Fuzz(func(t *testing.T, data []byte, conf string, capacity int64) {
		file, err := trace.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		cfg, err := ParseConfig(conf, torchver.Recorded)
		if err != nil {
			return
		}
		r, err := Replay(file.Events, ReplayOptions{
			Config: cfg, Capacity: min(tensor.Bytes(capacity), 1<<36), MemoryFraction: file.MemoryFraction, Series: true,
		})
		if err != nil {
			t.Fatalf("a trace that reads does not replay: %v", err)
		}
		if r.Events != len(file.Events) || r.PeakReserved.Reserved < r.Stats.ReservedBytes.All.Peak {
			t.Errorf("%+v", r)
		}
	})
}

// TestReplayOccupied checks that what others hold is taken from what is free
// and not from the total, which a memory fraction counts from.
func TestReplayOccupied(t *testing.T) {
	events := []trace.Event{{Kind: trace.Alloc, ID: 1, Bytes: 44 * tensor.MiB}}
	replay := func(occupied tensor.Bytes, fraction float64) *Result {
		r, err := Replay(events, ReplayOptions{Capacity: 100 * tensor.MiB, Occupied: occupied, MemoryFraction: &fraction})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := replay(56*tensor.MiB, 1); len(r.OOMs) != 0 {
		t.Errorf("44 MiB of 100 do not fit beside 56: %v", r.OOMs[0].Err)
	}
	r := replay(58*tensor.MiB, 1)
	if len(r.OOMs) != 1 {
		t.Fatal("44 MiB of 100 fit beside 58")
	}
	if e := r.OOMs[0].Err; e.Capacity != 100*tensor.MiB || e.Free != 42*tensor.MiB {
		t.Errorf("capacity %v and free %v, want 100 and 42 MiB", e.Capacity, e.Free)
	}
	if r := replay(0, 0.44); len(r.OOMs) != 0 {
		t.Errorf("44 MiB of 100 do not fit in a fraction of 0.44: %v", r.OOMs[0].Err)
	}
	if r := replay(0, 0.43); len(r.OOMs) != 1 {
		t.Error("44 MiB of 100 fit in a fraction of 0.43")
	}
}

// TestReplayMayFail: a request that may fail is no OOM, and its block is not there.
func TestReplayMayFail(t *testing.T) {
	const mib = tensor.MiB
	events := []trace.Event{alloc(1, 30*mib), alloc(2, 100*mib), free(2), alloc(3, 20*mib)}
	opts := ReplayOptions{Capacity: 64 * mib, StopAtOOM: true}
	r, err := Replay(events, opts)
	if err != nil || len(r.OOMs) != 1 || r.Events != 2 {
		t.Errorf("%d OOMs after %d events, error %v; want one after 2", len(r.OOMs), r.Events, err)
	}
	opts.MayFail = func(event int) bool { return event == 1 }
	r, err = Replay(events, opts)
	if err != nil || len(r.OOMs) != 0 || r.PeakReserved.Reserved != 50*mib {
		t.Errorf("%d OOMs, %v reserved, error %v; want none and 50 MiB", len(r.OOMs), r.PeakReserved.Reserved, err)
	}
}

// What a replay looks at beside its events is counted.
func TestMeter(t *testing.T) {
	var events []trace.Event
	const n = 4000
	for i := range int32(n) {
		events = append(events, trace.Event{Kind: trace.Alloc, ID: i + 1, Bytes: 512})
	}
	for i := range int32(n / 2) {
		events = append(events, trace.Event{Kind: trace.Free, ID: 2*i + 1})
	}
	for range n {
		events = append(events, trace.Event{Kind: trace.EmptyCache})
	}
	b := limit.New(t.Context(), limit.Limits{})
	defer b.Close()
	m := b.Meter()
	if _, err := Replay(events, ReplayOptions{Meter: m}); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if b.Work() < n*n/2 {
		t.Errorf("%d steps of work for %d looks at %d blocks", b.Work(), n, n/2)
	}
}
