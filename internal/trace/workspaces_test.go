package trace

import (
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

// TestWithoutWorkspaces compares a recording with events of which one, the third,
// may come after a workspace.
func TestWithoutWorkspaces(t *testing.T) {
	alloc := func(step, id int32, n tensor.Bytes) Event { return Event{Kind: Alloc, Step: step, ID: id, Bytes: n} }
	free := func(step, id int32) Event { return Event{Kind: Free, Step: step, ID: id} }
	got := func(id int64, n tensor.Bytes) RecordedEvent { return RecordedEvent{id, n} }
	gone := func(id int64) RecordedEvent { return RecordedEvent{ID: -id} }
	plain := []Event{alloc(0, 1, 100), alloc(1, 2, 200), alloc(1, 3, 300), free(1, 3), free(1, 2), alloc(2, 4, 50)}
	with := []Event{alloc(0, 1, 100), alloc(1, 2, 200), alloc(1, 9, 7), free(1, 9), alloc(1, 3, 300), free(1, 3), free(1, 2), alloc(2, 4, 50)}
	for _, c := range []struct {
		name  string
		own   []int
		step1 []RecordedEvent
		want  string
	}{
		{"none", nil, []RecordedEvent{got(2, 200), got(3, 300), gone(3), gone(2)}, "{0 0 B} "},
		{"one", nil, []RecordedEvent{got(2, 200), got(5, 4096), gone(5), got(3, 300), gone(3), gone(2)}, "{1 4.00 KiB} "},
		{"two plans", nil, []RecordedEvent{got(2, 200), got(5, 4096), gone(5), got(6, 512), gone(6), got(3, 300), gone(3), gone(2)}, "{2 4.00 KiB} "},
		{"predicted and recorded", []int{2}, []RecordedEvent{got(2, 200), got(5, 4096), gone(5), got(3, 300), gone(3), gone(2)}, "{1 4.00 KiB} "},
		{"predicted alone", []int{2}, []RecordedEvent{got(2, 200), got(3, 300), gone(3), gone(2)}, "{0 0 B} "},
		{"elsewhere", nil, []RecordedEvent{got(5, 4096), gone(5), got(2, 200), got(3, 300), gone(3), gone(2)},
			"{0 0 B} step1, event 0: predicted +200 (block 2), recorded +4096 (block 2)"},
		{"it stays", nil, []RecordedEvent{got(2, 200), got(5, 4096), got(3, 300), gone(5), gone(3), gone(2)},
			"{0 0 B} step1, event 1: predicted +300 (block 3), recorded +4096 (block 3)"},
		{"it ended early", nil, []RecordedEvent{got(2, 200), got(5, 4096), gone(5)}, "{1 4.00 KiB} step1, event 1: predicted +300 (block 3), recorded nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := plain
			if c.own != nil {
				events = with
			}
			rec := map[string][]RecordedEvent{"setup": {got(1, 100)}, "step1": c.step1, "step2": {got(7, 50)}}
			rest, predicted, found := WithoutWorkspaces(rec, events, []int{2}, c.own)
			if s := fmt.Sprint(found, " ", Difference(rest, predicted, false, false)); s != c.want {
				t.Errorf("%q, want %q", s, c.want)
			}
		})
	}
}
