package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// line is what a job allocates as a function of one of its keys: the sizes of blocks
// lie on straight lines through those of two jobs that were played, or are a number times the
// square of the value, or lie on parabolas through those of three, and so do the operands of kernels whose scratch goes by rules
// of their own.
type line struct {
	at     tensor.Places // the key's values in those jobs
	events []trace.Event
	sizes  []tensor.Curve // of events
	grids  []grid
	grid   []uint8 // of events: the one whose places the curve has
	grow   []int   // events whose sizes are looked at
	peaks  []peak  // of what lives at one time, without scratch
	sites  []site
	rules  [][]op.Kernel // of all those jobs
	loops  []loopOfSites
	growth bool
	blocks int32 // that are no scratch
	env    *op.Env
}

// grid is the places rounded up to a multiple: sizes of some kernels go by that, such as
// those of FlashAttention's backward pass.
type grid struct {
	multiple int64
	at       tensor.Places
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// size is that of an event with a value of the key.
func (l *line) size(i int, k int64) (int64, bool) {
	g := &l.grids[l.grid[i]]
	return g.at.At(l.sizes[i], roundUp(k, g.multiple))
}

// peak is what lives at a time: the sum of curves.
type peak struct{ first, slope, bend float64 }

// skeleton is what a job does beside what kernels do of whose blocks rules decide.
// The results of those kernels are blocks like others, the rest has no number.
type skeleton struct {
	events []trace.Event
	sites  []site
	rules  []op.Kernel // each once
	loops  []loopOfSites
	blocks int32
	// numbers of the blocks that were played; 0: scratch of those kernels
	numbers []int32
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
	known := map[*op.Kernel]int{}
	all := op.NewBlocks(env)
	var blocks [][]op.Block // of each rule
	numbers := make([]int32, len(p.Trace.Categories))
	s.numbers = numbers
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
			s.rules, blocks = append(s.rules, *k.Kernel), append(blocks, all.Of(k.Kernel))
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

// newLine lays a line through jobs that were played with different values of a key, or
// a parabola through three; nil if they differ in more than sizes, or if others that were
// played do not lie on it. Sizes may also lie on straight lines over the key's value rounded
// up to one of multiples.
func newLine(at []int64, played []*engine.Played, env *op.Env, multiples ...int64) *line {
	x := played[0]
	all := make([]*skeleton, len(played))
	for i, y := range played {
		if len(y.Workspaces.Events) > 0 || (x.Growth > 0) != (y.Growth > 0) || !slices.Equal(x.Trace.Ops, y.Trace.Ops) || !slices.Equal(x.Trace.Layers, y.Trace.Layers) {
			return nil
		}
		if all[i] = newSkeleton(y, env); all[i] == nil {
			return nil
		}
		if i > 0 && (!all[i].goOn(all[0]) || !all[0].like(all[i])) {
			return nil
		}
	}
	s, base := all[0], min(len(at), 3)
	l := &line{at: tensor.PlacesAt(at[:base]...), events: s.events, sizes: make([]tensor.Curve, len(s.events)), loops: s.loops, growth: x.Growth > 0, blocks: s.blocks, env: env}
	l.grid, l.grids = make([]uint8, len(s.events)), []grid{{1, l.at}}
	for _, m := range multiples {
		rounded := make([]int64, base)
		for i, k := range at[:base] {
			rounded[i] = roundUp(k, m)
		}
		l.grids = append(l.grids, grid{m, tensor.PlacesAt(rounded...)})
	}
	values := make([]int64, len(all))
	curve := func(g int, straight bool) (tensor.Curve, bool) {
		of := &l.grids[g]
		c, ok := of.at.Curve(values[:base]...)
		ok = ok && !(straight && c.Bend != 0)
		for k := base; ok && k < len(at); k++ {
			var n int64
			n, ok = of.at.At(c, roundUp(at[k], of.multiple))
			ok = ok && n == values[k]
		}
		return c, ok
	}
	for i := range s.events {
		for k := range all {
			values[k] = int64(all[k].events[i].Bytes)
		}
		ok := false
		for g := 0; g < len(l.grids) && !ok; g++ {
			l.grid[i] = uint8(g)
			l.sizes[i], ok = curve(g, true)
		}
		if !ok {
			l.grid[i] = 0
			if l.sizes[i], ok = curve(0, false); !ok {
				return nil
			}
		}
		if n, _ := l.size(i, 0); n < 0 && base == 2 && len(at) == 2 { // of each with each, such as of all pairs in a batch
			if c, square := l.at.Square(values...); square {
				l.grid[i], l.sizes[i] = 0, c
			}
		}
		if c := &l.sizes[i]; s.events[i].Kind == trace.Alloc && (c.Slope != 0 || c.Bend != 0 || c.First <= 0) {
			l.grow = append(l.grow, i)
		}
	}
	if len(multiples) == 0 {
		l.findPeaks(s.blocks)
	}
	known := map[[3]int]int{}
	for i, p := range s.sites {
		var of [3]int
		for k := range all[:base] {
			of[k] = all[k].sites[i].rule
		}
		n, found := known[of]
		if !found {
			n = len(l.rules)
			known[of] = n
			var rules []op.Kernel
			for k := range all[:base] {
				rules = append(rules, all[k].rules[of[k]])
			}
			l.rules = append(l.rules, rules)
		}
		for k := base; k < len(at); k++ {
			if rule, ok := op.KernelThrough(l.at, at[k], l.rules[n]); !ok || rule != all[k].rules[all[k].sites[i].rule] {
				return nil
			}
		}
		p.rule = n
		l.sites = append(l.sites, p)
	}
	return l
}

// goOn adds steps that were not played, which another job has: they are like the last
// one that was. It reports whether those of the other job are like that one.
func (s *skeleton) goOn(o *skeleton) bool {
	n, m := len(s.events), len(s.sites)
	if n == 0 || n >= len(o.events) {
		return true
	}
	last := s.events[n-1].Step
	begin, _ := slices.BinarySearchFunc(o.events, last, func(e trace.Event, step int32) int { return int(e.Step) - int(step) })
	s.events, s.sites = slices.Grow(s.events, len(o.events)-n), slices.Grow(s.sites, max(0, len(o.sites)-m))
	first, _ := slices.BinarySearchFunc(o.sites, last, func(x site, step int32) int { return int(x.event.Step) - int(step) })
	for i := n; i < len(o.events); i++ {
		e, at := o.events[i], begin+(i-n)%(n-begin)
		f := o.events[at]
		if f.ID, f.Step = e.ID, last+1+int32((i-n)/(n-begin)); e != f {
			return false
		}
		e.Bytes = s.events[at].Bytes
		s.events = append(s.events, e)
	}
	for i := m; i < len(o.sites); i++ {
		if m == first {
			return false
		}
		x, at := o.sites[i], first+(i-m)%(m-first)
		if x.rule != o.sites[at].rule {
			return false
		}
		x.rule = s.sites[at].rule
		s.sites = append(s.sites, x)
	}
	s.loops = o.loops
	return true
}

// like reports whether two skeletons differ in nothing but sizes and rules.
func (s *skeleton) like(t *skeleton) bool {
	return slices.EqualFunc(s.events, t.events, func(e, f trace.Event) bool { f.Bytes = e.Bytes; return e == f }) &&
		slices.EqualFunc(s.sites, t.sites, func(p, q site) bool {
			return p.before == q.before && p.event == q.event && slices.Equal(p.results, q.results)
		}) &&
		slices.EqualFunc(s.loops, t.loops, func(m, n loopOfSites) bool {
			return m.Begin == n.Begin && m.End == n.End && m.Turns == n.Turns && m.Steps == n.Steps && m.begin == n.begin && m.end == n.end && slices.Equal(m.Names, n.Names)
		})
}

// told reports whether the first step tells of a job whether it lies on the line: all
// that the second takes by the key's value is taken by the same operators, in the same
// modules and sizes, in the first.
func (l *line) told() bool {
	type take struct {
		op, layer int32
		phase     trace.Phase
		rule      int // of a kernel, from 1
		size      tensor.Curve
	}
	first := map[take]bool{}
	known := func(e *trace.Event, rule int, size tensor.Curve) bool {
		t := take{e.Op, e.Layer, e.Phase, rule, size}
		if e.Step == 1 {
			first[t] = true
		}
		return e.Step != 2 || first[t]
	}
	for i := range l.events {
		if c := l.sizes[i]; (c.Slope != 0 || c.Bend != 0) && !known(&l.events[i], 0, c) {
			return false
		}
	}
	for i := range l.sites {
		if !known(&l.sites[i].event, l.sites[i].rule+1, tensor.Curve{}) {
			return false
		}
	}
	return true
}

// findPeaks finds when something is freed after something was allocated.
func (l *line) findPeaks(blocks int32) {
	live, of := peak{}, make([]peak, blocks+1)
	for i := range l.events {
		switch e := &l.events[i]; e.Kind {
		case trace.Alloc:
			c := &l.sizes[i]
			of[e.ID] = peak{float64(c.First), float64(c.Slope), float64(c.Bend)}
			live.add(of[e.ID], 1)
		case trace.Free:
			if i > 0 && l.events[i-1].Kind == trace.Alloc {
				l.peaks = append(l.peaks, live)
			}
			live.add(of[e.ID], -1)
		}
	}
}

func (p *peak) add(q peak, n float64) {
	p.first += n * q.first
	p.slope += n * q.slope
	p.bend += n * q.bend
}

// needs is what blocks take at the least that live at one time, with a value of the
// key.
func (l *line) needs(k int64) float64 {
	a, b := l.at.From(k)
	most := 0.0
	for _, p := range l.peaks {
		most = max(most, p.first+p.slope*a+p.bend*a*b)
	}
	return most
}

// room is what one goroutine derives and replays jobs in.
type room struct {
	replayer *allocsim.Replayer
	events   []trace.Event
	kernels  *op.Blocks
	kernel   op.Kernel
	scratch  [][]op.Block // of each rule
	shift    []int        // of events after each site
}

// play is what the job allocates with a value of the key; false if the line says
// nothing of it. Of what was played there are only the events and the loops, until the
// room is used again.
func (l *line) play(k int64, r *room) (*engine.Played, bool) {
	if r.kernels == nil {
		r.kernels = op.NewBlocks(l.env)
	}
	r.kernels.Reset()
	r.scratch = r.scratch[:0]
	for i := range l.rules {
		var ok bool
		if r.kernel, ok = op.KernelThrough(l.at, k, l.rules[i]); !ok {
			return nil, false
		}
		r.scratch = append(r.scratch, r.kernels.Of(&r.kernel))
	}
	scratch, events := r.scratch, r.events[:0]
	next, grown := 0, 0
	ids := make([]int32, 0, 16)
	number := l.blocks // of the last block
	shift := r.shift[:0]
	events = slices.Grow(events, len(l.events)+scratchEvents(l, scratch))
	for i := range l.sites {
		s := &l.sites[i]
		if events, grown = l.copy(events, next, s.before, grown, k); grown < 0 {
			return nil, false
		}
		next = s.before
		ids = ids[:0]
		results := s.results
		for _, b := range scratch[s.rule] {
			e := s.event
			if b.Bytes < 0 {
				e.Kind, e.ID = trace.Free, ids[b.Number]
				events = append(events, e)
				continue
			}
			switch {
			case !b.Stays:
				number++
				e.ID = number
			case len(results) == 0:
				return nil, false
			default:
				e.ID, results = results[0], results[1:]
			}
			ids = append(ids, e.ID)
			e.Bytes = b.Bytes
			events = append(events, e)
		}
		if len(results) > 0 {
			return nil, false
		}
		shift = append(shift, len(events)-next)
	}
	if events, grown = l.copy(events, next, len(l.events), grown, k); grown < 0 {
		return nil, false
	}
	r.events, r.shift = events, shift
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

// negative reports whether a size would be less than nothing with the value 0, which
// those on straight lines are not.
func (l *line) negative() bool {
	return slices.ContainsFunc(l.grow, func(i int) bool { n, _ := l.size(i, 0); return n < 0 })
}

// copy appends events up to one, with the sizes that they have with a value of the
// key, grown being how many of those that grow come before; what it returns is negative
// where a size is not there.
func (l *line) copy(events []trace.Event, from, to, grown int, k int64) ([]trace.Event, int) {
	shift := len(events) - from
	events = append(events, l.events[from:to]...)
	for ; grown < len(l.grow) && l.grow[grown] < to; grown++ {
		i := l.grow[grown]
		n, ok := l.size(i, k)
		if !ok || n <= 0 {
			return events, -1
		}
		events[i+shift].Bytes = tensor.Bytes(n)
	}
	return events, grown
}

// scratchEvents counts the events of kernels.
func scratchEvents(l *line, scratch [][]op.Block) (n int) {
	for i := range l.sites {
		n += len(scratch[l.sites[i].rule])
	}
	return n
}

// like reports whether two lists of events are the same but for the numbers of
// blocks; what is played in fewer steps is compared as far as it goes.
func like(derived, played []trace.Event) bool {
	if len(played) > len(derived) || len(played) < len(derived) && len(played) > 0 && derived[len(played)].Step == played[len(played)-1].Step {
		return false
	}
	most := int32(0)
	for i := range played {
		most = max(most, derived[i].ID)
	}
	numbers := make([]int32, most+1)
	for i := range played {
		e, f := &played[i], derived[i]
		switch e.Kind {
		case trace.Alloc:
			numbers[f.ID] = e.ID
		case trace.Free:
			if numbers[f.ID] != e.ID {
				return false
			}
		}
		f.ID = e.ID
		if *e != f {
			return false
		}
	}
	return true
}
