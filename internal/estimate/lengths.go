package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/lengths"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// samples reads the file of a spec's lengths.
func (r *Recipe) samples(l *spec.Lengths) (lengths.Samples, error) {
	if r.ReadFile == nil {
		return nil, errors.New("no files can be read here")
	}
	text, err := r.ReadFile(l.File.V)
	if err != nil {
		return nil, err
	}
	s, err := lengths.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.File.V, err)
	}
	return s, nil
}

func collator(l *spec.Lengths) lengths.Collator {
	return lengths.Collator{Max: l.Max.V, Multiple: l.Multiple.V}
}

// How many runs are simulated: as many as take so many calls of the allocator, about a second
// of work, and no more than a share of the work that a command may do; but no fewer than the
// least. If none of 8 runs fails, the chance to fail is below 33 %; of 64, below 6 %.
const (
	mostCalls = 12 << 20
	workShare = 4
	leastRuns = 8
	mostRuns  = 64
)

// mostShapes is how many lengths are played one by one, where they do not lie on a curve.
const mostShapes = 48

// varying simulates runs whose batches have different lengths. Each length is played
// once, or derived from those that were; runs are put together of their steps.
type varying struct {
	o       *Outcome
	spec    *spec.Lengths
	samples lengths.Samples
	batches int   // of a step
	coarse  int64 // lengths are rounded up to a multiple of it
	turns   map[int64]*turn
	played  map[int64]*engine.Played   // lengths, until all turns are there
	alike   bool                       // the turns differ in sizes alone, batch by batch; otherwise a step is one with its longest batch
	next    func(run int) func() int64 // draws the batches of a run
}

// vary simulates the runs of a job whose spec has lengths, nil if it has none.
func (o *Outcome) vary() (out *report.Lengths, err error) {
	if o.Job.Spec.Lengths == nil {
		return nil, nil
	}
	v := &varying{o: o, spec: o.Job.Spec.Lengths, batches: batches(o.Job.Program), turns: map[int64]*turn{}}
	v.next = func(run int) func() int64 { return v.sampler(run).Next }
	body := o.Job.Program.Step.Body
	if k := slices.IndexFunc(body, func(s program.Stmt) bool { return rare(s) && lasts(s) }); k >= 0 {
		return nil, fmt.Errorf("%s: what runs in every %d-th step only is not modelled where lengths differ", v.spec.Key, body[k].Every)
	}
	if v.samples, err = o.Job.recipe.samples(v.spec); err != nil {
		return nil, err
	}
	v.played = map[int64]*engine.Played{}
	if err := v.play(); err != nil {
		return nil, err
	}
	v.played = nil
	return v.simulate()
}

// lasts reports whether a statement changes what later steps find: the steps of a turn know
// nothing of one that runs in every n-th step only.
func lasts(s program.Stmt) bool {
	switch s.Kind {
	case program.OptStep, program.ZeroGrad, program.KeepValue, program.Backward, program.Append, program.Extend:
		return true
	}
	return false
}

// leftOut reports whether the runs leave out what may take memory: evaluations, and statements
// that run in every n-th step only. Those of trainers are logs of a few numbers.
func (j *Job) leftOut() bool {
	return j.Program.Eval != nil || slices.ContainsFunc(j.Program.Step.Body, func(s program.Stmt) bool {
		return rare(s) && (j.Spec.Trainer == nil || s.Kind == program.EmptyCache)
	})
}

// batches is how many batches a step takes.
func batches(p *program.Job) (n int) {
	for i := range p.Step.Body {
		if p.Step.Body[i].Kind == program.Batch {
			n++
		}
	}
	return max(n, 1)
}

// sampler draws the batches of one run.
func (v *varying) sampler(run int) *lengths.Sampler {
	s := lengths.NewSampler(v.samples, uint64(run))
	s.Batch, s.Step, s.Grouped, s.Collator = int(v.o.Job.Program.Batch), v.batches, v.spec.Grouped.V, collator(v.spec)
	return s
}

// aligned is the multiple up to which it counts whether a length is one: kernels that read
// 16 bytes at once take 8 numbers of 16 bits, and where a row does not end there, tensors are
// padded or other kernels run.
const aligned = 8

// alignment is the greatest power of two up to aligned that a length is a multiple of.
func alignment(n int64) int64 { return min(n&-n, aligned) }

