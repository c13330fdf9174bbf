package estimate

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Series are the jobs of a recipe that differ in one integer key. Those that lie on
// a line through two that were played, or on a parabola through three, need not be
// played.
type Series struct {
	recipe *Recipe
	key    string
	keys   []Key

	// Failing says that jobs are tried though they would fail (Job.Fails).
	Failing bool

	// Sharing says that the key is the batch size, and that Lay plays the program of the
	// job that was run with inputs of another batch size, instead of elaborating that job.
	// Lay clears it if that program does not allow this. Holds elaborates what it plays, as
	// expressions may make another program of another batch size (see Varied); if that is not
	// on the line, a series without Sharing is needed.
	Sharing bool

	line    *line
	at      []int64 // values that were played, and lie on the line
	on      []*engine.Played
	off     *engine.Played // what was played last and does not lie on it
	offAt   int64
	steps   int // that were played of a job of the line; 0: all
	held    int // that tell of a job whether it lies on the line; 0: all
	dropped bool
	job     *Job      // of which the others on the line differ in sizes alone
	room    sync.Pool // *room
	one     sync.Once // is done if it was found whether the job with the value 1 lies on the line
	oneLies bool

	mu     sync.Mutex
	played int
	probed map[int64]Probed // of jobs that were played
}

// NewSeries are the jobs of a recipe with these keys.
func NewSeries(r *Recipe, key string, keys ...Key) *Series {
	s := &Series{recipe: r, key: key, keys: keys, probed: map[int64]Probed{}}
	s.room.New = func() any { return &room{replayer: new(allocsim.Replayer)} }
	return s
}

// Job makes the job with a value of the key.
func (s *Series) Job(k int64) (*Job, error) {
	j, err := s.recipe.Job(append(append([]Key(nil), s.keys...), Key{s.key, fmt.Sprint(k)})...)
	if err == nil && len(j.Fails) > 0 && !s.Failing {
		return nil, errors.New(j.Fails[0].Text)
	}
	return j, err
}

// Played is how many jobs of the series were played.
func (s *Series) Played() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.played
}

func (s *Series) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played++
}

// Lay plays the job with the second value, and lays a line through it and one that
// was played with the first; where the first is 1, and the two differ in more than
// sizes, through it and another. It reports whether there is one; the error is that of
// the second. There is none where the cache is emptied for each plan of cuDNN: which of
// them are equal goes by the sizes.
func (s *Series) Lay(o *Outcome, first, second int64) (bool, error) {
	if o.Job.Program.Benchmark {
		return false, nil
	}
	s.job = o.Job
	if o.Job.recorded != nil {
		f := o.Job.family()
		s.line, s.at = f.line, f.at
		return f.line != nil, nil
	}
	if s.Sharing = s.Sharing && o.Job.BatchSize() == o.Job.Program.Batch && uniform(o.Job.Program) && !givesSizes(o.Job.Program); s.Sharing {
		if ok, err := s.lay(o, first, second); ok && err == nil {
			return true, nil
		}
		s.Sharing = false
	}
	return s.lay(o, first, second)
}

// lay is Lay of a job that the engine plays, with Sharing as it is.
func (s *Series) lay(o *Outcome, first, second int64) (bool, error) {
	tries := []int{heldSteps, 0}
	switch {
	case o.Job.Program.Eval != nil || slices.ContainsFunc(o.Job.Program.Step.Body, rare):
		tries = tries[1:] // the first steps do not show what comes later
	case s.Sharing || first == 1:
		tries = tries[:1]
	}
	var p *engine.Played
	for _, s.steps = range tries {
		var err error
		if p, err = s.sample(second); err != nil {
			return false, err
		}
		if s.through([]int64{first, second}, []*engine.Played{o.Played, p}) {
			s.bent()
			return true, nil
		}
	}
	if first != 1 {
		return false, nil
	}
	for first = 2; Alike(first, second); first++ { // so that the two are varied
	}
	s.steps = 0
	q, err := s.sample(first)
	if err != nil {
		return false, nil
	}
	s.steps = tries[0]
	if !s.through([]int64{first, second}, []*engine.Played{q, p}) {
		return false, nil
	}
	s.bent()
	return true, nil
}

// bent lays a parabola through one more job in place of a line by which sizes would be
// negative.
func (s *Series) bent() {
	if !s.line.negative() {
		return
	}
	third := (s.at[0] + s.at[1]) / 2
	if third < 2 || slices.Contains(s.at, third) {
		third = max(s.at[0], s.at[1]) + 1
	}
	if p, err := s.sample(third); err == nil {
		s.through(append(slices.Clone(s.at), third), append(slices.Clone(s.on), p))
	}
}

// sample plays the job with a value of the key, to lay a line through it.
func (s *Series) sample(k int64) (*engine.Played, error) {
	if s.Sharing {
		return s.playJob(s.shared(k), s.steps)
	}
	return s.play(k, s.steps)
}

