package advise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// Lookahead is how many sizes beyond the largest that fits are tried.
const Lookahead = 8

// Axis is what a search varies: an integer key of the spec.
type Axis struct {
	Key  string // path of the key: train.batch_size
	Step int64  // only multiples of it are tried; 1 or more
	Max  int64  // the greatest value that the key may have

	// From is a job that was run, and At its value of the key: from it and another
	// follow the others. Without it all are played.
	From *estimate.Outcome
	At   int64
}

// Batch is the usual axis.
var Batch = Axis{Key: "train.batch_size", Step: 1, Max: math.MaxInt32}

// BatchFrom is the usual axis, with a job that was run.
func BatchFrom(o *estimate.Outcome) Axis {
	a := Batch
	a.From, a.At, a.Step = o, o.Job.BatchSize(), o.Job.Spec.BatchStep()
	return a
}

// Found is the outcome of a search.
type Found struct {
	// Largest is the greatest value that was found to fit: none of the next
	// Lookahead steps does and, where what fits depends on more than the size, none of
	// as many that are spread over an eighth more. 0 if not even the first step fits.
	Largest int64
	Tight   bool // Largest fits only after cached memory is given back
	// Recommended leaves the headroom that was asked for and is round; 0 if no
	// value does.
	Recommended int64
	// Islands are values below Largest that were tried and do not fit.
	Islands []int64
	// Bound says that the search ended at the axis' greatest value, or where a
	// size overflows.
	Bound bool
	// Cut says that the search ended as it had had its work: Largest is the greatest of
	// the values tried that fits, and greater ones may fit.
	Cut bool
	// Refused is why the step after Largest is none that the model takes, whatever
	// the memory; "" if it is one.
	Refused string
	Tries   int // simulations
	Plays   int // jobs that were played for them
}

// search is one search under way. Results are kept, as neighbours are asked for
// more than once.
type search struct {
	ctx    context.Context
	series *estimate.Series
	axis   Axis
	top    int64 // steps
	first  int64 // that are known to begin with; 0: none

	budget *limit.Budget // nil: none
	ends   int64         // the work of the budget at which the search ends
	cut    bool          // it has ended

	mu      sync.Mutex
	known   map[int64]estimate.Probed
	refused map[int64]error // why a step could not be simulated, or its job would fail
	tries   int
}

// searchWork bounds the work of a search among jobs that are played, each of which may be
// larger than the one before: ten seconds' worth (limit.WorkPerSecond), or as much as searchJobs times
// what was done for the job before it. The work is the same on all machines, and so is where a
// search ends.
const (
	searchWork = 10 * limit.WorkPerSecond
	searchJobs = 10
)

// over reports whether the search has had its work, and knows a value that fits.
func (s *search) over() bool {
	if s.cut || s.budget == nil || s.budget.Work() < s.ends {
		return s.cut
	}
	s.cut = s.largest() > 0
	return s.cut
}

// largest is the largest value of those tried that fits.
func (s *search) largest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := int64(0)
	for k, t := range s.known {
		if t.Fits {
			most = max(most, k)
		}
	}
	return most
}

// Search finds the largest value on an axis with which a job fits. Headroom is
// the share of the usable memory that Recommended leaves free of what would be
// reserved without a limit. Keys are set in every job. The error, if any, is
// that of the job at the first step, or ctx's.
func Search(ctx context.Context, r *estimate.Recipe, axis Axis, headroom float64, keys ...estimate.Key) (*Found, error) {
	var series *estimate.Series
	for _, sharing := range []bool{axis.Key == Batch.Key, false} {
		series = estimate.NewSeries(r, axis.Key, keys...)
		series.Failing = axis.Key == Batch.Key // which has no part in it
		series.Sharing = sharing
		if f := derived(ctx, r, series, axis, headroom); f != nil {
			return f, nil
		}
		if !series.Sharing { // each job of it was elaborated
			break
		}
	}
	series.Drop()
	f, err := newSearch(ctx, r.Budget, series, axis).run(headroom)
	if f != nil {
		f.Plays = series.Played()
	}
	return f, err
}

