package trace

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// RecordedEvent is an allocation of Bytes (ID > 0), a free (ID < 0, or 0 for
// a block that was not seen being allocated), or a request for Bytes that failed (ID 0).
type RecordedEvent struct {
	ID    int64
	Bytes tensor.Bytes
}

// UnmarshalJSON reads [id, bytes] or -id; Recorded says what other numbers are.
func (e *RecordedEvent) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, &e.ID)
	}
	var a []int64
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	if len(a) < 2 {
		return fmt.Errorf("event %s has no size", b)
	}
	e.ID, e.Bytes = a[0], tensor.Bytes(a[1])
	return nil
}

// StepOf maps an event to the recorded list that it belongs to. With late, what
// is freed when a step returns was recorded at the start of the next one.
func StepOf(e *Event, late bool) int {
	if late && e.Phase == Return {
		return int(e.Step) + 1
	}
	return int(e.Step)
}

// token is an allocation of so many bytes, or the free of the block that was
// born as the n-th.
type token struct {
	alloc bool
	bytes tensor.Bytes
	block int
}

func (t token) String() string {
	if t.alloc {
		return fmt.Sprintf("+%d (block %d)", int64(t.bytes), t.block)
	}
	return fmt.Sprintf("- block %d", t.block)
}

// same reports whether two tokens are equal; the numbers of equal blocks are.
func (t token) same(o token) bool {
	return t.alloc == o.alloc && t.bytes == o.bytes && (t.alloc || t.block == o.block)
}

// Difference compares event lists: sizes and order, ids by birth. With
// unordered, the order within a run of frees does not count: PyTorch itself
// frees autocast's cache in another order in each run. It returns "" if the
// lists are equal, else a description of the first difference.
func Difference(recorded map[string][]RecordedEvent, events []Event, late, unordered bool) string {
	steps := 0
	for recorded[stepName(steps)] != nil {
		steps++
	}
	rec, pred := recordedTokens(recorded, steps), predictedTokens(events, steps, late)
	for k := range rec {
		a, b := rec[k], pred[k]
		if unordered {
			sortFrees(a)
			sortFrees(b)
		}
		for i := range max(len(a), len(b)) {
			switch {
			case i >= len(b):
				return fmt.Sprintf("%s, event %d: nothing predicted, recorded %v", stepName(k), i, a[i])
			case i >= len(a):
				return fmt.Sprintf("%s, event %d: predicted %v, recorded nothing", stepName(k), i, b[i])
			case !a[i].same(b[i]):
				return fmt.Sprintf("%s, event %d: predicted %v, recorded %v", stepName(k), i, b[i], a[i])
			}
		}
	}
	return ""
}

// UntilFailure cuts what was recorded at the last request that failed, and takes those
// out that failed before, after which the program went on.
func UntilFailure(recorded map[string][]RecordedEvent) map[string][]RecordedEvent {
	out, last := map[string][]RecordedEvent{}, ""
	failed := func(e RecordedEvent) bool { return e.ID == 0 && e.Bytes > 0 }
	for k := 0; recorded[stepName(k)] != nil; k++ {
		name := stepName(k)
		if slices.ContainsFunc(recorded[name], failed) {
			last = name
		}
	}
	for k := 0; recorded[stepName(k)] != nil; k++ {
		name := stepName(k)
		list := slices.Clone(recorded[name])
		if name == last {
			for i, e := range slices.Backward(list) {
				if failed(e) {
					list = list[:i]
					break
				}
			}
		}
		out[name] = slices.DeleteFunc(list, failed)
		if name == last {
			break
		}
	}
	return out
}

func stepName(k int) string {
	if k == 0 {
		return "setup"
	}
	return fmt.Sprintf("step%d", k)
}

func recordedTokens(recorded map[string][]RecordedEvent, steps int) [][]token {
	out := make([][]token, steps)
	birth := map[int64]int{}
	for k := range out {
		for _, e := range recorded[stepName(k)] {
			if e.ID > 0 {
				birth[e.ID] = len(birth) + 1
				out[k] = append(out[k], token{true, e.Bytes, birth[e.ID]})
			} else {
				out[k] = append(out[k], token{block: birth[-e.ID]})
			}
		}
	}
	return out
}

// predictedTokens leaves out what comes after the last recorded step, and, if
// frees on return belong to the next one, those of the last.
func predictedTokens(events []Event, steps int, late bool) [][]token {
	out := make([][]token, steps)
	birth := map[int32]int{}
	for i := range events {
		e := &events[i]
		k := StepOf(e, late)
		if k >= steps {
			continue
		}
		switch e.Kind {
		case Alloc:
			birth[e.ID] = len(birth) + 1
			out[k] = append(out[k], token{true, e.Bytes, birth[e.ID]})
		case Free:
			out[k] = append(out[k], token{block: birth[e.ID]})
		}
	}
	return out
}

// sortFrees puts each run of frees into the order of births.
func sortFrees(ts []token) {
	for i := 0; i < len(ts); i++ {
		j := i
		for j < len(ts) && !ts[j].alloc {
			j++
		}
		slices.SortFunc(ts[i:j], func(a, b token) int { return a.block - b.block })
		i = j
	}
}
