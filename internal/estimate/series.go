package estimate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Series are the jobs of a recipe that differ in one integer key. Those that lie on
// a line through two that were played need not be played.
type Series struct {
	recipe *Recipe
	key    string
	keys   []Key

	// Failing says that jobs are tried though they would fail (Job.Fails).
	Failing bool

	// PlayFirst says that the job with the value 1 does not lie on the line.
	PlayFirst bool

	line *line
	on   map[int64]bool // values that were played, and lie on the line
	made map[int64]*Job // by Takes
	job  *Job           // of which the others on the line differ in sizes alone
	room sync.Pool      // *room

	mu     sync.Mutex
	played int
}

// room is what one goroutine replays in.
type room struct {
	replayer *allocsim.Replayer
	events   []trace.Event
}

// NewSeries are the jobs of a recipe with these keys.
func NewSeries(r *Recipe, key string, keys ...Key) *Series {
	s := &Series{recipe: r, key: key, keys: keys, made: map[int64]*Job{}}
	s.room.New = func() any { return &room{replayer: new(allocsim.Replayer)} }
	return s
}

// Job makes the job with a value of the key.
func (s *Series) Job(k int64) (*Job, error) {
	if j := s.made[k]; j != nil {
		return j, nil
	}
	j, err := s.recipe.Job(append(append([]Key(nil), s.keys...), Key{s.key, fmt.Sprint(k)})...)
	if err == nil && len(j.Fails) > 0 && !s.Failing {
		return nil, errors.New(j.Fails[0])
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
// was played with the first. It reports whether there is one. There is none where the
// cache is emptied for each plan of cuDNN: which of them are equal goes by the sizes.
func (s *Series) Lay(o *Outcome, first, second int64) bool {
	if o.Job.Program.Benchmark {
		return false
	}
	j, err := s.Job(second)
	if err != nil {
		return false
	}
	s.count()
	p, err := Play(j)
	if err != nil {
		return false
	}
	s.job, s.on = o.Job, map[int64]bool{first: true, second: true}
	s.line = newLine(o.Played, p, first, second, &o.Job.Machine.Env)
	return s.line != nil
}

// Drop gives up the line: jobs are played from now on.
func (s *Series) Drop() { s.line = nil }

// Takes reports whether there is a job with a value of the key.
func (s *Series) Takes(k int64) bool {
	j, err := s.Job(k)
	s.made[k] = j
	return err == nil
}

// derives reports whether a job is taken to lie on the line.
func (s *Series) derives(k int64) bool { return s.line != nil && (k > 1 || !s.PlayFirst) }

// with does something with the job of a value of the key that is played, or derived
// from the line.
func (s *Series) with(k int64, do func(o *Outcome) error) (err error) {
	if s.derives(k) {
		r := s.room.Get().(*room)
		defer s.room.Put(r)
		j := *s.job
		defer j.metered(&err)()
		if p, ok := s.line.play(k, r.events[:0]); ok {
			r.events = p.Trace.Events
			j.meter.Hold(tensor.Bytes(len(r.events)) * engine.EventBytes)
			j.replayer, r.replayer = r.replayer, nil
			defer func() { r.replayer = j.replayer }()
			return do(&Outcome{Job: &j, Played: p})
		}
	}
	j, err := s.Job(k)
	if err != nil {
		return err
	}
	defer j.metered(&err)()
	s.count()
	o, err := play(j, int(j.Spec.Train.Steps.V))
	if err != nil {
		return err
	}
	return do(o)
}

// Probe is Probe with a value of the key.
func (s *Series) Probe(k int64) (p Probed, err error) {
	if s.derives(k) {
		if m := s.job.Machine; !m.depends() && s.line.needs(k) > float64(m.Usable()) { // no allocator helps
			return Probed{Usable: m.Usable(), Over: true}, nil
		}
	}
	err = s.with(k, func(o *Outcome) error { p, err = o.probe(); return err })
	return p, err
}

// Reserved is Reserved with a value of the key.
func (s *Series) Reserved(k int64) (n tensor.Bytes, err error) {
	err = s.with(k, func(o *Outcome) error { n, err = o.reserved(); return err })
	return n, err
}

// heldSteps are how many steps are played to see whether a job lies on the line: the
// second finds gradients and the optimizer's state, and those after it are like it.
const heldSteps = 2

// Holds plays the job with a value of the key and reports whether it lies on the line.
func (s *Series) Holds(k int64) bool {
	if k == 1 && s.PlayFirst || s.on[k] {
		return true
	}
	j, err := s.Job(k)
	if err != nil {
		return false
	}
	defer j.metered(&err)()
	s.count()
	steps := heldSteps
	if n := int(j.Spec.Train.Steps.V); n > 0 {
		steps = min(steps, n)
	}
	o, err := play(j, steps)
	if err != nil {
		return false
	}
	r := s.room.Get().(*room)
	defer s.room.Put(r)
	derived, ok := s.line.play(k, r.events[:0])
	return ok && like(derived.Trace.Events, o.Played.Trace.Events)
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
