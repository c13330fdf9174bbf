package trace

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// Workspaces are blocks that a library takes for the time of a call.
type Workspaces struct {
	Count   int
	Largest tensor.Bytes
}

// WithoutWorkspaces takes workspaces out of what was recorded and out of events, so
// that the rest can be compared. Places are the events before which a library may
// have taken some, own the workspaces among the events, both in order. In a
// recording a workspace is a block that is freed as soon as it was allocated; there
// are several where the library tried several plans. A block is none if the next
// that was predicted is like it.
func WithoutWorkspaces(recorded map[string][]RecordedEvent, events []Event, places, own []int) (map[string][]RecordedEvent, []Event, Workspaces) {
	out, rest, found := maps.Clone(recorded), make([]Event, 0, len(events)), Workspaces{}
	step, at, kept := stepName(0), 0, []RecordedEvent(nil) // at: in what was recorded of the step
	finish := func() {
		if rec := recorded[step]; rec != nil {
			out[step] = append(kept, rec[min(at, len(rec)):]...)
		}
	}
	for i := 0; i < len(events); i++ {
		next := i
		if _, taken := slices.BinarySearch(own, i); taken {
			next += 2
		}
		if _, may := slices.BinarySearch(places, i); may {
			for rec := recorded[step]; passing(rec, at) && !alike(rec[at], events, next); at += 2 {
				found.Count, found.Largest = found.Count+1, max(found.Largest, rec[at].Bytes)
			}
		}
		if i = next; i >= len(events) {
			break
		}
		e := &events[i]
		if s := stepName(int(e.Step)); s != step {
			finish()
			step, at, kept = s, 0, nil
		}
		rest = append(rest, *e)
		if e.Kind == Alloc || e.Kind == Free {
			if at < len(recorded[step]) {
				kept = append(kept, recorded[step][at])
			}
			at++
		}
	}
	finish()
	return out, rest, found
}

// passing reports whether the i-th block is freed as soon as it was allocated.
func passing(rec []RecordedEvent, i int) bool {
	return i+1 < len(rec) && rec[i].ID > 0 && rec[i+1].ID == -rec[i].ID
}

// alike reports whether the i-th event allocates as much as was recorded, and the
// next one frees it.
func alike(r RecordedEvent, events []Event, i int) bool {
	if i+1 >= len(events) {
		return false
	}
	e, next := &events[i], &events[i+1]
	return e.Kind == Alloc && e.Bytes == r.Bytes && next.Kind == Free && next.ID == e.ID
}
