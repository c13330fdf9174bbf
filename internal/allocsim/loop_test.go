package allocsim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// TestLoopWithoutEnd holds a loop against the same events written out: random
// turns in which blocks of random sizes are born, most of which are freed in their turn
// or the next, and some never.
func TestLoopWithoutEnd(t *testing.T) {
	for seed := range uint64(50) {
		turn := randomTurn(rand.New(rand.NewPCG(seed, 1)), true)
		const turns = 40
		all, ends := written(turn, turns)
		begin, end := ends[1], ends[2]
		opts := ReplayOptions{Capacity: 96 * tensor.MiB, StopAtOOM: true}
		opts.Config.ExpandableSegments = seed%2 == 1
		full, err := Replay(all, opts)
		if err != nil {
			t.Fatal(err)
		}
		l := trace.Loop{Begin: begin, End: end, Steps: 1}
		for i := begin; i < end; i++ { // a turn frees blocks of the one before
			if e := all[i]; e.Kind == trace.Free && e.ID <= 2*turnBlocks {
				l.Names = append(l.Names, trace.Rename{From: e.ID + turnBlocks, To: e.ID})
			}
		}
		opts.Loops, opts.LoopEvents = []trace.Loop{l}, int64(len(all)-end)
		looped, err := Replay(all[:end], opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(full.OOMs) != len(looped.OOMs) || full.Stats.ReservedBytes.All.Current != looped.Stats.ReservedBytes.All.Current && len(full.OOMs) > 0 {
			t.Fatalf("seed %d: %d OOMs, %d reserved; written out %d and %d", seed, len(looped.OOMs), looped.Stats.ReservedBytes.All.Current,
				len(full.OOMs), full.Stats.ReservedBytes.All.Current)
		}
		if len(full.OOMs) > 0 {
			a, b := full.OOMs[0], looped.OOMs[0]
			if at := b.Event + int(b.Ahead)*len(turn); at != a.Event || *a.Err != *b.Err {
				t.Errorf("seed %d: event %d, %v; written out %d, %v", seed, at, b.Err, a.Event, a.Err)
			}
		}
	}
}

// TestLoops holds loops in loops against the same events written out: after some
// turns of one kind a turn of another, and all of it again. Peaks, and what follows
// the loops, are the same; most of the turns are not replayed, as nothing changes in
// them any more.
func TestLoops(t *testing.T) {
	needs.Time(t, needs.Alone)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		often, rare := randomTurn(r, false), randomTurn(r, false)
		inner, outer := int64(1+r.IntN(60)), int64(1+r.IntN(60))
		var all, short []trace.Event
		var loops []trace.Loop
		var last map[int32]int32 // by number in its turn: the block of the last turn
		id := int32(0)
		add := func(to *[]trace.Event, turn []trace.Event) {
			now := map[int32]int32{}
			for _, e := range turn {
				switch {
				case e.Kind == trace.Alloc:
					id++
					now[e.ID] = id
					e.ID = id
				case e.ID <= 0:
					if e.ID = last[e.ID+turnBlocks]; e.ID == 0 {
						continue
					}
				default:
					e.ID = now[e.ID]
				}
				*to = append(*to, e)
			}
			last = now
		}
		for range outer + 1 {
			add(&all, rare)
			for range inner + 2 {
				add(&all, often)
			}
		}
		add(&all, rare)
		id, last = 0, nil
		loop := func(begin int, turns, steps int64) {
			l := trace.Loop{Begin: begin, End: len(short), Turns: turns, Steps: steps}
			to := liveNames(short[:begin])
			for i, from := range liveNames(short) {
				l.Names = append(l.Names, trace.Rename{From: from, To: to[i]})
			}
			loops = append(loops, l)
		}
		for range 2 { // the first turn of all finds nothing to free
			add(&short, rare)
			add(&short, often)
			add(&short, often)
			loop(len(short)-len(often), inner, 1)
		}
		if outer > 1 {
			loop(loops[0].End, outer-1, inner+3)
		}
		add(&short, rare)
		opts := ReplayOptions{}
		opts.Config.ExpandableSegments = seed%2 == 1
		if seed%3 == 0 {
			opts.Capacity, opts.StopAtOOM = 32*tensor.MiB, true
		}
		full, err := Replay(all, opts)
		if err != nil {
			t.Fatal(err)
		}
		opts.Loops = loops
		looped, err := Replay(short, opts)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		a, b := full.PeakReserved, looped.PeakReserved
		if full.PeakAllocated.Allocated != looped.PeakAllocated.Allocated || a.Reserved != b.Reserved || len(full.OOMs) != len(looped.OOMs) {
			t.Errorf("seed %d: %d allocated, %d reserved, %d OOMs; written out %d, %d, %d", seed, looped.PeakAllocated.Allocated, b.Reserved, len(looped.OOMs),
				full.PeakAllocated.Allocated, a.Reserved, len(full.OOMs))
		}
		if f, l := &full.Stats, &looped.Stats; f.ReservedBytes.All.Current != l.ReservedBytes.All.Current || f.AllocatedBytes.All.Current != l.AllocatedBytes.All.Current ||
			f.NumAllocRetries != l.NumAllocRetries {
			t.Errorf("seed %d: at the end %d allocated, %d reserved, %d retries; written out %d, %d, %d", seed,
				l.AllocatedBytes.All.Current, l.ReservedBytes.All.Current, l.NumAllocRetries, f.AllocatedBytes.All.Current, f.ReservedBytes.All.Current, f.NumAllocRetries)
		}
	}
}

