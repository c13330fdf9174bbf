package trace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// run is allocations that follow one another, or frees: what operators return is
// recorded in the order of the results, not in that in which kernels allocate it.
type run struct {
	alloc  bool
	blocks []sized // in order of birth and size
}

// sized is a block by the run in which it was born, and its size.
type sized struct {
	born  int
	bytes tensor.Bytes
}

func (r run) String() string {
	text := ""
	for _, b := range r.blocks {
		if r.alloc {
			text += fmt.Sprintf(" +%d", int64(b.bytes))
		} else {
			text += fmt.Sprintf(" -%d (of run %d)", int64(b.bytes), b.born)
		}
	}
	return text
}

// runs puts tokens together, step by step.
func runs(steps [][]token) [][]run {
	out := make([][]run, len(steps))
	blocks, n := map[int]sized{}, 0
	for k, ts := range steps {
		for i, t := range ts {
			if i == 0 || ts[i-1].alloc != t.alloc {
				n++
				out[k] = append(out[k], run{alloc: t.alloc})
			}
			if t.alloc {
				blocks[t.block] = sized{n, t.bytes}
			}
			r := &out[k][len(out[k])-1]
			r.blocks = append(r.blocks, blocks[t.block])
		}
		for _, r := range out[k] {
			slices.SortFunc(r.blocks, func(a, b sized) int { return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.bytes, b.bytes)) })
		}
	}
	return out
}

// RunsDifference is Difference without the order within runs of allocations and of frees.
func RunsDifference(recorded map[string][]RecordedEvent, events []Event, steps int) string {
	rec, pred := runs(recordedTokens(recorded, steps+1)), runs(predictedTokens(events, steps+1, false))
	for k := range rec {
		a, b := rec[k], pred[k]
		for i := range max(len(a), len(b)) {
			switch {
			case i >= len(b):
				return fmt.Sprintf("%s, run %d: nothing predicted, recorded%v", stepName(k), i, a[i])
			case i >= len(a):
				return fmt.Sprintf("%s, run %d: predicted%v, recorded nothing", stepName(k), i, b[i])
			case a[i].alloc != b[i].alloc || !slices.Equal(a[i].blocks, b[i].blocks):
				return fmt.Sprintf("%s, run %d: predicted%v, recorded%v", stepName(k), i, b[i], a[i])
			}
		}
	}
	return ""
}

// RunsDigest stands for events in comparisons by runs.
func RunsDigest(events []Event, steps int) string {
	return digest(runs(predictedTokens(events, steps+1, false)))
}

// RecordedDigest is RunsDigest of what was recorded.
func RecordedDigest(recorded map[string][]RecordedEvent, steps int) string {
	return digest(runs(recordedTokens(recorded, steps+1)))
}

func digest(steps [][]run) string {
	h := sha256.New()
	for _, rs := range steps {
		for _, r := range rs {
			fmt.Fprintln(h, r)
		}
		fmt.Fprintln(h)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