// derived is a search among jobs that are derived from a few that were played; nil if
// there are none, or what was found is not so where it is played.
func derived(ctx context.Context, r *estimate.Recipe, series *estimate.Series, axis Axis, headroom float64) *Found {
	if axis.From == nil {
		return nil
	}
	if axis.At < axis.Step || axis.At%axis.Step > 0 {
		return nil
	}
	if axis.From.Largest(axis.At) == 0 { // what does not grow takes all memory
		if p, err := series.Probe(axis.Step); err == nil && !p.Fits {
			return &Found{Tries: 1, Plays: series.Played()}
		}
	}
	if !lay(series, axis) {
		return nil
	}
	for {
		f, err := newSearch(ctx, r.Budget, series, axis).run(headroom)
		if err != nil {
			return nil
		}
		if holds(series, axis, f) {
			f.Plays = series.Played()
			return f
		}
		if !series.Bend() {
			return nil
		}
	}
}

// holds reports whether the largest that fits is as derived where it is played, and the next,
// which does not, too: the line may go through the largest, or tell of it
// what it tells of no other. A next that is refused was not derived; that which follows values
// of all kinds is like them.
func holds(series *estimate.Series, axis Axis, f *Found) bool {
	last := max(f.Largest, axis.Step)
	return series.Holds(last) && (f.Bound || f.Refused != "" || last > 1 && series.Varied(last, axis.Step) || series.Holds(last+axis.Step))
}

// lay lays a line through the job that was run and one with another value: about where
// fitting ends, or one that the model takes.
func lay(series *estimate.Series, axis Axis) bool {
	for _, second := range []int64{axis.From.Largest(axis.At), 2 * axis.At, axis.At / 2, 2 * axis.Step} {
		second = max(min(second, axis.Max)/axis.Step, 2) * axis.Step
		for n := int64(0); n < 6 && estimate.Alike(second/axis.Step, axis.At/axis.Step); n++ { // Series.Varied
			if second += axis.Step; second > axis.Max {
				second -= 6 * axis.Step
			}
		}
		if second == axis.At || second < 2*axis.Step || second > axis.Max {
			continue
		}
		if ok, err := series.Lay(axis.From, axis.At, second); err == nil {
			return ok
		}
	}
	return false
}

func newSearch(ctx context.Context, budget *limit.Budget, series *estimate.Series, axis Axis) *search {
	s := &search{ctx: ctx, series: series, axis: axis, top: axis.Max / axis.Step, known: map[int64]estimate.Probed{}, refused: map[int64]error{}}
	if s.budget = budget; budget != nil {
		s.ends = s.budget.Work() + max(searchWork, searchJobs*s.budget.Work())
	}
	if o := axis.From; o != nil && axis.At >= axis.Step && axis.At%axis.Step == 0 && (series.Failing || len(o.Job.Fails) == 0) {
		if known, ok := o.Probed(); ok {
			s.first = axis.At / axis.Step
			s.known[s.first] = known
		}
	}
	return s
}

