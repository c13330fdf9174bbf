package estimate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// maxLoopEvents bounds how many allocations and frees are replayed, beyond those
// of the steps that were played, for steps that are like them: a few seconds.
const maxLoopEvents = 10_000_000

// keepWork is the work that the loops of a replay do not take: a leak is followed in
// the last replay of a job, for nearly all that is left.
func (j *Job) keepWork(follow bool) int64 {
	left := j.meter.Left()
	if follow {
		return left / 8
	}
	return left / 4 * 3
}

// loops are the steps that are like those that were played. Those that come after
// all others go on until the allocator is in a state in which it was before: it may
// place blocks otherwise though the steps are alike. Where they leave more than they
// find, there is no such state; they are replayed if a leak is followed.
func loops(p *engine.Played, follow bool) []trace.Loop {
	n := len(p.Loops)
	if p.Growth > 0 && !follow && n > 0 && p.Loops[n-1].Turns == 0 {
		n--
	}
	return p.Loops[:n]
}

// leak reports that memory grows from step to step.
func (o *Outcome) leak(r *report.Report) {
	p, v := o.Played, &r.Verdict
	if p.HostGrowth > 0 && (p.Steady > 0 || p.Growth == 0) {
		defer o.hostLeak(r)
	}
	if p.Growth <= 0 || p.Steps < 3 || p.Steps <= p.Period || (p.Steady == 0 && v.Fits && p.Steps < 100) {
		return
	}
	l := &report.Leak{Bytes: max(o.endOf(p.Steps)-o.endOf(p.Steps-p.Period), p.Growth), Period: p.Period, SimulatedSteps: int64(p.Steps) + o.OnGPU.Turns*int64(p.Period)}
	l.Op, l.Layer = o.leaked()
	v.Leak = l
	each := fmt.Sprintf("each step leaves %v more than it found", l.Bytes)
	if l.Period > 1 {
		each = fmt.Sprintf("each %d steps leave %v more than they found", l.Period, l.Bytes)
	}
	if l.Op != "" {
		each += ", most of it made by " + l.Op
		if l.Layer != "" {
			each += " in " + l.Layer
		}
	}
	l.Says = each
	if v.OOM != nil {
		l.SimulatedSteps = int64(v.OOM.Step)
		first := fmt.Sprintf("out of memory in %s: tried to allocate %v, %v free", report.Where(v.OOM.Step, v.OOM.Phase, v.OOM.Op, v.OOM.Layer), v.OOM.TriedBytes, v.OOM.FreeBytes)
		v.Reason = first + "\na leak: " + each
		return
	}
	r.Add(note.Growing.New("memory keeps growing: %s; the %d simulated steps fit, later ones will not", each, l.SimulatedSteps))
}

// endOf is what is allocated after a step that was played.
func (o *Outcome) endOf(step int) tensor.Bytes {
	steps := o.Free.Steps
	k, _ := slices.BinarySearchFunc(steps, step, func(s allocsim.Step, step int) int { return cmp.Compare(s.Step, step) })
	return steps[k].EndAllocated
}

// leaked names what made the largest part of what a period leaves: of what lives
// after the last step, beyond what it had made of the blocks that lived a period
// before.
func (o *Outcome) leaked() (op, layer string) {
	p := o.Played
	tr := p.Trace
	type maker struct{ op, layer int32 }
	sums := map[maker]tensor.Bytes{}
	at := map[int32]int{}
	add := func(sign tensor.Bytes) {
		for _, i := range at {
			e := &tr.Events[i]
			sums[maker{e.Op, e.Layer}] += sign * e.Bytes
		}
	}
	counted := false
	for i := range tr.Events {
		e := &tr.Events[i]
		if !counted && int(e.Step) > p.Steps-p.Period {
			add(-1)
			counted = true
		}
		switch e.Kind {
		case trace.Alloc:
			at[e.ID] = i
		case trace.Free:
			delete(at, e.ID)
		}
	}
	add(1)
	var most maker
	largest := tensor.Bytes(0)
	for m, n := range sums {
		if n > largest || n == largest && n > 0 && (m.op < most.op || m.op == most.op && m.layer < most.layer) {
			most, largest = m, n
		}
	}
	if largest == 0 {
		return "", ""
	}
	return tr.Ops[most.op], tr.Layers[most.layer]
}

// hostLeak warns that host memory fills.
func (o *Outcome) hostLeak(r *report.Report) {
	p := o.Played
	each := "each step"
	if p.Period > 1 {
		each = fmt.Sprintf("each %d steps", p.Period)
	}
	r.Add(note.HostGrowing.New("host memory keeps growing: %v more for %s that the job keeps on the CPU", p.HostGrowth, each))
}
