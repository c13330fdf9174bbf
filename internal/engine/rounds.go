package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/program"
)

// rounds are the microbatches of a step, which do the same from the second on.
//
// What a round does depends on its statements, on the batch that it takes and on what the
// round before has left. In the first step, three are played: if the third does the same as
// the second, so do those after it. In later steps, it is the first or the second that shows
// whether they are as in the step before. The others are recorded again.
type rounds struct {
	of      program.Rounds
	moments []autograd.Moment // when those of this step began
	list    *python.List      // of which each takes an item
	counted []uint64

	known   *autograd.Rounds // nil: not yet
	spare   *autograd.Round  // was compared with them, and is used no more
	refused int              // steps in which they did not repeat
	leftOut int              // rounds
}

// mostRefused is in how many steps rounds are compared that turn out not to do the same:
// the first may be another.
const mostRefused = 2

// findRounds looks for rounds in the step. Where a technique keeps books of its own from
// one backward pass to the next, all are played.
func (j *job) findRounds() {
	p := j.prog
	if j.Executes() || p.InBackward || p.Offload != (program.Offload{}) || p.Parallel != (program.Parallel{}) {
		return
	}
	if j.of = program.RoundsOf(p.Step.Body); j.of.N < 3 {
		j.of.N = 0
	}
}

// leaveOut is called before a statement of the step. It records the rounds again that need
// not be played and returns how many statements they are.
func (j *job) leaveOut(i int) int {
	r := &j.rounds
	k := i - r.of.Begin
	if r.of.N == 0 || r.refused >= mostRefused || k < 0 || k%r.of.Len > 0 {
		return 0
	}
	played := k / r.of.Len
	switch {
	case played == 0:
		r.moments, r.list, r.counted = r.moments[:0], j.roundList(), j.Counted()
	case played > 3 || played > r.of.N:
		return 0
	}
	r.moments = append(r.moments, j.Moment())
	left := r.of.N - played
	m := r.moments
	first := func(over *autograd.Round) *autograd.Round {
		return j.RoundBetween(autograd.Moment{}, m[0], m[1], over)
	}
	switch {
	case played == 0 || played < 3 && (left == 0 || r.known == nil):
	case played == 1:
		r.spare = first(r.spare)
		if r.known.First.Same(r.spare) && j.again(played, left) {
			return left * r.of.Len
		}
	case played == 2:
		if second := j.RoundBetween(m[0], m[1], m[2], nil); r.known.Second.Same(second) {
			r.known.Begin(first(nil), second)
			if j.again(played, left) {
				return left * r.of.Len
			}
		}
	default:
		known := &autograd.Rounds{First: first(nil), Second: j.RoundBetween(m[0], m[1], m[2], nil), Third: j.RoundBetween(m[1], m[2], m[3], nil)}
		if !known.Repeat() {
			r.refused++
			break
		}
		if r.known = known; left > 0 && j.again(played, left) {
			return left * r.of.Len
		}
	}
	j.Watch(played < 3)
	return 0
}

// roundList is the list of which each round takes an item, nil if there is none.
func (j *job) roundList() *python.List {
	if j.of.Slot < 0 {
		return nil
	}
	return j.frame.Slots[j.of.Slot].List
}

// again records the last n rounds, if what the job holds is as if they had been played.
func (j *job) again(played, n int) bool {
	if !slices.Equal(j.counted, j.Counted()) || j.roundList() != j.list {
		return false
	}
	var items []python.Value // of the last round that was played, and of those after it
	if j.list != nil {
		from := j.of.Index + played - 1
		if from+n >= len(j.list.Items) {
			return false
		}
		items = j.list.Items[from : from+n+1]
		for _, it := range items[1:] {
			if !j.Alike(j.frame, items[0], it) {
				return false
			}
		}
	}
	if !j.Again(j.known, played, j.moments[played-1], n) {
		return false
	}
	if j.list != nil {
		j.Rename(j.frame, items[0], items[n])
	}
	j.Watch(false)
	j.leftOut += n
	return true
}