// run is the search.
func (s *search) run(headroom float64) (*Found, error) {
	f, axis := &Found{}, s.axis
	lo, guess, window := int64(0), s.guess(), int64(0)
	near := int64(0)
	if _, ok := s.series.Room(1); ok && guess <= 50*Lookahead { // the end is close; what is beyond it is looked at in any case
		near = Lookahead
	}
	for s.ctx.Err() == nil {
		if lo = s.end(lo, s.top+1, guess, near, s.fits); lo == 0 && s.refused[1] == nil {
			break // the first step is one that the model takes
		}
		if s.over() {
			lo = s.largest()
			break
		}
		next := s.greatest(lo, Lookahead)
		if next == lo {
			if !s.uneven(lo) {
				break
			}
			if next = s.greatest(lo, lo/Lookahead); next == lo {
				break
			}
		}
		// Where values fit here and there, more of them may do so far beyond.
		if window == 0 {
			window = lo / Lookahead
		}
		reach := int64(Lookahead)
		for ; window > max(Lookahead, lo/(4*Lookahead)); window /= 2 {
			if far := s.greatest(next, window); far > next {
				next, reach = far, max(reach, 2*window)
			}
		}
		lo, guess, window = next, next, reach
	}
	for k, t := range s.known {
		if k < lo && !t.Fits {
			f.Islands = append(f.Islands, k*axis.Step)
		}
	}
	slices.Sort(f.Islands)
	f.Largest, f.Bound, f.Cut = lo*axis.Step, lo == s.top, s.cut
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if lo == 0 {
		f.Tries = s.tries
		return f, s.refused[1]
	}
	f.Tight = s.try(lo).Tight
	f.Recommended = s.recommend(lo, headroom) * axis.Step
	f.Refused = reason(s.refused[lo+1])
	f.Tries = s.tries
	return f, s.ctx.Err()
}

// guess tells about where fitting ends. Without a line that tells of room, it is on one
// through what two values reserve: that of the job that was run, or 1, and where the memory
// would end if all of it grew with the value, or all but weights and what belongs to them.
func (s *search) guess() int64 {
	if k, ok := s.series.Room(s.axis.Max); ok {
		return max(k/s.axis.Step, 1)
	}
	if s.first > 0 && s.known[s.first].Fits {
		second := min(max(s.axis.From.Largest(s.axis.At)/s.axis.Step, s.first+1), s.top)
		return s.line(s.first, second, 0)
	}
	one := s.try(1)
	if !one.Fits && s.refused[1] == nil {
		return 1
	}
	second := float64(one.Usable) / float64(max(s.reserved(1), 1))
	return s.line(1, int64(min(max(2, second), float64(s.top))), 0)
}

// line tells about where a share of the usable memory is left: what is reserved
// is nearly linear in the value, so the place follows from two of them. Where
// it does not, it is the second.
func (s *search) line(a, b int64, left float64) int64 {
	x, y := s.reserved(a), s.reserved(b)
	if a == b || x <= 0 || y == x || (y < x) != (b < a) {
		return b
	}
	room := (1-left)*float64(s.try(a).Usable) - float64(x)
	at := float64(a) + float64(b-a)*room/float64(y-x)
	return int64(min(max(at, 1), float64(s.top)))
}

