package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/program"
)

// rounds are the microbatches of a step, which do the same from the second on: in the first
// step, three are played and the others recorded again; in later ones, two.
//
// What a round does depends on its statements, on the batch that it takes and on what the
// round before has left. That the second and the third do the same, free all that the one
// before has left and leave as much says that so do those after them. In a later step, the
// second shows whether they are as in the first.
type rounds struct {
	of      program.Rounds
	moments []autograd.Moment // when those of this step began
	list    *python.List      // of which each takes an item
	counted []uint64

	second, third *autograd.Round // that did the same; nil: not known yet
	refused       int             // steps in which they did not
	leftOut       int             // rounds
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
	switch {
	case played == 2 && r.third != nil && left > 0:
		if now := j.RoundBetween(m[0], m[1], m[2]); r.second.Same(now, false) && j.again(r.third, left) {
			return left * r.of.Len
		}
	case played == 3:
		second, third := j.RoundBetween(m[0], m[1], m[2]), j.RoundBetween(m[1], m[2], m[3])
		if !second.Same(third, true) {
			r.refused++
			break
		}
		r.second, r.third = second, third
		if left > 0 && j.again(third, left) {
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

// again records a round n times, if what the job holds is as if it had been played so often.
func (j *job) again(r *autograd.Round, n int) bool {
	if !slices.Equal(j.counted, j.Counted()) || j.roundList() != j.list {
		return false
	}
	var items []python.Value // of the last round that was played, and of those after it
	if j.list != nil {
		from := j.of.Index + j.of.N - 1 - n
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
	if !j.Again(r, j.second, j.moments[len(j.moments)-2], n) {
		return false
	}
	if j.list != nil {
		j.Rename(j.frame, items[0], items[n])
	}
	j.Watch(false)
	j.leftOut += n
	return true
}
