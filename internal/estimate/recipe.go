package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/spec"
)

// Recipe is a spec before it is read, from which jobs are made that differ in
// some keys. It may be used by several goroutines at once.
type Recipe struct {
	Path     string
	Text     []byte
	Options  spec.Options
	ReadFile func(name string) ([]byte, error) // that the spec names; nil: there are none
	Hub      *hub.Hub                          // configurations by name; nil: the table
	Recorded *Recordings                       // the job, of which Text says the machine alone; nil: Text is the job
	Budget   *limit.Budget                     // of all that is done with the jobs; nil: no limits
}

// Key is one key of a spec with a value in YAML, as --set takes them.
type Key struct{ Path, Value string }

// String is how the command line would write the key.
func (k Key) String() string { return k.Path + "=" + k.Value }

func (k Key) flag() spec.Flag {
	return spec.Flag{Flag: "--set " + k.String(), Path: k.Path, Value: k.Value}
}

// Job makes the job in which these keys are set, after those of the options.
// The error, if any, is a *spec.Errors, or why the budget ended.
func (r *Recipe) Job(keys ...Key) (j *Job, err error) {
	o := r.options(keys)
	defer o.Meter.Close()
	defer limit.Catch(&err)
	s, err := spec.Parse(r.Path, r.Text, o)
	if s == nil {
		return nil, err
	}
	if r.Recorded != nil {
		j, err = recordedJob(s, r.Recorded)
	} else {
		j, err = newJob(s, r.ReadFile, r.Hub)
	}
	if err == nil {
		of := *r
		of.Options.Flags = o.Flags
		j.budget, j.recipe = r.Budget, &of
	}
	return j, err
}

// Outline reads the spec in which these keys are set, and what it runs on, and makes no job of it.
func (r *Recipe) Outline(keys ...Key) (s *spec.Spec, m *Machine, err error) {
	o := r.options(keys)
	defer o.Meter.Close()
	defer limit.Catch(&err)
	if s, err = spec.Parse(r.Path, r.Text, o); s == nil {
		return nil, nil, err
	}
	return s, NewMachine(s, r.ReadFile), nil
}

func (r *Recipe) options(keys []Key) spec.Options {
	o := r.Options
	o.Meter = r.Budget.Meter()
	o.Flags, o.Recorded = slices.Clone(o.Flags), r.Recorded != nil
	for _, k := range keys {
		o.Flags = append(o.Flags, k.flag())
	}
	o.Longest = func(l *spec.Lengths) (int64, error) {
		s, err := r.samples(l)
		if err != nil {
			return 0, err
		}
		return collator(l).Pad(s.Longest()), nil
	}
	return o
}

// steps is how many are played; 0: until they are alike.
func (j *Job) steps() int {
	if n := j.Spec.Train.Steps.V; n <= engine.MaxSteps {
		return int(n)
	}
	return 0
}

// Play plays a job, and replays nothing.
func Play(j *Job) (p *engine.Played, err error) {
	defer j.metered(&err)()
	o, err := play(j, j.steps())
	if err != nil {
		return nil, err
	}
	return o.Played, nil
}

// Fits reports whether a job runs on its GPU, and whether only after cached
// memory was given back, in the steps that are played: a leak, with which no
// size lives for ever, is not followed.
func Fits(j *Job) (fits, tight bool, err error) {
	p, err := Probe(j)
	return p.Fits, p.Tight, err
}

// Try says what Fits does, sooner of a job that runs out of memory in its first step: no other
// is played then. Of the outcome there are only what was played and OnGPU.
func Try(j *Job) (o *Outcome, err error) {
	defer j.metered(&err)()
	o = &Outcome{Job: j}
	var replayed error
	fails := func(first *engine.Played) bool {
		o.Played = first
		replayed = o.replayOnGPU(false)
		return replayed != nil || !o.Fits()
	}
	if j.recorded != nil {
		return j.tryRecorded(o)
	}
	p, err := engine.PlayUnless(j.meter, j.Program, j.Machine.Env, j.steps(), fails)
	if err == nil {
		err = replayed
	}
	if err != nil {
		return nil, err
	}
	if o.Played = p; !o.Fits() {
		return o, nil
	}
	return o, o.replayOnGPU(false)
}

// TryAs says what Try does of a job that differs in its allocator alone from another that was
// tried: where that one was played beyond its first step, it is not played again.
func TryAs(j *Job, tried *Outcome) (*Outcome, error) {
	if j.recorded != nil || !tried.Whole() {
		return Try(j)
	}
	o := &Outcome{Job: j, Played: tried.Played}
	if err := o.tryPlayed(); err != nil {
		return nil, err
	}
	if !o.Fits() && o.Played.Trace.Events[o.OnGPU.OOMs[0].Event].Step <= 1 { // of which Try plays less
		return Try(j)
	}
	return o, nil
}

// Whole reports whether all steps of a job that was tried were played.
func (o *Outcome) Whole() bool { return o.Played.Steps > 1 }

func (o *Outcome) tryPlayed() (err error) {
	defer o.Job.metered(&err)()
	return o.replayOnGPU(false)
}

// Complete makes of an outcome of Try that fits what Run says, without playing the job again,
// nor doing anything twice.
func Complete(o *Outcome) (err error) {
	if o.Free != nil && (o.Varied != nil || o.Job.Spec.Lengths == nil) {
		return nil
	}
	defer o.Job.metered(&err)()
	if err = o.complete(); err == nil {
		o.Varied, err = o.vary()
	}
	return err
}

// Fits reports whether no request fails on the device, nor in a run with batches of different
// lengths.
func (o *Outcome) Fits() bool {
	return len(o.OnGPU.OOMs) == 0 && (o.Varied == nil || o.Varied.Failed == 0)
}

// Retries reports whether a request only succeeds after cached memory was given back.
func (o *Outcome) Retries() bool {
	return o.OnGPU.Stats.NumAllocRetries > 0 || o.Varied != nil && o.Varied.Retried > 0
}

// FitsHost reports whether host memory suffices, if the spec says how
// much there is.
func (o *Outcome) FitsHost() bool {
	limit := o.Job.Spec.Device.HostRAM
	if limit == nil {
		return true
	}
	u, err := o.hostUsage()
	return err == nil && u.All.Value <= limit.V
}
