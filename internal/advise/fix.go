package advise

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
)

// Limits are where the search for proposals ends.
type Limits struct {
	Proposals int // that fit; then it ends
	// Events bounds the allocations and frees that are simulated, all together:
	// a measure of time that is the same on all machines. 0: no bound.
	Events int64
	// Alone bounds them where one change is simulated by itself, if that is more: what
	// is simplest is not left out for what it takes to say so.
	Alone int64
	// Progress, if it is there, is called now and then with the simulations made
	// and the proposals found.
	Progress func(tried, found int)
}

// The limits of a search that was not asked for, which takes a third of a second on two
// cores, and of one that was asked for, which takes ten.
var (
	ByItself = Limits{Proposals: 3, Events: 300_000, Alone: 1_000_000}
	Asked    = Limits{Proposals: 5, Events: 10_000_000}
)

// Proposal is a set of changes.
type Proposal struct {
	Options  []*Option
	Keys     []estimate.Key
	Outcome  *estimate.Outcome // of the job with these changes
	Cost     float64
	Slowdown float64 // time of a step by that before
	Fits     bool
	// First says that everything that comes before it was tried or excluded.
	First bool
}

// Numerics is the greatest change of numbers among the changes.
func (p *Proposal) Numerics() Numerics {
	n := Same
	for _, o := range p.Options {
		n = max(n, o.Numerics())
	}
	return n
}

// Effort is the greatest work among the changes.
func (p *Proposal) Effort() Effort {
	e := Switch
	for _, o := range p.Options {
		e = max(e, o.Change.Effort)
	}
	return e
}

// Fixes are what a search for proposals found.
type Fixes struct {
	// Proposals fit, and nothing less than all of their changes does as well. They
	// come by simplicity, and no combination of the catalogue that comes before fits
	// but those that have the changes of a proposal and more, or the same with other
	// values.
	Proposals []*Proposal
	// Smallest is, where nothing fits, what was found to need the least.
	Smallest *Proposal
	Tried    int // simulations
	Known    int // combinations of which a bound told that they do not fit
	All      int // combinations there are
	// Cut says that the search ended at its limit: combinations were left out that
	// may come before proposals that are not said to be the first.
	Cut bool
}

// batch is how many combinations are simulated at the most before what was learnt
// from them is used; at first it is firstBatch, and then it doubles. Both are the
// same on all machines, so that results are.
const (
	firstBatch = 4
	batch      = 16
	partsBatch = 2 // of what a combination that will do is made of
)

// outcome is what came of a combination.
type outcome uint8

const (
	fails outcome = iota // or cannot be made: the changes do not go together
	tight
	fits
)

// clash is a set of changes that cannot be made, and neither can those that have them,
// but for those that have a change which fixes it, too.
type clash struct {
	of    *combination
	mends []*Option
}

// fixer is one search under way.
type fixer struct {
	ctx    context.Context
	base   *Base
	limits Limits
	bounds *bounds
	enough outcome // will do
	host   bool    // host memory suffices, and must go on to

	cut      *combination                 // the first that was left out; nil: none was
	known    map[string]outcome           // by id
	makes    map[string]bool              // whether combinations can be made, by id
	played   map[string]*estimate.Outcome // of those that will do and may be proposed, by id
	options  []*Option                    // of the catalogue
	programs map[string]*estimate.Outcome // what was played of combinations, by what their jobs allocate by; nil: they cannot be played
	kept     int                          // events of programs
	clashes  []clash
	events   int64
	tried    int
	varied   int
	smallest *combination
	peak     tensor.Bytes // of smallest, in tensors
}

