package engine

import "slices"

// Limits on how many steps are played: to find a steady state, and, where each
// step leaves more than the one before, to see what comes of it.
const (
	minSteps = 3
	maxSteps = 10

	maxGrowing       = 1000
	maxGrowingEvents = 1_000_000

	// Where statements run in every n-th step only.
	maxEvery       = 1000
	maxEveryEvents = 4_000_000
)

// run plays the steps: as many as asked for or, with 0, until they are alike. A
// job that grows without its steps becoming alike is played for longer. Where
// statements run in every n-th step, steps that are known are left out; what
// comes after those that run rarely is played until it is known, too. It ends with the
// first step if the job dies there.
func (j *job) run(steps int, out *Played, dies func(first *Played) bool) {
	h, tr := newHistory(j, steps == 0), j.Trace()
	period := h.period(int64(steps))
	limit, least := steps, max(minSteps, 2*period+1, j.warm()+2)
	events := maxGrowingEvents
	switch {
	case steps > 0:
	case h.tracks:
		limit, events = maxEvery, maxEveryEvents
	default:
		limit = int(max(maxSteps, 2*least)) // what the first steps kept is freed by later ones
	}
	steady, grown, settled := int64(0), 0, false
	for played := 1; played <= limit && !settled; played++ {
		n := h.last().last + 1
		before := h.last().live
		j.playStep(n)
		if n == 1 { // room for the other steps, which are about as long
			tr.Events = slices.Grow(tr.Events, (max(min(steps, maxSteps), minSteps)-1)*(len(tr.Events)-h.last().end))
		}
		j.Meter.Work(int64(len(tr.Events) - h.last().end))
		if n == 1 && dies != nil {
			if out.Steps, out.Workspaces = 1, j.Searches(); dies(out) {
				return
			}
		}
		h.add(n)
		if !h.alike(period) {
			steady = n
		}
		if grown++; h.last().live <= before {
			grown = 0
		}
		if steps > 0 {
			continue
		}
		if h.tracks {
			if l := h.leaveOut(); l != nil {
				out.Loops = append(out.Loops, *l)
				if settled = l.Turns == 0; settled {
					steady, period = n-l.Steps, l.Steps
				}
				out.LeftOut += l.Turns * l.Steps
				continue
			}
			if h.last().last >= maxStep || len(tr.Events) > events {
				break
			}
		}
		if period > 0 && n >= least && n-steady >= period && !h.records[h.at[n-period]].leftOut {
			switch l := h.forEver(period, steady); {
			case l != nil:
				out.Loops = append(out.Loops, *l)
				settled = true
			case len(tr.Events) < events: // by then what lives now is freed, or never
				limit = max(limit, int(min(2*n, maxGrowing)))
			}
		}
		if !h.tracks && played == limit && n < maxGrowing && grown >= maxSteps/2 && len(tr.Events) < events {
			limit++
		}
	}
	n := h.last().step
	if steps == 0 && !settled && period > n { // all that runs rarely, in one step
		j.playStep(period)
	}
	out.Steps, out.Period, out.Settled = int(n), int(period), settled
	if period > 0 && n-steady >= period {
		out.Steady = int(max(steady, 1))
	}
	if k, found := h.at[max(0, n-period)]; found && period > 0 {
		out.Growth, out.HostGrowth = h.last().live-h.records[k].live, h.last().host-h.records[k].host
	}
	out.Compared = period == 1 || period > 0 && n > 3*period
	out.Late = j.late()
	for _, e := range h.intervals {
		if e > n {
			out.Unreached = e
		}
	}
}
