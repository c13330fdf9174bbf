package engine

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Limits on how many steps are played: to find a steady state, and, where each
// step leaves more than the one before, to see what comes of it.
const (
	minSteps = 3
	maxSteps = 10

	// maxLeaps bounds how many steps are played for what runs rarely.
	maxLeaps = 4

	maxGrowing       = 1000
	maxGrowingEvents = 1_000_000
)

// run plays the steps: as many as asked for or, with 0, until they are alike. A
// job that grows without its steps becoming alike is played for longer.
func (j *job) run(steps int, out *Played) {
	period := j.period()
	limit, least := steps, max(minSteps, 2*period+1, j.warm()+2)
	if steps == 0 {
		limit = max(maxSteps, least)
	}
	starts := []int{0}
	live, hostLive := []tensor.Bytes{j.live}, []tensor.Bytes{j.hostLive} // after each step
	var birth []int                                                      // event index by block id
	steady, grown := 0, 0
	for n := 1; n <= limit; n++ {
		starts = append(starts, len(j.tr.Events))
		j.playStep(n)
		live, hostLive = append(live, j.live), append(hostLive, j.hostLive)
		if n == 1 { // room for the other steps, which are about as long
			j.tr.Events = slices.Grow(j.tr.Events, (max(min(steps, maxSteps), minSteps)-1)*(len(j.tr.Events)-starts[1]))
		}
		j.meter.Work(int64(len(j.tr.Events) - starts[n]))
		for i := len(birth); i <= int(j.nextID); i++ {
			birth = append(birth, 0)
		}
		for i := starts[n]; i < len(j.tr.Events); i++ {
			if e := &j.tr.Events[i]; e.Kind == trace.Alloc {
				birth[e.ID] = i
			}
		}
		if n <= period || !alike(j.tr.Events, starts, birth, n, period) {
			steady = n
		}
		out.Steps = n
		if grown++; live[n] <= live[n-1] {
			grown = 0
		}
		if steps == 0 && n >= least && n-steady >= period {
			break
		}
		if steps == 0 && n == limit && n < maxGrowing && grown >= maxSteps/2 && len(j.tr.Events) < maxGrowingEvents {
			limit++
		}
	}
	out.Steady, out.Period = steady, period
	if out.Steps-steady < period {
		out.Steady = 0
	}
	before := max(0, out.Steps-period)
	out.Cycle = starts[before+1]
	out.Growth, out.HostGrowth = j.live-live[before], j.hostLive-hostLive[before]
	out.Unreached = j.leap(out, steps > 0)
}

// maxPeriod bounds how many steps are played because statements run in every
// n-th only.
const maxPeriod = 100

// intervals lists the n of what runs in every n-th step only.
func (j *job) intervals() []int64 {
	var out []int64
	add := func(body []program.Stmt) {
		for i := range body {
			if e := body[i].Every; e > 1 {
				out = append(out, e)
			}
		}
	}
	add(j.prog.Step.Body)
	if e := j.prog.Eval; e != nil {
		out = append(out, e.Every)
		add(e.Fn.Body)
	}
	return out
}

// period is the number of steps after which the statements that run in every
// n-th step come round together; those with which it would be too many to play
// are left out, and come in far.
func (j *job) period() int {
	p := int64(1)
	for _, e := range j.intervals() {
		if q := lcm(p, e); q <= maxPeriod {
			p = q
		}
	}
	return int(p)
}

// far lists the intervals that are no part of a period, the shortest first.
func (j *job) far(period int) []int64 {
	var out []int64
	for _, e := range j.intervals() {
		if int64(period)%e != 0 {
			out = append(out, e)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// leap plays one step for each interval that is far, in the order of their
// numbers. The steps before are like those that were played, and are left out.
// It returns the longest interval that it does not reach.
func (j *job) leap(out *Played, asked bool) (unreached int64) {
	last := int64(out.Steps)
	for k, e := range j.far(out.Period) {
		n := (last/e + 1) * e
		switch {
		case e <= int64(out.Steps): // it was among those played
		case asked || out.Steady == 0 || out.Growth > 0 || out.HostGrowth > 0 || k >= maxLeaps || n > math.MaxInt16:
			unreached = max(unreached, e)
		default:
			j.playStep(int(n))
			last = n
		}
	}
	return unreached
}

// alike reports whether step n and the one a period before are equal event for
// event: the same calls in the same order, on blocks that were born at the same
// place of steps equally long ago.
func alike(events []trace.Event, starts, birth []int, n, period int) bool {
	a, b := events[starts[n-period]:starts[n-period+1]], events[starts[n]:]
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Kind != y.Kind || x.Bytes != y.Bytes || x.Phase != y.Phase || x.Thread != y.Thread {
			return false
		}
		if x.Kind != trace.Free {
			continue
		}
		bx, by := birth[x.ID], birth[y.ID]
		sx, sy := events[bx].Step, events[by].Step
		if int(sy-sx) != period || bx-starts[sx] != by-starts[sy] {
			return false
		}
	}
	return true
}
