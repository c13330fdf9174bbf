package allocsim

import (
	"math/rand/v2"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// TestCycle holds a cycle against the same events written out: random turns in
// which blocks of random sizes are born, most of which die in their turn or the
// next, and some never.
func TestCycle(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		turn := randomTurn(r)
		const turns = 40
		var all []trace.Event
		for k := range int32(turns) {
			for _, e := range turn {
				e.ID += k * turnBlocks
				if e.ID <= 0 { // the first turn finds none of the one before
					continue
				}
				all = append(all, e)
			}
		}
		begin := len(all) / turns * 2
		for begin > 0 && begin < len(all) && !(all[begin].Kind == trace.Alloc && (all[begin].ID-1)%turnBlocks == 0) {
			begin++
		}
		end := begin + len(turn)
		opts := ReplayOptions{Capacity: 96 * tensor.MiB, StopAtOOM: true}
		if seed%2 == 1 {
			opts.Config.ExpandableSegments = true
		}
		full, err := Replay(all, opts)
		if err != nil {
			t.Fatal(err)
		}
		opts.Cycle = &Cycle{Begin: begin, Limit: len(all) - end}
		cycled, err := Replay(all[:end], opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(full.OOMs) != len(cycled.OOMs) || full.Stats.ReservedBytes.All.Current != cycled.Stats.ReservedBytes.All.Current {
			t.Fatalf("seed %d: %d OOMs, %d reserved; written out %d and %d", seed, len(cycled.OOMs), cycled.Stats.ReservedBytes.All.Current,
				len(full.OOMs), full.Stats.ReservedBytes.All.Current)
		}
		if len(full.OOMs) > 0 {
			a, b := full.OOMs[0], cycled.OOMs[0]
			if at := b.Event + int(b.Turn)*len(turn); at != a.Event || *a.Err != *b.Err {
				t.Errorf("seed %d: event %d, %v; written out %d, %v", seed, at, b.Err, a.Event, a.Err)
			}
		}
	}
}

const turnBlocks = 12

// randomTurn makes the events of a turn, whose blocks have the numbers 1 to
// turnBlocks; what dies of the turn before has numbers below.
func randomTurn(r *rand.Rand) []trace.Event {
	var out []trace.Event
	var here, later []int32
	for id := int32(1); id <= turnBlocks; id++ {
		n := tensor.Bytes(1 + r.IntN(3<<20))
		if r.IntN(3) == 0 {
			n = tensor.Bytes(1 + r.IntN(2000))
		}
		out = append(out, trace.Event{Kind: trace.Alloc, ID: id, Bytes: n})
		switch r.IntN(8) {
		case 0: // never dies
		case 1, 2:
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