// Fix finds the simplest changes with which a job fits that does not, or that fits
// only after cached memory is given back: then those with which it need not. The
// base was run; catalogue are the changes to try. The error is ctx's.
func Fix(ctx context.Context, r *estimate.Recipe, o *estimate.Outcome, catalogue []*Change, limits Limits) (*Fixes, error) {
	b := newBase(r, o)
	f := &fixer{
		ctx: ctx, base: b, limits: limits, enough: tight, host: o.FitsHost(), bounds: newBounds(o.Job.Machine.Usable()),
		known: map[string]outcome{}, makes: map[string]bool{}, played: map[string]*estimate.Outcome{}, programs: map[string]*estimate.Outcome{},
	}
	if o.Fits() {
		f.enough = fits
	}
	f.bounds.learn(&combination{}, o)
	groups := b.options(catalogue)
	f.options = slices.Concat(groups...)
	f.remember(&combination{}, o, true)
	all := b.combinations(groups)
	out := &Fixes{All: len(all)}
	var found []*combination // in their order
	for next, size := 0, firstBatch; next < len(all) && !f.done(found, all[next]) && f.varied <= mostVaried; size = min(2*size, batch) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var trial []*combination
		pending := 0.0
		for ; next < len(all) && len(trial) < size; next++ {
			c := all[next]
			if slices.ContainsFunc(trial, c.exceeds) { // and is covered, if that one will do
				break
			}
			switch {
			case f.covered(found, c, fits), f.clash(c):
			case f.bounds.hopeless(c):
				out.Known++
			case f.exceeds(c, pending):
				if f.cut == nil {
					f.cut = c
				}
			default:
				trial = append(trial, c)
				pending += c.size
			}
		}
		f.simulate(trial)
		for _, c := range trial {
			verdict := f.known[c.id]
			c.tight = verdict == tight
			if verdict < f.enough || f.done(found, c) || f.covered(found, c, verdict) || !f.whole(c) || !f.withLengths(c) {
				continue
			}
			found = slices.DeleteFunc(found, func(d *combination) bool { return d.varies(c) && bySimplicity(c, d) < 0 })
			found = append(found, c)
			slices.SortStableFunc(found, bySimplicity)
		}
		f.keep(found[:min(len(found), max(limits.Proposals, 1))])
		if limits.Progress != nil {
			limits.Progress(f.tried, len(found))
		}
	}
	out.Cut = f.cut != nil
	if len(found) == 0 && f.varied == 0 {
		if c := f.last(all); c != nil {
			found = append(found, c)
		}
	}
	for _, c := range found[:min(len(found), max(limits.Proposals, 1))] {
		p, err := f.proposal(c)
		if err != nil {
			return nil, err
		}
		p.First = p.Fits && (f.cut == nil || bySimplicity(c, f.cut) < 0)
		if f.known[c.id] >= f.enough {
			out.Proposals = append(out.Proposals, p)
		} else {
			out.Smallest = p
		}
	}
	out.Tried = f.tried
	return out, ctx.Err()
}

// done reports whether enough is found that comes before what the next would be.
func (f *fixer) done(found []*combination, next *combination) bool {
	n := f.limits.Proposals
	return len(found) >= n && bySimplicity(found[n-1], next) <= 0
}

// exceeds reports whether a combination, with others that are pending, would take more
// than is left; a few are made whatever they take.
func (f *fixer) exceeds(c *combination, pending float64) bool {
	limit := f.limits.Events
	if limit == 0 {
		return false
	}
	if len(c.options) == 1 {
		limit = max(limit, f.limits.Alone)
	}
	events := int64((pending + c.size) * float64(len(f.base.Outcome.Played.Trace.Events)))
	return f.tried >= firstBatch && f.events+events > limit
}

// covered reports whether a proposal says already what a combination would that
// has this outcome: with fewer changes, or cheaper values, and an outcome no worse, or
// with other values of the same changes that come before.
func (f *fixer) covered(found []*combination, c *combination, verdict outcome) bool {
	return slices.ContainsFunc(found, func(d *combination) bool {
		return c.exceeds(d) && f.known[d.id] >= verdict || c.varies(d) && bySimplicity(d, c) < 0
	})
}

// clash reports whether some changes of a combination are known not to go together, or
// not with the job.
func (f *fixer) clash(c *combination) bool {
	return slices.ContainsFunc(f.clashes, func(x clash) bool {
		return c.has(x.of) && !slices.ContainsFunc(x.mends, func(o *Option) bool { return slices.Contains(c.options, o) })
	})
}

// clashed finds which changes of a combination that cannot be made do not go together:
// two of them, or as few as there are; or the one that does not go with the job. With that one others
// may go that change what it does not go with: offloading with another precision.
func (f *fixer) clashed(c *combination) {
	var alone []*Option // those that go with the job
	for _, x := range c.options {
		if f.made(x) {
			alone = append(alone, x)
			continue
		}
		one := clash{of: f.base.combine([]*Option{x})}
		if f.clash(one.of) {
			continue // and is mended
		}
		for i, y := range f.options {
			pair := []*Option{x, y}
			if i < slices.Index(f.options, x) {
				pair = []*Option{y, x}
			}
			if x.Change.Group != y.Change.Group && f.made(pair...) {
				one.mends = append(one.mends, y)
			}
		}
		f.clashes = append(f.clashes, one)
		return
	}
	for i, x := range alone {
		for _, y := range alone[:i] {
			if !f.made(y, x) {
				f.clashes = append(f.clashes, clash{of: f.base.combine([]*Option{y, x})})
				return
			}
		}
	}
	for _, x := range c.options { // without which it cannot be made either
		if rest := f.base.combine(slices.DeleteFunc(slices.Clone(c.options), func(y *Option) bool { return x == y })); !f.made(rest.options...) {
			c = rest
		}
	}
	f.clashes = append(f.clashes, clash{of: c})
}

