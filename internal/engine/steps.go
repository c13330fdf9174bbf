package engine

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/engine/steady"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

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

// MaxSteps is of how many steps that are asked for there are events. What is executed
// goes on after them, and forgets the events of each step that is over.
const MaxSteps = 1000

// run plays the steps: as many as asked for or, with 0, until they are alike. A
// job that grows without its steps becoming alike is played for longer. Where
// statements run in every n-th step, steps that are known are left out; what
// comes after those that run rarely is played until it is known, too. It ends with the
// first step if the job runs out of memory there.
func (j *job) run(steps int, out *Played, fails func(first *Played) bool) {
	h, tr := steady.New(j, j.intervals(), j.prog.First(), steps == 0), j.Trace()
	period := h.Period(int64(steps))
	limit, least := steps, max(minSteps, 2*period+1, j.warm()+2)
	events := maxGrowingEvents
	switch {
	case steps > 0:
	case h.Tracks:
		limit, events = maxEvery, maxEveryEvents
	default:
		limit = int(max(maxSteps, 2*least)) // what the first steps kept is freed by later ones
	}
	since, grown, settled := int64(0), 0, false
	for played := 1; played <= limit && !settled; played++ {
		n := h.Last().Last + 1
		before := h.Last().Live
		if played > MaxSteps && steps > 0 {
			j.forgetful(n, int64(steps))
			out.Steps = steps
			return
		}
		j.playStep(n)
		if n == 1 { // room for the other steps, which are about as long
			more := minSteps - 1
			if steps > 0 {
				more = min(steps, maxSteps) - 1
			}
			tr.Events = slices.Grow(tr.Events, more*(len(tr.Events)-h.Last().End))
		}
		j.Meter.Work(int64(len(tr.Events) - h.Last().End))
		if n == 1 && fails != nil {
			if out.Steps, out.Workspaces = 1, j.Searches(); fails(out) {
				return
			}
		}
		h.Add(n)
		if !h.Alike(period) {
			since = n
		}
		if grown++; h.Last().Live <= before {
			grown = 0
		}
		if steps > 0 {
			continue
		}
		if h.Tracks {
			if l := h.LeaveOut(); l != nil {
				out.Loops = append(out.Loops, *l)
				if settled = l.Turns == 0; settled {
					since, period = n-l.Steps, l.Steps
				}
				out.LeftOut += l.Turns * l.Steps
				continue
			}
			if h.Last().Last >= steady.MaxStep || len(tr.Events) > events {
				break
			}
		}
		if period > 0 && n >= least && n-since >= period && !h.Of(n-period).LeftOut {
			switch l := h.ForEver(period, since); {
			case l != nil:
				out.Loops = append(out.Loops, *l)
				settled = true
			case len(tr.Events) < events: // by then what lives now is freed, or never
				limit = max(limit, int(min(2*n, maxGrowing)))
			}
		}
		if !h.Tracks && played == limit && n < maxGrowing && grown >= maxSteps/2 && len(tr.Events) < events {
			limit++
		}
	}
	n := h.Last().Step
	if steps == 0 && !settled && period > n { // all that runs rarely, in one step
		j.playStep(period + 1 - j.prog.First())
	}
	out.Steps, out.Period, out.Settled = int(n), int(period), settled
	if period > 0 && n-since >= period {
		out.Steady = int(max(since, 1))
	}
	if before := h.Of(max(0, n-period)); before != nil && period > 0 {
		out.Growth, out.HostGrowth = h.Last().Live-before.Live, h.Last().Host-before.Host
	}
	out.Compared = period == 1 || period > 0 && n > 3*period
	out.Late = j.late()
	for _, e := range h.Intervals {
		if h.Begins(e) > n {
			out.Unreached = e.Every
		}
	}
}

// forgetful plays the steps from n to last and keeps the events of the last one.
func (j *job) forgetful(n, last int64) {
	events, host := len(j.Trace().Events), len(j.HostTrace().Events)
	for ; n <= last; n++ {
		j.Trace().Events, j.HostTrace().Events = j.Trace().Events[:events], j.HostTrace().Events[:host]
		j.playStep(n)
	}
}

// intervals lists those of what runs in some steps only.
func (j *job) intervals() []steady.Interval {
	var out []steady.Interval
	add := func(every, rest int64) {
		if i := (steady.Interval{Every: every, Rest: rest}); every > 1 && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	body := func(body []program.Stmt) {
		for i := range body {
			if body[i].Kind != program.RateStep { // which allocates nothing
				add(body[i].Every, body[i].Rest())
			}
		}
	}
	body(j.prog.Step.Body)
	if e := j.prog.Eval; e != nil {
		add(e.Every, 0)
		body(e.Fn.Body)
	}
	slices.SortFunc(out, func(a, b steady.Interval) int { return cmp.Compare(a.Every, b.Every) })
	return out
}

// Events implements steady.Job.
func (j *job) Events() (device, host []trace.Event) { return j.Trace().Events, j.HostTrace().Events }

// Counted implements steady.Job: the steps of optimizers, as far as what they allocate
// depends on them, and how many plans cuDNN searched for.
func (j *job) Counted() []uint64 {
	var out []uint64
	for i, n := range j.stepped {
		out = append(out, uint64(min(n, j.warmUp(i))))
	}
	return append(out, uint64(j.Searched()))
}