// length is the one that is played for a batch: rounded up by less than coarse, to one that
// is a multiple of the same powers of two.
func (v *varying) length(n int64) int64 {
	own, longest := alignment(n), v.longest()
	n = roundUp(n, v.coarse)
	if own < min(v.coarse, aligned) {
		n -= own
	}
	switch {
	case n <= longest:
		return n
	case own < aligned: // the last that is such a multiple
		return longest - (longest+own)%(2*own)
	}
	return longest - longest%aligned
}

func (v *varying) longest() int64 { return collator(v.spec).Pad(v.samples.Longest()) }

// shapes lists the lengths that batches may have.
func (v *varying) shapes() []int64 {
	c := collator(v.spec)
	seen := map[int64]bool{}
	for _, n := range v.samples {
		seen[v.length(c.Pad(int64(n)))] = true
	}
	var out []int64
	for n := range seen {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// playedSteps are how many steps of each length are played.
const playedSteps = 3

// play makes a turn of each length: a few are played, and the others lie on the curve
// through them; or on one for each alignment; or all are played.
func (v *varying) play() error {
	v.coarse = 1
	p, err := v.playLength(v.longest())
	if err != nil {
		return err
	}
	calls := len(p.Trace.Events)
	all := v.shapes()
	for ; len(all)*calls > heldCalls && v.coarse < v.longest(); all = v.shapes() {
		v.coarse *= 2
	}
	v.o.Job.meter.Hold(tensor.Bytes(len(all)*calls) * callBytes)
	kinds := map[int64][]int64{}
	for _, n := range all {
		kinds[alignment(n)] = append(kinds[alignment(n)], n)
	}
	derived, err := v.derive(all)
	if !derived && err == nil && len(kinds) > 1 {
		derived = true
		for own := int64(1); own <= aligned && derived && err == nil; own *= 2 {
			derived, err = v.derive(kinds[own])
		}
	}
	if err != nil {
		return err
	}
	if !derived {
		for v.turns = map[int64]*turn{}; len(all) > mostShapes; all = v.shapes() {
			v.coarse *= 2
		}
		if err := v.playAll(all); err != nil {
			return err
		}
	}
	return v.compare()
}

// playAll makes turns of lengths that are played.
func (v *varying) playAll(all []int64) error {
	for _, n := range all {
		p, err := v.playLength(n)
		if err != nil {
			return err
		}
		if v.turns[n], err = newTurn(p, v.numbers(p), v.batches); err != nil {
			return err
		}
	}
	return nil
}

// playLength plays the job with batches of one length.
func (v *varying) playLength(n int64) (*engine.Played, error) {
	if p := v.played[n]; p != nil {
		return p, nil
	}
	j, err := v.o.Job.recipe.Job(Key{v.spec.Key, fmt.Sprint(n)})
	if err != nil {
		return nil, fmt.Errorf("with a batch of length %d: %w", n, err)
	}
	defer j.metered(&err)()
	o, err := play(j, playedSteps)
	if err != nil {
		return nil, err
	}
	if v.played != nil && len(v.played) < mostKept {
		v.played[n] = o.Played
	}
	return o.Played, nil
}

// mostKept is how many lengths that were played are kept for another curve.
const mostKept = 16

// heldCalls is how many calls are held of all lengths together, callBytes what each takes.
const (
	heldCalls = 4 << 20
	callBytes = 24
)

// roundings are what kernels round lengths up to a multiple of: tiles of attention and of
// matrix products, and vectors.
var roundings = []int64{8, 16, 32, 64, 128, 256}

// derive makes turns of lengths that lie on a curve through three of them; false if they do
// not. Others are played where the curve may not hold, and two more to see that it does.
// A few lengths are played one by one, and so is 1: a dimension of size 1 is not like others.
func (v *varying) derive(all []int64) (bool, error) {
	const few = 8
	if len(all) <= few {
		return true, v.playAll(all)
	}
	if all[0] == 1 {
		if err := v.playAll(all[:1]); err != nil {
			return false, err
		}
		all = all[1:]
	}
	at := []int64{all[0], all[len(all)/2], all[len(all)-1]}
	multiples := []int64{1}
	for _, m := range roundings {
		if roundUp(at[0], m) < roundUp(at[1], m) && roundUp(at[1], m) < roundUp(at[2], m) {
			multiples = append(multiples, m)
		}
	}
	at = append(at, telling(all, multiples)...)
	played := make([]*engine.Played, len(at))
	for i, n := range at {
		var err error
		if played[i], err = v.playLength(n); err != nil {
			return false, err
		}
	}
	l := newLine(at, played, &v.o.Job.Machine.Env, multiples[1:]...)
	if l == nil {
		return false, nil
	}
	r := &room{}
	for _, i := range []int{(1 + len(all)) / 3, len(all) - 2} {
		p, err := v.playLength(all[i])
		if err != nil {
			return false, err
		}
		if d, ok := l.play(all[i], r); !ok || !like(d.Trace.Events, p.Trace.Events) {
			return false, nil
		}
	}
	for _, n := range all {
		q, ok := l.play(n, r)
		if !ok {
			return false, nil
		}
		numbers := func(id int32) int32 {
			if id > l.blocks {
				return 0
			}
			return id
		}
		var err error
		if v.turns[n], err = newTurn(q, lasting(q.Trace.Events, numbers), v.batches); err != nil {
			return false, err
		}
	}
	return true, nil
}

// telling lists lengths that tell each two multiples apart to which sizes may be rounded, and
// one of each alignment: each is the one that tells most of what those before it do not.
func telling(all, multiples []int64) (out []int64) {
	tells := make([]uint64, len(all)) // a bit for each alignment and each two multiples
	for i, n := range all {
		tells[i] = uint64(alignment(n))
		bit := uint64(2 * aligned)
		for j, m := range multiples {
			for _, k := range multiples[:j] {
				if roundUp(n, m) != roundUp(n, k) {
					tells[i] |= bit
				}
				bit <<= 1
			}
		}
	}
	for told := uint64(0); ; {
		best := 0
		for i := range tells {
			if bits.OnesCount64(tells[i]&^told) > bits.OnesCount64(tells[best]&^told) {
				best = i
			}
		}
		if tells[best]&^told == 0 {
			return out
		}
		out, told = append(out, all[best]), told|tells[best]
	}
}

// compare looks how far the turns are alike. Where a step ends with other blocks than
// the next one begins with, runs cannot be put together.
func (v *varying) compare() error {
	v.alike = true
	var first *turn
	for _, t := range v.turns {
		if first == nil {
			first = t
		}
		if len(t.step.out) != len(first.step.out) || t.starts != first.starts {
			return errors.New("batches of different lengths leave different blocks to the next step, which is not modelled")
		}
		v.alike = v.alike && !t.start.mixed && !t.step.mixed && t.start.like(first.start) && t.step.like(first.step)
	}
	return nil
}

// run is one run that was simulated.
type run struct {
	lengths, allocated, reserved []float64
	failed                       int   // the step that ran out of memory, 0: none did
	longest                      int64 // of the batches of the last step
	retried                      bool
	seen                         map[int64]bool
}

// simulate simulates the runs.
func (v *varying) simulate() (*report.Lengths, error) {
	calls := 0
	for _, t := range v.turns {
		calls = max(calls, len(t.step.calls))
	}
	steps := int(v.spec.Steps.V)
	most := min(mostCalls, v.o.Job.meter.Limit()/workShare/callWork)
	n := min(max(int(most)/max(calls*steps, 1), leastRuns), mostRuns)
	runs := make([]*run, n)
	errs := make([]error, n)
	v.o.Job.meter.Work(int64(n) * int64(steps) * int64(calls) * callWork)
	v.o.Job.meter.Check()
	pool.Do(n, func(i int) { runs[i], errs[i] = v.run(i, steps) })
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := &report.Lengths{Key: v.spec.Key, File: v.spec.File.V, Samples: len(v.samples), Longest: v.longest(), Runs: n, Steps: steps, RoundedTo: v.coarse}
	seen := map[int64]bool{}
	var ls, as, rs []float64
	var failing []int64
	for _, r := range runs {
		ls, as, rs = append(ls, r.lengths...), append(as, r.allocated...), append(rs, r.reserved...)
		switch {
		case r.failed > 0:
			out.Failed++
			out.Earliest = min(cmp.Or(out.Earliest, r.failed), r.failed)
			failing = append(failing, r.longest)
		case r.retried:
			out.Retried++
		}
		for l := range r.seen {
			seen[l] = true
		}
	}
	out.Shapes = len(seen)
	out.Batch, out.Allocated, out.Reserved = quantiles(ls), quantiles(as), quantiles(rs)
	out.Low, out.High = wilson(out.Failed, n)
	slices.Sort(failing)
	for _, n := range slices.Compact(failing) {
		if fails, err := v.alone(n); err != nil {
			return nil, err
		} else if fails {
			out.Alone = n
		}
	}
	return out, nil
}

// alone reports whether a run whose batches have one length runs out of memory. Of the
// longest, the verdict says so.
func (v *varying) alone(n int64) (bool, error) {
	if n == v.longest() {
		return false, nil
	}
	w := *v
	w.next = func(int) func() int64 { return func() int64 { return n } }
	r, err := w.run(0, playedSteps)
	return err == nil && r.failed > 0, err
}

// callWork is what a call counts as work.
const callWork = 1

// run simulates one run at the device's capacity.
func (v *varying) run(seed, steps int) (*run, error) {
	m := v.o.Job.Machine
	driver := allocsim.NewVirtualDriver(m.Total)
	driver.Occupy(m.Context + m.Occupied)
	a, err := allocsim.New(m.Conf, driver, allocsim.Options{})
	if err == nil && m.Fraction != nil {
		err = a.SetMemoryFraction(*m.Fraction)
	}
	if err != nil {
		return nil, err
	}
	drawn, r := v.next(seed), &run{seen: map[int64]bool{}}
	draw := make([]int64, v.batches)
	next := func() int64 {
		longest := int64(0)
		for i := range draw {
			n := drawn()
			r.lengths = append(r.lengths, float64(n))
			draw[i] = v.length(n)
			r.seen[draw[i]] = true
			longest = max(longest, draw[i])
		}
		r.longest = longest
		return longest
	}
	note := func(step int, err error) (bool, error) {
		st := a.Stats()
		r.allocated = append(r.allocated, float64(st.AllocatedBytes.All.Peak))
		r.reserved = append(r.reserved, float64(st.ReservedBytes.All.Peak))
		r.retried = st.NumAllocRetries > 0
		if oom := (*allocsim.OOMError)(nil); errors.As(err, &oom) {
			r.failed = step
			return true, nil
		}
		return false, err
	}
	var carried []allocsim.Block
	own, scratch := make([]allocsim.Block, 0, 1024), make([]allocsim.Block, 0, 64)
	step := 0
	for step < steps {
		t := v.turns[next()]
		of := make([]*turn, v.batches)
		for i, n := range draw {
			if of[i] = t; v.alike {
				of[i] = v.turns[n]
			}
		}
		a.ResetPeaks()
		pick := func(t *turn) *section { return t.step }
		if step == 0 {
			pick, step = func(t *turn) *section { return t.start }, t.starts-1
		}
		sections := make([]*section, v.batches)
		for i, t := range of {
			sections[i] = pick(t)
		}
		err = pick(t).feed(a, sections, carried, &own, &scratch)
		step++
		if end, err := note(step, err); end || err != nil {
			return r, err
		}
		carried = carried[:0]
		for _, k := range pick(t).out {
			carried = append(carried, own[k])
		}
	}
	return r, nil
}

// quantiles are those of a list, which they sort.
func quantiles(x []float64) report.Quantiles {
	if len(x) == 0 {
		return report.Quantiles{}
	}
	slices.Sort(x)
	at := func(q float64) int64 { return int64(x[min(int(q*float64(len(x))), len(x)-1)]) }
	return report.Quantiles{P50: at(0.5), P99: at(0.99), Max: int64(x[len(x)-1])}
}

// wilson is the interval in which a chance lies with 95 %, of which k of n are known
// (Wilson 1927).
func wilson(k, n int) (low, high float64) {
	const z = 1.959964
	p, m := float64(k)/float64(n), float64(n)
	mid, half := p+z*z/(2*m), z*math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(0, (mid-half)/(1+z*z/m)), min(1, (mid+half)/(1+z*z/m))
}

// lengths adds what runs with batches of different lengths do. The job fits if the longest
// batch does, and none of the runs runs out of memory; it is tight if one of them needs
// cached memory back.
func (o *Outcome) lengths(r *report.Report) {
	l := o.Varied
	if r.Lengths = l; l == nil {
		return
	}
	v := &r.Verdict
	if o.Job.leftOut() {
		r.Add(note.Unsettled.New("the runs with batches of different lengths leave out evaluations and what runs in every n-th step only"))
	}
	switch {
	case v.Fits && l.Failed > 0:
		why := "batches of different lengths fragment the memory"
		if l.Alone > 0 {
			why = fmt.Sprintf("batches of length %d run out of memory, though those of length %d do not", l.Alone, l.Longest)
		}
		v.Fits, v.Tight, v.Result = false, false, report.OOMs
		v.Reason = fmt.Sprintf("%s: %s\nthe longest batch by itself fits: %s", why, l.Says(), v.Reason)
	case v.Fits:
		if l.Retried > 0 {
			v.Tight, v.Result = true, report.Tight
		}
		v.Reason += "\nwith the longest batch; " + l.Says()
	default:
		v.Reason = fmt.Sprintf("%s\nthe longest batch by itself: %s", l.Says(), v.Reason)
	}
}
