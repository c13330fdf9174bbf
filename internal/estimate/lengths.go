package estimate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/lengths"
	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
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

// How many runs are simulated: as many as take so many calls of the allocator, and no
// fewer than the least.
const (
	mostCalls = 12 << 20
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
	alike   bool // the turns differ in sizes alone
}

// vary simulates the runs of a job whose spec has lengths.
func (o *Outcome) vary() (out *report.Lengths, err error) {
	defer o.Job.metered(&err)()
	v := &varying{o: o, spec: o.Job.Spec.Lengths, batches: batches(o.Job.Program), turns: map[int64]*turn{}}
	if v.samples, err = o.Job.recipe.samples(v.spec); err != nil {
		return nil, err
	}
	if err := v.play(); err != nil {
		return nil, err
	}
	return v.simulate()
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

// length is the one that is played for a batch.
func (v *varying) length(n int64) int64 {
	return min((n+v.coarse-1)/v.coarse*v.coarse, v.longest())
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

// play makes a turn of each length: three or four are played, and the others lie on the
// curve through them; or all are.
func (v *varying) play() error {
	v.coarse = 1
	all := v.shapes()
	if len(all) > 4 {
		if ok, err := v.derive(all); ok || err != nil {
			return err
		}
		for v.turns = map[int64]*turn{}; len(all) > mostShapes; all = v.shapes() {
			v.coarse *= 2
		}
	}
	for _, n := range all {
		p, err := v.playLength(n)
		if err != nil {
			return err
		}
		if v.turns[n], err = newTurn(p, v.batches); err != nil {
			return err
		}
	}
	return v.compare()
}

// playLength plays the job with batches of one length.
func (v *varying) playLength(n int64) (*engine.Played, error) {
	j, err := v.o.Job.recipe.Job(Key{v.spec.Key, fmt.Sprint(n)})
	if err != nil {
		return nil, fmt.Errorf("with a batch of length %d: %w", n, err)
	}
	defer j.metered(&err)()
	o, err := play(j, playedSteps)
	if err != nil {
		return nil, err
	}
	return o.Played, nil
}

// heldCalls is how many calls are held of all lengths together, callBytes what each takes.
const (
	heldCalls = 4 << 20
	callBytes = 24
)

// multiples are what kernels round lengths up to.
var multiples = []int64{8, 16, 32, 64, 128, 256}

// derive lays a curve through three lengths, and looks whether two more lie on it.
func (v *varying) derive(all []int64) (bool, error) {
	low := 0
	if all[0] == 1 { // a dimension of size 1 is not like others
		low = 1
	}
	at := []int64{all[low], all[(low+len(all))/2], all[len(all)-1]}
	if at[0] == at[1] || at[1] == at[2] {
		return false, nil
	}
	played := make([]*engine.Played, len(at))
	for i, n := range at {
		var err error
		if played[i], err = v.playLength(n); err != nil {
			return false, err
		}
	}
	l := newLine(at, played, &v.o.Job.Machine.Env, multiples...)
	if l == nil {
		return false, nil
	}
	r := &room{}
	for _, i := range []int{(low + 1 + len(all)) / 3, len(all) - 2} {
		p, err := v.playLength(all[i])
		if err != nil {
			return false, err
		}
		if d, ok := l.play(all[i], r); !ok || !like(d.Trace.Events, p.Trace.Events) {
			return false, nil
		}
	}
	calls := len(played[2].Trace.Events) / playedSteps
	for len(all)*calls > heldCalls {
		v.coarse *= 2
		all = v.shapes()
	}
	v.o.Job.meter.Hold(tensor.Bytes(len(all)*calls) * callBytes)
	for _, n := range all {
		q, ok := played[0], true
		var err error
		if n > 1 {
			q, ok = l.play(n, r)
		} else {
			q, err = v.playLength(n)
		}
		if err == nil && ok {
			v.turns[n], err = newTurn(q, v.batches)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, v.compare()
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
		if len(t.out) != len(first.out) || t.starts != first.starts {
			return errors.New("batches of different lengths leave different blocks to the next step, which is not modelled")
		}
		v.alike = v.alike && slices.EqualFunc(t.calls, first.calls, func(a, b call) bool {
			return a.block == b.block && a.batch == b.batch && (a.bytes < 0) == (b.bytes < 0) && a.stream == b.stream
		})
	}
	return nil
}

// turn is a step of a job as calls of the allocator.
type turn struct {
	start  []trace.Event // what comes before the first step that is a turn
	starts int           // blocks of it that the first turn frees
	first  []int32       // those blocks
	calls  []call
	out    []int32 // allocations of the turn that the next one frees, by their order
	blocks int32   // allocations
}

// call is one call of the allocator. Blocks of the turn are counted from 0; the k-th of
// those that it was left with is -1-k.
type call struct {
	bytes  tensor.Bytes // to be allocated; -1: block is freed, -2: the cache is emptied
	block  int32
	stream int16
	batch  uint8 // of the step's, that it belongs to
	may    bool  // fail: another plan of cuDNN is tried then
}

const (
	freed   tensor.Bytes = -1
	emptied tensor.Bytes = -2
)

// newTurn takes the last of the steps that were played, which is like the one before.
func newTurn(p *engine.Played, batches int) (*turn, error) {
	events := p.Trace.Events
	steps := int(events[len(events)-1].Step)
	begin := func(step int) int {
		i, _ := slices.BinarySearchFunc(events, int32(step), func(e trace.Event, s int32) int { return int(e.Step) - int(s) })
		return i
	}
	if steps < playedSteps {
		return nil, errors.New("the steps that were played are too few")
	}
	t := &turn{}
	born := map[int32]int{}    // events
	order := map[int32]int32{} // allocations of their steps
	var ends []int             // of setup and steps
	var counts []int32
	for s := 0; s <= steps; s++ {
		from, to, n := begin(s), begin(s+1), int32(0)
		for i := from; i < to; i++ {
			if events[i].Kind == trace.Alloc {
				born[events[i].ID], order[events[i].ID] = i, n
				n++
			}
		}
		ends, counts = append(ends, to), append(counts, n)
	}
	// left lists what a step frees of the time before, in the order of its birth
	left := func(s int) (ids []int32) {
		for i := ends[s-1]; i < ends[s]; i++ {
			if e := &events[i]; e.Kind == trace.Free && born[e.ID] < ends[s-1] {
				ids = append(ids, e.ID)
			}
		}
		slices.SortFunc(ids, func(a, b int32) int { return born[a] - born[b] })
		return ids
	}
	last := left(steps)
	for _, id := range last {
		if born[id] < ends[steps-2] {
			return nil, errors.New("a step frees what is older than the step before it, which is not modelled where lengths differ")
		}
		t.out = append(t.out, order[id])
	}
	if counts[steps] != counts[steps-1] {
		return nil, errors.New("the steps that were played are not alike")
	}
	// the first step whose next one is a turn
	s := steps - 1
	for s > 1 && len(left(s)) == len(last) && counts[s] == counts[steps] {
		s--
	}
	t.start, t.first, t.starts = events[:ends[s]], left(s+1), s
	slots := map[int32]int32{}
	for k, id := range last {
		slots[id] = int32(-1 - k)
	}
	region := batchOfEvents(events[ends[steps-1]:ends[steps]], batches)
	for i := ends[steps-1]; i < ends[steps]; i++ {
		e := &events[i]
		c := call{bytes: e.Bytes, stream: e.Stream, batch: region[i-ends[steps-1]]}
		switch e.Kind {
		case trace.Alloc:
			c.block = t.blocks
			slots[e.ID] = t.blocks
			t.blocks++
			_, c.may = slices.BinarySearch(p.Workspaces.Events, i)
		case trace.Free:
			c.bytes, c.block = freed, slots[e.ID]
		case trace.EmptyCache:
			c.bytes = emptied
		default:
			continue
		}
		t.calls = append(t.calls, c)
	}
	return t, nil
}

// batchOfEvents tells to which of a step's batches each event belongs: a batch's begins when,
// after a backward pass, something else does, and what comes before the first forward pass
// is shared out evenly. All are the first's where a step is not like that.
func batchOfEvents(events []trace.Event, batches int) []uint8 {
	out := make([]uint8, len(events))
	if batches == 1 || batches > math.MaxUint8 {
		return out
	}
	forward := slices.IndexFunc(events, func(e trace.Event) bool { return e.Phase == trace.Forward })
	now, back := 0, false
	for i := max(forward, 0); i < len(events); i++ {
		switch events[i].Phase {
		case trace.Backward:
			back = true
		case trace.Forward:
			if back {
				now, back = now+1, false
			}
		}
		out[i] = uint8(min(now, batches-1))
	}
	if now != batches-1 {
		return make([]uint8, len(events))
	}
	inputs := 0
	for i := range max(forward, 0) {
		if events[i].Kind == trace.Alloc && events[i].Phase == trace.Input {
			inputs++
		}
	}
	if inputs%batches == 0 {
		n := 0
		for i := range max(forward, 0) {
			if events[i].Kind == trace.Alloc && events[i].Phase == trace.Input {
				out[i] = uint8(n * batches / inputs)
				n++
			}
		}
	}
	return out
}

// run is one run that was simulated.
type run struct {
	lengths, allocated, reserved []float64
	failed                       int // the step that ran out of memory, 0: none did
	seen                         map[int64]bool
}

// simulate simulates the runs.
func (v *varying) simulate() (*report.Lengths, error) {
	calls := 0
	for _, t := range v.turns {
		calls = max(calls, len(t.calls))
	}
	steps := int(v.spec.Steps.V)
	n := min(max(mostCalls/max(calls*steps, 1), leastRuns), mostRuns)
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
	for _, r := range runs {
		ls, as, rs = append(ls, r.lengths...), append(as, r.allocated...), append(rs, r.reserved...)
		if r.failed > 0 {
			out.Failed++
			out.Earliest = min(cmpOr(out.Earliest, r.failed), r.failed)
		}
		for l := range r.seen {
			seen[l] = true
		}
	}
	out.Shapes = len(seen)
	out.Batch, out.Allocated, out.Reserved = quantiles(ls), quantiles(as), quantiles(rs)
	out.Low, out.High = wilson(out.Failed, n)
	return out, nil
}

func cmpOr(a, b int) int {
	if a == 0 {
		return b
	}
	return a
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
	s, r := v.sampler(seed), &run{seen: map[int64]bool{}}
	draw := make([]int64, v.batches)
	next := func() int64 {
		longest := int64(0)
		for i := range draw {
			n := s.Next()
			r.lengths = append(r.lengths, float64(n))
			draw[i] = v.length(n)
			r.seen[draw[i]] = true
			longest = max(longest, draw[i])
		}
		return longest
	}
	note := func(step int, err error) (bool, error) {
		st := a.Stats()
		r.allocated = append(r.allocated, float64(st.AllocatedBytes.All.Peak))
		r.reserved = append(r.reserved, float64(st.ReservedBytes.All.Peak))
		if oom := (*allocsim.OOMError)(nil); errors.As(err, &oom) {
			r.failed = step
			return true, nil
		}
		return false, err
	}
	t := v.turns[next()]
	blocks := map[int32]allocsim.Block{}
	for i := range t.start {
		if err = feed(a, &t.start[i], blocks); err != nil {
			break
		}
	}
	if end, err := note(1, err); end || err != nil {
		return r, err
	}
	carried := make([]allocsim.Block, len(t.first))
	for k, id := range t.first {
		carried[k] = blocks[id]
	}
	var own []allocsim.Block
	for step := t.starts + 1; step <= steps; step++ {
		longest := next()
		t := v.turns[longest]
		sized := make([]*turn, v.batches)
		for i, n := range draw {
			if sized[i] = t; v.alike {
				sized[i] = v.turns[n]
			}
		}
		own = slices.Grow(own[:0], int(t.blocks))[:t.blocks]
		a.ResetPeaks()
		err = t.feed(a, sized, carried, own)
		if end, err := note(step, err); end || err != nil {
			return r, err
		}
		carried = carried[:0]
		for _, k := range t.out {
			carried = append(carried, own[k])
		}
	}
	return r, nil
}

// feed gives an allocator the calls of a turn; the sizes are those of the batches that
// they belong to.
func (t *turn) feed(a *allocsim.Allocator, sized []*turn, carried, own []allocsim.Block) error {
	for i := range t.calls {
		c := &t.calls[i]
		switch c.bytes {
		case freed:
			if c.block < 0 {
				a.Free(carried[-1-c.block])
			} else {
				a.Free(own[c.block])
			}
		case emptied:
			if err := a.EmptyCache(); err != nil {
				return err
			}
		default:
			b, err := a.Alloc(sized[c.batch].calls[i].bytes, c.stream)
			if err != nil && !c.may {
				return err
			}
			own[c.block] = b
		}
	}
	return nil
}

// feed gives an allocator one event.
func feed(a *allocsim.Allocator, e *trace.Event, blocks map[int32]allocsim.Block) (err error) {
	switch e.Kind {
	case trace.Alloc:
		blocks[e.ID], err = a.Alloc(e.Bytes, e.Stream)
	case trace.Free:
		a.Free(blocks[e.ID])
		delete(blocks, e.ID)
	case trace.EmptyCache:
		err = a.EmptyCache()
	}
	return err
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
// batch does, and none of the runs runs out of memory.
func (o *Outcome) lengths(r *report.Report) {
	l := o.Varied
	if r.Lengths = l; l == nil {
		return
	}
	v := &r.Verdict
	switch {
	case v.Fits && l.Failed > 0:
		v.Fits, v.Tight, v.Result = false, false, report.OOMs
		v.Reason = fmt.Sprintf("batches of different lengths fragment the memory: %s\nthe longest batch by itself fits: %s", l.Says(), v.Reason)
	case v.Fits:
		v.Reason += "\nwith the longest batch; " + l.Says()
	default:
		v.Reason = fmt.Sprintf("%s\nthe longest batch by itself: %s", l.Says(), v.Reason)
	}
}
