package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// line is what a job allocates as a function of one of its keys: the sizes of blocks
// lie on straight lines through those of two jobs that were played, and so do the
// operands of kernels whose scratch goes by rules of their own.
type line struct {
	at     int64 // the key's value in the first job
	over   int64 // what it is more in the second, or less
	events []trace.Event
	slope  []tensor.Bytes // of the sizes of events
	most   tensor.Bytes   // of the slopes
	peaks  []peak         // of what lives at one time, without scratch
	sites  []site
	rules  [][2]op.Kernel // of both jobs
	loops  []loopOfSites
	growth bool
	env    *op.Env
}

// peak is what lives at a time: with the value of the first job, and its slope.
type peak struct{ bytes, slope float64 }

// skeleton is what a job does beside what kernels do of whose blocks rules decide.
// The results of those kernels are blocks like others, the rest has no number.
type skeleton struct {
	events []trace.Event
	sites  []site
	rules  []op.Kernel // each once
	loops  []loopOfSites
	blocks int32
}

// site is where such a kernel runs.
type site struct {
	before  int // the event that comes next
	event   trace.Event
	rule    int
	results []int32
}

// loopOfSites is a loop, and how many sites come before it begins and ends.
type loopOfSites struct {
	trace.Loop
	begin, end int
}

// newSkeleton takes kernels out of what was played; nil if it is not as they say.
func newSkeleton(p *engine.Played, env *op.Env) *skeleton {
	s := &skeleton{events: make([]trace.Event, 0, len(p.Trace.Events))}
	known := map[op.Kernel]int{}
	var blocks [][]op.Block // of each rule
	numbers := make([]int32, len(p.Trace.Categories))
	events, next := p.Trace.Events, 0
	keep := func(to int) {
		for ; next < to; next++ {
			e := events[next]
			if e.Kind == trace.Alloc {
				s.blocks++
				numbers[e.ID] = s.blocks
			}
			e.ID = numbers[e.ID]
			s.events = append(s.events, e)
		}
	}
	var shift []int // of the events before each site
	for i := range p.Kernels {
		k := &p.Kernels[i]
		rule, found := known[k.Kernel]
		if !found {
			rule = len(s.rules)
			known[k.Kernel] = rule
			s.rules, blocks = append(s.rules, k.Kernel), append(blocks, k.Blocks(env))
		}
		if k.At < next || k.At+len(blocks[rule]) > len(events) {
			return nil
		}
		keep(k.At)
		at := site{before: len(s.events), event: k.Event, rule: rule}
		ids := map[int]int32{}
		for _, b := range blocks[rule] {
			e := &events[next]
			next++
			switch {
			case b.Bytes >= 0 && (e.Kind != trace.Alloc || e.Bytes != b.Bytes), b.Bytes < 0 && (e.Kind != trace.Free || e.ID != ids[b.Number]):
				return nil
			case b.Bytes >= 0:
				ids[b.Number] = e.ID
			default:
				delete(ids, b.Number)
			}
		}
		for n := 0; len(ids) > 0; n++ {
			if id, lives := ids[n]; lives {
				delete(ids, n)
				s.blocks++
				numbers[id] = s.blocks
				at.results = append(at.results, s.blocks)
			}
		}
		shift = append(shift, next-len(s.events))
		s.sites = append(s.sites, at)
	}
	keep(len(events))
	for _, l := range p.Loops {
		n := loopOfSites{Loop: l}
		for _, edge := range []struct{ at, sites *int }{{&n.Begin, &n.begin}, {&n.End, &n.end}} {
			*edge.sites = len(s.sites)
			if *edge.at < len(events) {
				step := events[*edge.at].Step
				*edge.sites, _ = slices.BinarySearchFunc(s.sites, step, func(s site, step int32) int { return int(s.event.Step) - int(step) })
			}
			if *edge.sites > 0 {
				*edge.at -= shift[*edge.sites-1]
			}
		}
		n.Names = slices.Clone(l.Names)
		for i := range n.Names {
			n.Names[i] = trace.Rename{From: numbers[n.Names[i].From], To: numbers[n.Names[i].To]}
		}
		s.loops = append(s.loops, n)
	}
	return s
}

// newLine lays a line through two jobs that were played with different values of a key;
// nil if they differ in more than sizes.
func newLine(x, y *engine.Played, a, b int64, env *op.Env) *line {
	if len(x.Workspaces.Events) > 0 || len(y.Workspaces.Events) > 0 || (x.Growth > 0) != (y.Growth > 0) ||
		!slices.Equal(x.Trace.Ops, y.Trace.Ops) || !slices.Equal(x.Trace.Layers, y.Trace.Layers) {
		return nil
	}
	s, t := newSkeleton(x, env), newSkeleton(y, env)
	if s == nil || t == nil || len(s.events) != len(t.events) || len(s.sites) != len(t.sites) {
		return nil
	}
	l := &line{at: a, over: b - a, events: s.events, slope: make([]tensor.Bytes, len(s.events)), loops: s.loops, growth: x.Growth > 0, env: env}
	for i := range s.events {
		e, f := s.events[i], t.events[i]
		d := f.Bytes - e.Bytes
		f.Bytes = e.Bytes
		if e != f || int64(d)%l.over != 0 {
			return nil
		}
		l.slope[i] = d / tensor.Bytes(l.over)
		l.most = max(l.most, l.slope[i], -l.slope[i])
	}
	l.findPeaks(s.blocks)
	pairs := map[[2]int]int{}
	for i, p := range s.sites {
		q := t.sites[i]
		if p.before != q.before || p.event != q.event || !slices.Equal(p.results, q.results) {
			return nil
		}
		pair := [2]int{p.rule, q.rule}
		n, found := pairs[pair]
		if !found {
			n = len(l.rules)
			pairs[pair] = n
			l.rules = append(l.rules, [2]op.Kernel{s.rules[p.rule], t.rules[q.rule]})
		}
		p.rule = n
		l.sites = append(l.sites, p)
	}
	same := func(m, n loopOfSites) bool {
		return m.Begin == n.Begin && m.End == n.End && m.Turns == n.Turns && m.Steps == n.Steps && m.begin == n.begin && m.end == n.end && slices.Equal(m.Names, n.Names)
	}
	if !slices.EqualFunc(s.loops, t.loops, same) {
		return nil
	}
	return l
}

