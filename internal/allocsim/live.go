package allocsim

import "github.com/memplan/memplan/internal/trace"

// LiveAt returns the allocations that are live after the given event: the
// indices of their events, in order. With Moment.Event it tells what a peak is
// made of. Whether an allocation failed is not seen from the events; it counts
// as live until it is freed. The events are as Replay takes them: blocks are numbered
// from 1, and no higher than there are events.
func LiveAt(events []trace.Event, event int) []int {
	last := min(event, len(events)-1)
	births := make([]int32, len(events)+1) // by block: 1 + the event in which one that lives was born
	alive := 0
	for i := range last + 1 {
		switch e := &events[i]; e.Kind {
		case trace.Alloc:
			births[e.ID] = int32(i) + 1
			alive++
		case trace.Free:
			births[e.ID] = 0
			alive--
		}
	}
	live := make([]int, 0, alive)
	for i := range last + 1 {
		if e := &events[i]; e.Kind == trace.Alloc && births[e.ID] == int32(i)+1 {
			live = append(live, i)
		}
	}
	return live
}