// through lays a line through jobs that were played.
func (s *Series) through(at []int64, played []*engine.Played) bool {
	if l := newLine(at, played, &s.job.Machine.Env); l != nil {
		s.at, s.on, s.line, s.held = at, played, l, s.steps
		if s.steps == heldSteps && uniform(s.job.Program) && l.told() {
			s.held = 1
		}
		s.one = sync.Once{}
		return true
	}
	return false
}

// Bend lays a parabola through the two jobs of the line and the one that Holds found
// not to lie on it, or, in place of one with the value 1, a line through that one. It
// reports whether there is one.
func (s *Series) Bend() bool {
	if s.Sharing || len(s.at) > 2 || s.off == nil {
		return false
	}
	if s.at[0] == 1 {
		return s.through([]int64{s.offAt, s.at[1]}, []*engine.Played{s.off, s.on[1]})
	}
	return s.through(append(s.at, s.offAt), append(s.on, s.off))
}

// Drop has jobs played from now on. The line, if there is one, still tells Room.
func (s *Series) Drop() { s.dropped = true }

// derives reports whether a job is taken to lie on the line. That with the value 1 does
// not, as a dimension of size 1 is not like others, unless its first step shows that it does.
func (s *Series) derives(k int64) bool {
	if s.line == nil || s.dropped {
		return false
	}
	return k > 1 || s.job.recorded != nil || k == 1 && s.held == 1 && s.line.needs(1) <= float64(s.job.Machine.Usable()) && s.first()
}

// first reports whether the first step of the job with the value 1 lies on the line; it is
// played once for each line.
func (s *Series) first() bool {
	s.one.Do(func() { s.oneLies, _ = s.lies(1) })
	return s.oneLies
}

// Room is the greatest value of the key up to some with which what lives at one time
// leaves room, by the line, 0 if there is none; false without a line.
func (s *Series) Room(most int64) (k int64, ok bool) {
	if s.line == nil {
		return 0, false
	}
	usable := float64(s.job.Machine.Usable())
	return int64(sort.Search(int(most), func(i int) bool { return s.line.needs(int64(i)+1) > usable })), true
}

// play plays the job with a value of the key for so many steps or, with 0, for as many
// as its spec says.
func (s *Series) play(k int64, steps int) (*engine.Played, error) {
	j, err := s.Job(k)
	if err != nil {
		return nil, err
	}
	return s.playJob(j, steps)
}

// shared is the job that was run, with inputs of another batch size.
func (s *Series) shared(k int64) *Job {
	j, p := *s.job, *s.job.Program
	p.Batch, p.Inputs = k, slices.Clone(p.Inputs)
	for i := range p.Inputs {
		if in := &p.Inputs[i]; len(in.Size) > 0 && in.Size[0] == s.job.Program.Batch {
			in.Size = append([]int64{k}, in.Size[1:]...)
		}
	}
	j.Program = &p
	return &j
}

// playJob plays a job for so many steps or, with 0, for as many as its spec says.
func (s *Series) playJob(j *Job, steps int) (p *engine.Played, err error) {
	defer j.metered(&err)()
	s.count()
	if n := j.steps(); steps == 0 || 0 < n && n < steps {
		steps = n
	}
	o, err := play(j, steps)
	if err != nil {
		return nil, err
	}
	return o.Played, nil
}

// derive does something with the job of a value of the key, if it is derived from the line.
func (s *Series) derive(k int64, do func(o *Outcome) error) (done bool, err error) {
	if !s.derives(k) {
		return false, nil
	}
	r := s.room.Get().(*room)
	defer s.room.Put(r)
	j := *s.job
	defer j.metered(&err)()
	p, ok := s.line.play(k, r)
	if !ok {
		return false, nil
	}
	j.meter.Hold(tensor.Bytes(len(r.events)) * trace.EventBytes)
	j.replayer, r.replayer = r.replayer, nil
	defer func() { r.replayer = j.replayer }()
	return true, do(&Outcome{Job: &j, Played: p})
}

// Probe is Probe with a value of the key.
func (s *Series) Probe(k int64) (p Probed, err error) {
	if s.derives(k) {
		if !s.Failing {
			if _, err := s.Job(k); err != nil {
				return Probed{}, err
			}
		}
		if m := s.job.Machine; !m.depends() && s.line.needs(k) > float64(m.Usable()) { // no allocator helps
			return Probed{Usable: m.Usable(), Over: true}, nil
		}
	}
	if done, err := s.derive(k, func(o *Outcome) error { p, err = o.probe(); return err }); done || err != nil {
		return p, err
	}
	return s.probe(k)
}