// findPeaks finds when something is freed after something was allocated.
func (l *line) findPeaks(blocks int32) {
	live, of := peak{}, make([]peak, blocks+1)
	for i := range l.events {
		switch e := &l.events[i]; e.Kind {
		case trace.Alloc:
			of[e.ID] = peak{float64(e.Bytes), float64(l.slope[i])}
			live.bytes += of[e.ID].bytes
			live.slope += of[e.ID].slope
		case trace.Free:
			if i > 0 && l.events[i-1].Kind == trace.Alloc {
				l.peaks = append(l.peaks, live)
			}
			live.bytes -= of[e.ID].bytes
			live.slope -= of[e.ID].slope
		}
	}
}

// needs is what blocks take at the least that live at one time, with a value of the
// key.
func (l *line) needs(k int64) float64 {
	most := 0.0
	for _, p := range l.peaks {
		most = max(most, p.bytes+p.slope*float64(k-l.at))
	}
	return most
}

// play is what the job allocates with a value of the key; false if the line says
// nothing of it. Events are appended to the given ones. Of what was played there are
// only the events and the loops.
func (l *line) play(k int64, events []trace.Event) (*engine.Played, bool) {
	const large = 1 << 52 // with which a sum of sizes is far from an overflow
	away := k - l.at
	if n, err := tensor.MulBytes(int64(l.most), max(away, -away)); err != nil || n > large {
		return nil, false
	}
	n, d := away, l.over
	if d < 0 {
		n, d = -n, -d
	}
	scratch := make([][]op.Block, len(l.rules))
	for i, r := range l.rules {
		k, ok := r[0].Line(r[1], n, d)
		if !ok {
			return nil, false
		}
		scratch[i] = k.Blocks(l.env)
	}
	next := 0
	ids := make([]int32, 0, 16)
	number := int32(0) // of the last block
	for i := range l.events {
		number = max(number, l.events[i].ID)
	}
	for i := range l.sites {
		for _, id := range l.sites[i].results {
			number = max(number, id)
		}
	}
	shift := make([]int, len(l.sites))
	for i := range l.sites {
		s := &l.sites[i]
		if events, next = l.copy(events, next, s.before, away); next < 0 {
			return nil, false
		}
		ids = ids[:0]
		results := s.results
		blocks := scratch[s.rule]
		for _, b := range blocks {
			e := s.event
			if b.Bytes < 0 {
				e.Kind, e.ID = trace.Free, ids[b.Number]
				events = append(events, e)
				continue
			}
			if freedIn(blocks, b.Number) {
				number++
				e.ID = number
			} else {
				if len(results) == 0 {
					return nil, false
				}
				e.ID, results = results[0], results[1:]
			}
			ids = append(ids, e.ID)
			e.Bytes = b.Bytes
			events = append(events, e)
		}
		if len(results) > 0 {
			return nil, false
		}
		shift[i] = len(events) - next
	}
	if events, next = l.copy(events, next, len(l.events), away); next < 0 {
		return nil, false
	}
	p := &engine.Played{Trace: &trace.Trace{Events: events}}
	if l.growth {
		p.Growth = 1
	}
	for _, m := range l.loops {
		if m.begin > 0 {
			m.Begin += shift[m.begin-1]
		}
		if m.end > 0 {
			m.End += shift[m.end-1]
		}
		p.Loops = append(p.Loops, m.Loop)
	}
	return p, true
}

// copy appends events up to one, with the sizes that they have so far away; next is
// negative where a size is not there.
func (l *line) copy(events []trace.Event, from, to int, away int64) (all []trace.Event, next int) {
	for i := from; i < to; i++ {
		e := l.events[i]
		e.Bytes += l.slope[i] * tensor.Bytes(away)
		if e.Kind == trace.Alloc && e.Bytes <= 0 {
			return events, -1
		}
		events = append(events, e)
	}
	return events, to
}

// freedIn reports whether a block is freed again.
func freedIn(blocks []op.Block, number int) bool {
	return slices.ContainsFunc(blocks, func(b op.Block) bool { return b.Bytes < 0 && b.Number == number })
}

// like reports whether two lists of events are the same but for the numbers of
// blocks; what is played in fewer steps is compared as far as it goes.
func like(derived, played []trace.Event) bool {
	if len(played) > len(derived) || len(played) < len(derived) && len(played) > 0 && derived[len(played)].Step == played[len(played)-1].Step {
		return false
	}
	numbers := map[int32]int32{}
	for i, e := range played {
		f := derived[i]
		switch e.Kind {
		case trace.Alloc:
			numbers[f.ID] = e.ID
		case trace.Free:
			if numbers[f.ID] != e.ID {
				return false
			}
		}
		f.ID = e.ID
		if e != f {
			return false
		}
	}
	return true
}
