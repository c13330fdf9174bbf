package estimate

import (
	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/trace"
)

// maxUnrolled is how many events a trace may have with the steps that repeat those before.
const maxUnrolled = 400_000

// ToPeak is the trace that was played or, if a peak or the first request that fails is in a step that repeats those
// before and was left out, the trace up to the end of that step, as far as it is not too long.
func (o *Outcome) ToPeak() *trace.Trace {
	last, follow := int64(0), false
	later := func(event int, ahead int64) bool {
		if ahead == 0 {
			return false
		}
		last = max(last, int64(o.Played.Trace.Events[event].Step)+ahead)
		return true
	}
	for _, m := range []*allocsim.Moment{&o.Free.PeakAllocated, &o.Free.PeakReserved} {
		later(m.Event, m.Ahead)
	}
	if failed := o.OnGPU.OOMs; len(failed) > 0 {
		follow = later(failed[0].Event, failed[0].Ahead)
	}
	if last > 0 {
		if t := o.Played.Trace.Unrolled(loops(o.Played, follow), last, maxUnrolled); t != nil {
			return t
		}
	}
	return o.Played.Trace
}