// A turn of a loop that finds the allocator as the events found it that it repeats is not
// replayed.
func TestLoopKnown(t *testing.T) {
	alloc := func(id int32, n tensor.Bytes) trace.Event {
		return trace.Event{Kind: trace.Alloc, ID: id, Bytes: n}
	}
	free := func(id int32) trace.Event { return trace.Event{Kind: trace.Free, ID: id} }
	for _, test := range []struct {
		name   string
		events []trace.Event
		begin  int
		turns  int64
	}{
		{"the first finds all free", []trace.Event{alloc(1, 5<<20), free(1), alloc(2, 3<<20), free(2)}, 2, 0},
		{"the cache is another", []trace.Event{alloc(1, 5<<20), free(1), alloc(2, 30<<20), free(2)}, 2, 1},
	} {
		r, err := Replay(test.events, ReplayOptions{Loops: []trace.Loop{{Begin: test.begin, End: len(test.events), Steps: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Turns != test.turns {
			t.Errorf("%s: %d turns, want %d", test.name, r.Turns, test.turns)
		}
	}
}

func liveNames(events []trace.Event) []int32 {
	var out []int32
	for _, i := range LiveAt(events, len(events)-1) {
		out = append(out, events[i].ID)
	}
	return out
}

const turnBlocks = 12

// written is a turn, again and again, each with block numbers of its own, and
// where each ends.
func written(turn []trace.Event, turns int32) (all []trace.Event, ends []int) {
	for k := range turns {
		for _, e := range turn {
			if e.ID += k * turnBlocks; e.ID > 0 { // the first turn finds none of the one before
				all = append(all, e)
			}
		}
		ends = append(ends, len(all))
	}
	return all, ends
}

// randomTurn makes the events of a turn, whose blocks have the numbers 1 to
// turnBlocks; what is freed of the turn before has lower numbers. Blocks may live for
// ever only if the turn leaves more than it finds.
func randomTurn(r *rand.Rand, leaves bool) []trace.Event {
	var out []trace.Event
	var here, later []int32
	for id := int32(1); id <= turnBlocks; id++ {
		n := tensor.Bytes(1 + r.IntN(3<<20))
		if r.IntN(3) == 0 {
			n = tensor.Bytes(1 + r.IntN(2000))
		}
		out = append(out, trace.Event{Kind: trace.Alloc, ID: id, Bytes: n})
		switch k := r.IntN(8); {
		case k == 0 && leaves: // never freed
		case leaves && k <= 2, !leaves && id%4 == 0: // of one that leaves nothing, alike for all
			later = append(later, id-turnBlocks)
		default:
			here = append(here, id)
		}
		if len(here) > 0 && r.IntN(2) == 0 {
			k := r.IntN(len(here))
			out = append(out, trace.Event{Kind: trace.Free, ID: here[k]})
			here = append(here[:k], here[k+1:]...)
		}
		if len(later) > 0 && r.IntN(2) == 0 {
			out = append(out, trace.Event{Kind: trace.Free, ID: later[0]})
			later = later[1:]
		}
	}
	for _, id := range append(here, later...) {
		out = append(out, trace.Event{Kind: trace.Free, ID: id})
	}
	return out
}

// TestLoopApart compares a loop with the same events written out where every turn does the same
// in the large pools, and the small pools come to a state again after many turns, or need more
// memory, which the device may not have.
func TestLoopApart(t *testing.T) {
	fails, grows, saved := 0, 0, int64(0)
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 3))
		const blocks, older = 150, 3 // of a turn; in how many turns more a small one may live
		type op struct{ id, of int32 }
		var turn []op // of is how many turns ago the block was allocated that is freed; -1: allocate
		sizes := make([]tensor.Bytes, blocks)
		for id := range int32(blocks) {
			sizes[id] = tensor.Bytes(1+r.IntN(1<<r.IntN(12))) * 512
			of := int32(r.IntN(older + 1))
			if r.IntN(3) == 0 {
				sizes[id], of = tensor.Bytes(2+r.IntN(20))*tensor.MiB, int32(r.IntN(8)/7)
			}
			turn = append(turn, op{id, -1})
			at := r.IntN(len(turn) + 1)
			if of == 0 {
				at = len(turn)
			}
			turn = slices.Insert(turn, at, op{id, of})
		}
		write := func(turns int32) (events []trace.Event, ends []int) {
			for k := range turns {
				for _, o := range turn {
					switch id := (k-max(o.of, 0))*blocks + o.id + 1; {
					case o.of < 0:
						events = append(events, trace.Event{Kind: trace.Alloc, ID: id, Bytes: sizes[o.id]})
					case id > 0:
						events = append(events, trace.Event{Kind: trace.Free, ID: id})
					}
				}
				ends = append(ends, len(events))
			}
			return events, ends
		}
		const turns = 50
		all, ends := write(older + 2 + turns)
		short := all[:ends[older+1]]
		l := trace.Loop{Begin: ends[older], End: len(short), Turns: turns, Steps: 1}
		to := liveNames(short[:l.Begin])
		for i, from := range liveNames(short) {
			l.Names = append(l.Names, trace.Rename{From: from, To: to[i]})
		}
		opts := ReplayOptions{StopAtOOM: true}
		opts.Config.ExpandableSegments = seed%2 == 1
		if free, err := Replay(all, opts); err != nil {
			t.Fatal(err)
		} else if seed%3 > 0 { // the last segments are refused, or made of others
			opts.Capacity = free.PeakReserved.Reserved - 2*tensor.MiB
		}
		a, err := Replay(all, opts)
		if err != nil {
			t.Fatal(err)
		}
		opts.Loops = []trace.Loop{l}
		b, work := replayed(t, short, opts)
		opts.observe = func(int, Block) {} // has all turns replayed in all pools
		_, more := replayed(t, short, opts)
		saved += more - work
		later := b.PeakReserved.Ahead > 0
		for _, m := range []*Moment{&b.PeakAllocated, &b.PeakReserved} {
			m.Event, m.Ahead = m.Event+int(m.Ahead)*(l.End-l.Begin), 0
		}
		if a.PeakAllocated != b.PeakAllocated || a.PeakReserved != b.PeakReserved || a.Driver.Used != b.Driver.Used || a.Driver.Peak != b.Driver.Peak || a.Phases != b.Phases {
			t.Errorf("seed %d: %+v, %+v, %+v; written out %+v, %+v, %+v", seed, b.PeakAllocated, b.PeakReserved, b.Driver, a.PeakAllocated, a.PeakReserved, a.Driver)
		}
		if x, y := &a.Stats, &b.Stats; x.AllocatedBytes.All.Peak != y.AllocatedBytes.All.Peak || x.ActiveBytes.Small.Peak != y.ActiveBytes.Small.Peak ||
			x.InactiveSplitBytes.All.Current != y.InactiveSplitBytes.All.Current || x.NumAllocRetries != y.NumAllocRetries {
			t.Errorf("seed %d: %+v; written out %+v", seed, y, x)
		}
		if len(a.OOMs) != len(b.OOMs) {
			t.Fatalf("seed %d: %d OOMs, written out %d", seed, len(b.OOMs), len(a.OOMs))
		}
		if len(a.OOMs) > 0 {
			fails++
			if x, y := a.OOMs[0], b.OOMs[0]; x.Event != y.Event+int(y.Ahead)*(l.End-l.Begin) || *x.Err != *y.Err {
				t.Errorf("seed %d: event %d + %d turns, %v; written out %d, %v", seed, y.Event, y.Ahead, y.Err, x.Event, x.Err)
			}
		} else if later {
			grows++
		}
	}
	if fails < 5 || grows < 5 || saved <= 0 {
		t.Errorf("of the random loops %d run out of memory, %d take more in later turns; %d less work", fails, grows, saved)
	}
}

// replayed also returns the work.
func replayed(t *testing.T, events []trace.Event, opts ReplayOptions) (*Result, int64) {
	t.Helper()
	const most = 1 << 40
	budget := limit.New(t.Context(), limit.Limits{Work: most})
	defer budget.Close()
	opts.Meter = budget.Meter()
	r, err := Replay(events, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r, most - opts.Meter.Left()
}