// made reports whether some changes can be made.
func (f *fixer) made(options ...*Option) bool {
	c := f.base.combine(options)
	made, known := f.makes[c.id]
	if !known {
		_, err := f.base.Recipe.Job(c.keys()...)
		made = err == nil
		f.makes[c.id] = made
	}
	return made
}

// noticed is the part of the reserved memory, one hundredth, that a change must
// free to be named in a job that fits without it.
const noticed = 100

// Save simulates each change of the catalogue by itself, in a job that fits, and
// returns those by which noticeably less is reserved, in the order of simplicity; of
// the values of one change those that leave more room than cheaper ones.
func Save(ctx context.Context, r *estimate.Recipe, o *estimate.Outcome, catalogue []*Change) (*Fixes, error) {
	b := newBase(r, o)
	f := &fixer{ctx: ctx, base: b}
	var all []*combination
	for _, group := range b.options(catalogue) {
		for _, x := range group {
			all = append(all, b.combine([]*Option{x}))
		}
	}
	slices.SortFunc(all, bySimplicity)
	proposals := make([]*Proposal, len(all))
	parallel(len(all), func(i int) {
		if ctx.Err() == nil {
			proposals[i], _ = f.proposal(all[i]) // nil: it cannot be made in this job
		}
	})
	out := &Fixes{All: len(all)}
	reserved := func(o *estimate.Outcome) tensor.Bytes { return o.Free.PeakReserved.Reserved }
	most := reserved(o) - reserved(o)/noticed
	var shown []int
	for i, p := range proposals {
		if p == nil {
			continue
		}
		out.Tried++
		beaten := func(k int) bool {
			return all[i].varies(all[k]) && reserved(proposals[k].Outcome) <= reserved(p.Outcome)
		}
		if p.Fits && reserved(p.Outcome) <= most && !slices.ContainsFunc(shown, beaten) {
			shown = append(shown, i)
			out.Proposals = append(out.Proposals, p)
		}
	}
	return out, ctx.Err()
}

// simulate tries combinations on all cores, each once. What they tell of others
// is learnt in their order.
func (f *fixer) simulate(cs []*combination) {
	cs = slices.DeleteFunc(slices.Clone(cs), func(c *combination) bool { _, known := f.known[c.id]; return known })
	outcomes, makes := make([]*estimate.Outcome, len(cs)), make([]bool, len(cs))
	parallel(len(cs), func(i int) {
		if f.ctx.Err() != nil {
			return
		}
		outcomes[i], makes[i] = f.try(cs[i])
	})
	for i, c := range cs {
		o := outcomes[i]
		f.known[c.id], f.makes[c.id] = fails, makes[i]
		f.remember(c, o, makes[i])
		if o == nil {
			if f.ctx.Err() == nil && !makes[i] && !f.clash(c) {
				f.clashed(c)
			}
			continue
		}
		switch {
		case o.Fits() && f.host && !o.FitsHost():
		case o.Fits() && o.Retries():
			f.known[c.id] = tight
		case o.Fits():
			f.known[c.id] = fits
		}
		if f.known[c.id] >= f.enough {
			f.played[c.id] = o
		}
		f.tried++
		f.events += int64(len(o.Played.Trace.Events))
		if peak := f.bounds.learn(c, o); f.smallest == nil || peak < f.peak {
			f.smallest, f.peak = c, peak
		}
	}
}

// keep drops what was played of all but some combinations.
func (f *fixer) keep(cs []*combination) {
	maps.DeleteFunc(f.played, func(id string, _ *estimate.Outcome) bool {
		return !slices.ContainsFunc(cs, func(c *combination) bool { return c.id == id })
	})
}

// try simulates a combination, if it can be made; nil if it cannot be played.
func (f *fixer) try(c *combination) (o *estimate.Outcome, made bool) {
	twin, known := f.programs[c.program()]
	if known && twin == nil {
		return nil, true
	}
	j, err := f.base.Recipe.Job(c.keys()...)
	if err != nil {
		return nil, false
	}
	if known {
		o, err = estimate.TryAs(j, twin)
	} else {
		o, err = estimate.Try(j)
	}
	if err != nil {
		return nil, true
	}
	return o, true
}

// mostKept is how many events of what was played are kept for combinations that differ in
// the allocator alone.
const mostKept = 1 << 19

// remember keeps what was played of a combination that was made, o, or that it cannot be
// played, if others may differ from it in the allocator alone.
func (f *fixer) remember(c *combination, o *estimate.Outcome, made bool) {
	if !made || f.ctx.Err() != nil || !slices.ContainsFunc(f.options, (*Option).ofAllocator) {
		return
	}
	id := c.program()
	if _, known := f.programs[id]; known {
		return
	}
	if o == nil {
		f.programs[id] = nil
	} else if n := len(o.Played.Trace.Events); o.Whole() && f.kept+n <= mostKept {
		f.programs[id] = &estimate.Outcome{Played: o.Played}
		f.kept += n
	}
}

