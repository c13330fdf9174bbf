package program

import (
	"slices"
	"testing"
)

// TestCut holds the parts against checkpoint_sequential: the last one takes what
// is left over and is not checkpointed.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		segments int64
		modules  int
		want     []Segment
	}{
		{1, 5, []Segment{{0, 5, false}}},
		{2, 5, []Segment{{0, 2, true}, {2, 5, false}}},
		{3, 6, []Segment{{0, 2, true}, {2, 4, true}, {4, 6, false}}},
		{4, 17, []Segment{{0, 4, true}, {4, 8, true}, {8, 12, true}, {12, 17, false}}},
	} {
		if got := (&Checkpoint{Segments: c.segments}).Cut(c.modules); !slices.Equal(got, c.want) {
			t.Errorf("%d segments of %d modules: %v, want %v", c.segments, c.modules, got, c.want)
		}
	}
}