// end returns a value between lo and hi for which ok holds while it does not for
// the next one; it holds for lo and not for hi. It goes from a guess on in
// growing steps until the end lies between two, and then by halves; down from it go so
// many single steps first.
func (s *search) end(lo, hi, guess, near int64, ok func(int64) bool) int64 {
	if guess = min(max(guess, lo), hi-1); guess == lo || ok(guess) {
		lo = guess
		for step := int64(1); lo+step < hi && !s.over(); step *= 2 {
			if !ok(lo + step) {
				hi = lo + step
				break
			}
			lo += step
		}
	} else {
		hi = guess
		for step, tries := int64(1), int64(0); hi-step > lo && !s.over(); tries++ {
			if ok(hi - step) {
				lo = hi - step
				break
			}
			if hi -= step; tries >= near {
				step *= 2
			}
		}
	}
	for hi-lo > 1 && s.ctx.Err() == nil && !s.over() {
		if mid := lo + (hi-lo)/2; ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// reason is the first line of an error; of several, such as of a spec and of the
// preset that it names, that of the last.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		errs := all.Unwrap()
		err = errs[len(errs)-1]
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// fits reports whether k steps fit. Sizes that overflow do not, and neither do
// those that the model refuses or with which the job would fail.
func (s *search) fits(k int64) bool { return s.try(k).Fits }

// try simulates k steps.
func (s *search) try(k int64) estimate.Probed {
	s.mu.Lock()
	known, ok := s.known[k]
	s.mu.Unlock()
	if ok || s.ctx.Err() != nil {
		return known
	}
	t, err := s.series.Probe(k * s.axis.Step)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.refused[k] = err
	}
	s.known[k] = t
	s.tries++
	return t
}

// reserved is what would be reserved with k steps without a limit.
func (s *search) reserved(k int64) tensor.Bytes {
	t := s.try(k)
	if !t.Over {
		return t.Reserved
	}
	n, err := s.series.Reserved(k * s.axis.Step)
	if err != nil {
		return 0
	}
	return n
}

// uneven reports whether greater values may fit though the next do not: the one that
// fits does so only after cached memory is given back, or a smaller one does not.
func (s *search) uneven(lo int64) bool {
	if lo > 0 && s.try(lo).Tight {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, t := range s.known {
		if k < lo && !t.Fits {
			return true
		}
	}
	return false
}

// greatest tries Lookahead values, evenly spread over the window above lo, on all
// cores. It returns the greatest that fits, or lo.
func (s *search) greatest(lo, window int64) int64 {
	const n = Lookahead
	window = min(window, s.top-lo)
	at := func(i int) int64 { return lo + window*int64(i+1)/int64(n) }
	parallel(n, func(i int) { s.fits(at(i)) })
	for i := n - 1; i >= 0; i-- {
		if s.fits(at(i)) {
			return at(i)
		}
	}
	return lo
}

// recommend is the largest round number of steps up to most that leaves the
// headroom: a power of two below 8, a multiple of 8 from there on.
func (s *search) recommend(most int64, headroom float64) int64 {
	roomy := func(k int64) bool { return s.try(k).Leaves(headroom) }
	if s.cut {
		return s.round(most, roomy)
	}
	// The last of the multiples of 8 was tried, so that it holds even where the
	// peaks are not monotone.
	if k := 8 * s.end(0, most/8+1, s.line(cmp.Or(s.first, min(8, most)), most, headroom)/8, 0, func(k int64) bool { return roomy(8 * k) }); k > 0 {
		return k
	}
	for k := int64(4); k >= 1; k /= 2 {
		if k <= most && roomy(k) {
			return k
		}
	}
	return 0
}

// round is a round number at most that of the greatest value tried that is roomy; 0 if it is not.
func (s *search) round(most int64, roomy func(int64) bool) int64 {
	s.mu.Lock()
	tried := slices.Sorted(maps.Keys(s.known))
	s.mu.Unlock()
	for _, k := range slices.Backward(tried) {
		if k > most || !roomy(k) {
			continue
		}
		if k >= 8 {
			k -= k % 8
		} else {
			k = 1 << (bits.Len64(uint64(k)) - 1)
		}
		if k > 0 && roomy(k) {
			return k
		}
	}
	return 0
}

// gcd is the greatest common divisor.
func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// AxisOf resolves what a user asks to vary in a job that was run: batch, or the name of
// an integer param of the spec or of its preset, perhaps with a step: "seq:64".
func AxisOf(o *estimate.Outcome, name string, step int64) (Axis, error) {
	s := o.Job.Spec
	if name == "batch" {
		a := BatchFrom(o)
		a.Step *= step / gcd(a.Step, step)
		return a, nil
	}
	a := Axis{Step: step, Max: math.MaxInt32}
	switch {
	case s.Given("params."+name) != nil:
		a.Key = "params." + name
	case s.Model != nil && (s.Model.Preset.Set || s.Model.HF.Set):
		a.Key = "model.with." + name
	default:
		return a, fmt.Errorf("the spec has no param %q to vary", name)
	}
	if n, ok := o.Job.Param(name); ok {
		a.From, a.At = o, n
	}
	return a, nil
}