// probe is Probe of a job that is played, if it was not before.
func (s *Series) probe(k int64) (p Probed, err error) {
	s.mu.Lock()
	p, found := s.probed[k]
	s.mu.Unlock()
	if found {
		return p, nil
	}
	j, err := s.Job(k)
	if err != nil {
		return Probed{}, err
	}
	s.count()
	if p, err = Probe(j); err == nil {
		s.mu.Lock()
		s.probed[k] = p
		s.mu.Unlock()
	}
	return p, err
}

// Reserved is Reserved with a value of the key.
func (s *Series) Reserved(k int64) (n tensor.Bytes, err error) {
	if done, err := s.derive(k, func(o *Outcome) error { n, err = o.reserved(); return err }); done || err != nil {
		return n, err
	}
	j, err := s.Job(k)
	if err != nil {
		return 0, err
	}
	s.count()
	return Reserved(j)
}

// heldSteps are how many steps tell of a job what it allocates, unless later ones are
// others: the second finds gradients and the optimizer's state.
const heldSteps = 2

// uniform reports whether each step of a job runs the same statements on what it makes
// itself.
func uniform(p *program.Job) bool {
	return p.Eval == nil && len(p.Kept) == 0 && !slices.ContainsFunc(p.Step.Body, rare)
}

// rare reports whether a statement runs in every n-th step only.
func rare(s program.Stmt) bool { return s.Every > 1 }

// givesSizes reports whether a call in a program gives the sizes of a tensor as numbers:
// one of them may be the batch size.
func givesSizes(p *program.Job) bool {
	found, seen, classes := false, map[*program.Func]bool{}, map[*program.Class]bool{}
	var function func(f *program.Func)
	function = func(f *program.Func) {
		if f == nil || found || seen[f] {
			return
		}
		seen[f] = true
		f.Exprs(func(e *program.Expr) {
			found = found || e.Kind == program.CallOp && e.Row.Sized()
			function(e.Func)
			function(e.Forward)
		})
	}
	var class func(c *program.Class)
	class = func(c *program.Class) {
		if c == nil || found || classes[c] {
			return
		}
		classes[c] = true
		for _, fs := range [][]*program.Func{{c.Forward}, c.Methods, c.Applied} {
			for _, f := range fs {
				function(f)
			}
		}
		for i := range c.Children {
			class(c.Children[i].Class)
		}
	}
	function(p.Step)
	class(p.Aux)
	for _, m := range p.Models {
		class(m.Root)
	}
	return found
}

// Holds plays the job with a value of the key and reports whether it lies on the line.
func (s *Series) Holds(k int64) bool {
	if s.job.recorded != nil { // a further recording was on the line
		return true
	}
	if k == 1 || slices.Contains(s.at, k) && (!s.Sharing || k == s.job.Program.Batch) {
		return true
	}
	lies, err := s.lies(k)
	if err != nil || lies {
		return lies
	}
	if len(s.at) < 3 && !s.Sharing {
		if s.off, err = s.play(k, 0); err != nil {
			s.off = nil
		}
		s.offAt = k
	}
	return false
}

// Varied reports whether the values of jobs that were elaborated, and k with them, leave
// different remainders when they are divided by 2 and by 3, counted in steps: expressions that ask
// for such a remainder would have made another program of one of them.
func (s *Series) Varied(k, step int64) bool {
	at := s.at
	if s.Sharing {
		at = at[:1]
	}
	return !slices.ContainsFunc([]int64{2, 3}, func(n int64) bool {
		return !slices.ContainsFunc(at, func(a int64) bool { return a/step%n != k/step%n })
	})
}

// Alike reports whether two numbers leave the same remainder divided by 2 or by 3.
func Alike(a, b int64) bool { return a%2 == b%2 || a%3 == b%3 }

// lies plays as much of the job with a value of the key as tells whether it lies on the line.
func (s *Series) lies(k int64) (bool, error) {
	p, err := s.play(k, s.held)
	if err != nil {
		return false, err
	}
	r := s.room.Get().(*room)
	defer s.room.Put(r)
	derived, ok := s.line.play(k, r)
	return ok && like(derived.Trace.Events, p.Trace.Events), nil
}

// Largest tells about with which value of a key the job would take all memory, that has
// the given one: as if all grew with it but weights, gradients, optimizer state and
// workspaces.
func (o *Outcome) Largest(at int64) int64 {
	tr := o.Played.Trace
	var stays tensor.Bytes
	for _, i := range allocsim.LiveAt(tr.Events, o.Free.PeakAllocated.Event) {
		switch e := &tr.Events[i]; tr.Categories[e.ID] {
		case trace.Parameters, trace.Gradients, trace.OptimizerState, trace.Workspace:
			stays += e.Bytes
		}
	}
	grows := max(o.Free.PeakReserved.Reserved-stays, 1)
	return int64(float64(at) * float64(max(o.Job.Machine.Usable()-stays, 0)) / float64(grows))
}
