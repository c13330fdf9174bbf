package webpage

import (
	"cmp"
	"slices"
	"strings"
)

// series is memory over some events of a device, as a picture shows it.
type series struct {
	at       []int     // events
	groups   []group   // the lowest first
	reserved []float64 // after each of the events at
	n        int       // events in all
	peak     int       // the event of the peak of allocated memory
	steps    []begin
}

// group is what blocks of a kind hold.
type group struct {
	name   string
	atPeak int64
	values []float64 // after each of the events at
}

// begin is the first event of a step.
type begin struct{ at, step int }

// drawnGroups is how many groups a picture has, those of rounding and of the rest aside.
const drawnGroups = 7

// categoryOrder is how categories are stacked, the lowest first.
var categoryOrder = []string{"parameters", "gradients", "optimizer_state", "activations", "inputs", "temporaries", "workspace"}

// series follows the events, and keeps those that a picture of so many parts can show: of each part the first,
// and those with the most and the least allocated and the most reserved.
func (c *columns) series(parts int) *series {
	s := &series{n: len(c.Kinds)}
	allocated, reserved := c.levels()
	for i := range allocated {
		if allocated[i] > allocated[s.peak] {
			s.peak = i
		}
		if step := c.Works[c.Doing[i]].Step; i > 0 && step != c.Works[c.Doing[i-1]].Step && (len(s.steps) == 0 || step > s.steps[len(s.steps)-1].step) {
			s.steps = append(s.steps, begin{i, step})
		}
	}
	s.at = sample(allocated, reserved, parts, s.peak, s.n-1, c.OOM)
	of := s.group(c)
	now := make([]int64, len(s.groups))
	rounding := len(s.groups) - 1
	add := func(b int, sign int64) {
		now[of[b]] += sign * c.Bytes[b]
		now[rounding] += sign * (c.Block[b] - c.Bytes[b])
	}
	for b := range c.Held {
		add(b, 1)
	}
	next, peakSeen := 0, false
	c.follow(func(i, b int, born bool) {
		if born {
			add(b, 1)
		} else if b >= 0 {
			add(b, -1)
		}
		if i == s.peak && !peakSeen {
			peakSeen = true
			for g := range now {
				s.groups[g].atPeak = now[g]
			}
		}
		if next < len(s.at) && i == s.at[next] {
			for g := range now {
				s.groups[g].values = append(s.groups[g].values, float64(now[g]))
			}
			s.reserved = append(s.reserved, float64(reserved[i]))
			next++
		}
	})
	s.groups = slices.DeleteFunc(s.groups, func(g group) bool { return slices.Max(g.values) == 0 })
	return s
}

// follow calls f for each event, with the block that it allocates or frees, -1 if none.
func (c *columns) follow(f func(i, block int, born bool)) {
	born, freed := c.Held, 0
	for i := range len(c.Kinds) {
		switch c.Kinds[i] {
		case 'a':
			f(i, born, true)
			born++
		case 'f':
			f(i, c.Freed[freed], false)
			freed++
		default:
			f(i, -1, false)
		}
	}
}

// levels are what is allocated and reserved after each event.
func (c *columns) levels() (allocated, reserved []int64) {
	a, r := c.Rest, int64(0)
	for b := range c.Held {
		a += c.Block[b]
	}
	for _, x := range c.Ranges {
		r += x[1]
	}
	moved := 0
	c.follow(func(i, b int, born bool) {
		switch kind := c.Kinds[i]; {
		case born:
			a += c.Block[b]
		case b >= 0:
			a -= c.Block[b]
		case kind == 'A' || kind == 'M':
			r += c.Moved[moved][1]
			moved++
		case kind == 'F' || kind == 'U':
			r -= c.Moved[moved][1]
			moved++
		}
		allocated, reserved = append(allocated, a), append(reserved, r)
	})
	return allocated, reserved
}

// sample chooses events: those named, and of each of so many parts the first, and those with the most and the
// least allocated and the most reserved.
func sample(allocated, reserved []int64, parts int, named ...int) []int {
	n := len(allocated)
	var out []int
	for _, i := range named {
		if i >= 0 && i < n {
			out = append(out, i)
		}
	}
	parts = min(parts, n)
	for k := range parts {
		from, to := k*n/parts, (k+1)*n/parts
		high, low, held := from, from, from
		for i := from; i < to; i++ {
			if allocated[i] > allocated[high] {
				high = i
			}
			if allocated[i] < allocated[low] {
				low = i
			}
			if reserved[i] > reserved[held] {
				held = i
			}
		}
		out = append(out, from, high, low, held)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// group sorts the blocks into groups: by category, and where none is known by the place that allocated them, of
// which the largest at the peak have a name. It returns the group of each block.
func (s *series) group(c *columns) []int {
	key := func(b int) string {
		if c.Category[b] >= 0 {
			return c.Categories[c.Category[b]]
		}
		if len(c.Categories) > 0 {
			return "unknown"
		}
		return c.Works[c.BornBy[b]].Module
	}
	sums := map[string]int64{}
	for b := range c.At {
		sums[key(b)] += 0
	}
	live := map[int]bool{}
	for b := range c.Held {
		live[b] = true
	}
	c.follow(func(i, b int, born bool) {
		if i <= s.peak && b >= 0 {
			live[b] = born
		}
	})
	for b, l := range live {
		if l {
			sums[key(b)] += c.Bytes[b]
		}
	}
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	rest := len(names) > drawnGroups
	names = names[:min(len(names), drawnGroups)]
	if len(c.Categories) > 0 {
		slices.SortStableFunc(names, func(a, b string) int {
			return cmp.Compare(slices.Index(categoryOrder, a), slices.Index(categoryOrder, b))
		})
	}
	place := map[string]int{}
	for i, name := range names {
		place[name] = i
		s.groups = append(s.groups, group{name: strings.ReplaceAll(cmp.Or(name, "(none)"), "_", " ")})
	}
	if rest {
		s.groups = append(s.groups, group{name: "other places"})
	}
	s.groups = append(s.groups, group{name: "rounding"})
	of := make([]int, len(c.At))
	for b := range of {
		i, ok := place[key(b)]
		if !ok {
			i = len(names)
		}
		of[b] = i
	}
	return of
}
