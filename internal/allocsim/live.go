package allocsim

import "github.com/memplan/memplan/internal/trace"

// LiveAt returns the allocations that are live after the given event: the
// indices of their events, in order. With Moment.Event it tells what a peak is
// made of. Whether an allocation failed is not seen from the events; it counts
// as live until it is freed.
func LiveAt(events []trace.Event, event int) []int {
	born := make(map[int32]int)
	last := min(event, len(events)-1)
	for i := range last + 1 {
		switch e := &events[i]; e.Kind {
		case trace.Alloc:
			born[e.ID] = i
		case trace.Free:
			delete(born, e.ID)
		}
	}
	live := make([]int, 0, len(born))
	for i := range last + 1 {
		e := &events[i]
		if at, ok := born[e.ID]; e.Kind == trace.Alloc && ok && at == i {
			live = append(live, i)
		}
	}
	return live
}
