package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// Leak is a place of the program that left memory behind each time that the program came there.
type Leak struct {
	Where  Place        `json:"where"`
	Bytes  tensor.Bytes `json:"bytes"`
	Blocks int          `json:"blocks"`
	Turns  int          `json:"turns"` // that left blocks behind
	Of     int          `json:"of"`    // turns since the first of them
}

// leaking is how many turns make a leak: what is allocated once is so in the first turn or the second.
const leaking = 3

// leaks finds what grows until the end of the events; births are those of the blocks in use there.
//
// A turn of a stack is a stretch of events in which the program stays at one site: the frames around its
// calls of PyTorch. The layers of a model are within one call, and what they save is no leak. Blocks are one if
// at least half of the turns left some, and if the last turn that did is as near to the end as they are to one another.
func leaks(events []Event, births map[uint64]int) []Leak {
	runs := make([]int, len(events)) // the number of the stretch
	visits := map[string][]int{}     // of a site: its stretches
	sites := map[*Stack]string{}
	run, current := 0, ""
	for i := range events {
		e := &events[i]
		if e.Action == Alloc && e.Stack != nil {
			site, ok := sites[e.Stack]
			if !ok {
				site = e.Stack.site()
				sites[e.Stack] = site
			}
			if site != current || run == 0 {
				run++
				current = site
				visits[site] = append(visits[site], run)
			}
		}
		runs[i] = run
	}
	groups := map[string][]int{} // the births of a stack that are in use
	for _, i := range slices.Sorted(maps.Values(births)) {
		if s := events[i].Stack; s != nil {
			groups[s.key()] = append(groups[s.key()], i)
		}
	}
	out := []Leak{}
	for _, born := range groups {
		stack := events[born[0]].Stack
		left := 1
		gap := 0 // the longest between two turns that left something
		for k := 1; k < len(born); k++ {
			if runs[born[k]] != runs[born[k-1]] {
				left++
				gap = max(gap, born[k]-born[k-1])
			}
		}
		of := 0
		for _, r := range visits[sites[stack]] {
			if r >= runs[born[0]] {
				of++
			}
		}
		if left < leaking || left < of/2 || len(events)-born[len(born)-1] > 2*gap {
			continue
		}
		l := Leak{Where: stack.place(), Blocks: len(born), Turns: left, Of: of}
		for _, i := range born {
			l.Bytes += max(events[i].Size, 1).CeilTo(512)
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Leak) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Where.String(), b.Where.String()))
	})
	return out
}

// site is a text of the outermost frames, up to the first of PyTorch.
func (s *Stack) site() string {
	i := len(s.Frames)
	for i > 0 && isPython(s.Frames[i-1].File) && !isTorch(s.Frames[i-1].File) {
		i--
	}
	return (&Stack{s.Frames[i:]}).key()
}