// whole reports whether no part of a combination that fits does as well alone.
func (f *fixer) whole(c *combination) bool {
	var parts []*combination
	for _, p := range f.base.parts(c) {
		if !f.bounds.hopeless(p) && !f.clash(p) {
			parts = append(parts, p)
		}
	}
	for some := range slices.Chunk(parts, partsBatch) {
		if f.simulate(some); slices.ContainsFunc(some, func(p *combination) bool { return f.known[p.id] >= f.known[c.id] }) {
			return false
		}
	}
	return true
}

// mostVaried is of how many combinations runs with batches of different lengths are simulated,
// each of which takes as long as the estimate.
const mostVaried = 8

// withLengths reports whether a combination that will do with the longest batch does so in runs with
// batches of different lengths, too; true where all have one length.
func (f *fixer) withLengths(c *combination) bool {
	if f.base.Outcome.Varied == nil {
		return true
	}
	if f.varied++; f.varied > mostVaried {
		if f.cut == nil {
			f.cut = c
		}
		return false
	}
	o, err := f.run(c)
	switch {
	case err != nil || !o.Fits():
		f.known[c.id] = fails
	case o.Retries():
		f.known[c.id], c.tight = tight, true
	}
	return f.known[c.id] >= f.enough
}

// last is what remains to be said when the search found nothing. What each change
// was seen to do gives a guess of what combinations need: first those are simulated
// that may fit by it, in their order, then those that seem to need the least.
// If one will do, it is the first of its parts that does; if none, the one that
// was found to need the least.
func (f *fixer) last(all []*combination) *combination {
	all = slices.DeleteFunc(all, f.large)
	f.simulate(slices.DeleteFunc(slices.Clone(all), func(c *combination) bool { return len(c.options) > 1 || f.bounds.hopeless(c) || f.clash(c) }))
	guess := map[*combination]tensor.Bytes{}
	var hopeful []*combination
	for _, c := range all {
		if guess[c] = f.bounds.guess(c); guess[c] <= f.bounds.usable {
			hopeful = append(hopeful, c)
		}
	}
	slices.SortStableFunc(all, func(x, y *combination) int { return cmp.Compare(guess[x], guess[y]) })
	c := f.first(hopeful)
	if c == nil {
		c = f.first(all)
	}
	if c == nil {
		all = slices.DeleteFunc(all, f.clash)
		f.simulate(all[:min(len(all), firstBatch)])
		return f.smallest
	}
	parts := append(f.base.parts(c), c)
	slices.SortFunc(parts, bySimplicity)
	for _, p := range parts {
		if !f.bounds.hopeless(p) && !f.clash(p) {
			if f.simulate([]*combination{p}); f.known[p.id] >= f.enough && f.whole(p) {
				return p
			}
		}
	}
	return c
}

// first simulates some combinations in their order until one will do.
func (f *fixer) first(cs []*combination) *combination {
	for before := f.tried; len(cs) > 0 && f.tried < before+2*batch && f.ctx.Err() == nil; {
		var trial []*combination
		for ; len(cs) > 0 && len(trial) < firstBatch; cs = cs[1:] {
			if !f.bounds.hopeless(cs[0]) && !f.clash(cs[0]) {
				trial = append(trial, cs[0])
			}
		}
		f.simulate(trial)
		if i := slices.IndexFunc(trial, func(c *combination) bool { return f.known[c.id] >= f.enough }); i >= 0 {
			return trial[i]
		}
	}
	return nil
}

// large reports whether one simulation would take a good part of the limit.
func (f *fixer) large(c *combination) bool {
	const part = 4
	events := int64(c.size * float64(len(f.base.Outcome.Played.Trace.Events)))
	return f.limits.Events > 0 && events > f.limits.Events/part
}

// proposal runs a combination as estimate does.
func (f *fixer) proposal(c *combination) (*Proposal, error) {
	o, err := f.run(c)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Options: c.options, Keys: c.keys(), Outcome: o, Cost: c.cost, Slowdown: 1, Fits: o.Fits()}
	if before := f.base.seconds(nil); before > 0 {
		p.Slowdown = c.seconds / before
	}
	return p, nil
}

// run runs the job of a combination, unless it was played.
func (f *fixer) run(c *combination) (*estimate.Outcome, error) {
	if o := f.played[c.id]; o != nil {
		return o, estimate.Complete(o)
	}
	j, err := f.base.Recipe.Job(c.keys()...)
	if err != nil {
		return nil, err
	}
	return estimate.Run(j)
}
