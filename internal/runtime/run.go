package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Options say how a job is executed.
type Options struct {
	Device Device
	Config allocsim.Config // of the allocator
	Source Source          // nil: Synthetic
	// Validation are the batches of evaluations, each of which begins with the first; nil:
	// Synthetic, others than those that are trained on.
	Validation Source
	Steps      int
	Seed       uint64
	Init       *Safetensors // weights to start from; nil: they are drawn
	Resume     *Checkpoint  // goes on after its step, with its seed; nil: from the first
	// Single makes numbers of float64 that are drawn or loaded those of float32, as a job in
	// that type has them.
	Single bool
	Poison bool // memory that is free or fresh is overwritten, so that a use of it shows
	// OnStep is called after each step; an error from it ends the run.
	OnStep func(Progress) error
	// OnEval is called after each evaluation, before OnStep of its step; an error from it
	// ends the run.
	OnEval func(Evaluation) error
	// OnEnd is called when all steps are done and the weights are still there.
	OnEnd func(*Weights) error
	Now   func() time.Time // nil: time stands still
}

// Progress is what one step gave.
type Progress struct {
	Step                int
	Loss                float64 // the sum of those of the step's backward passes; 0 without
	HasLoss             bool
	Took                time.Duration // until the device had done it; in the first step, from its first batch on
	Allocated, Reserved tensor.Bytes  // peaks so far
	// Save writes what Options.Resume takes, and the weights; it is good until OnStep returns.
	Save func(io.Writer) error
}

// Result is what came of a run.
type Result struct {
	Device string
	Steps  []Progress
	Evals  []Evaluation
	Played *engine.Played
	Stats  allocsim.Stats
	// Live are the blocks that were alive when the run ended.
	Live int
	// HostOperators are the operators and optimizers that were computed in host
	// memory, and what made masks there, sorted.
	HostOperators []string
}

// Run executes steps of a job and gives all memory back. What it did before an
// error is in the result, which is never nil.
func Run(ctx context.Context, prog *program.Job, env op.Env, o Options) (*Result, error) {
	r := &Result{Device: o.Device.Name()}
	uses, err := Probe(prog, env, o.Device)
	if err != nil {
		return r, err
	}
	alloc, err := allocsim.New(o.Config, o.Device, allocsim.Options{})
	if err != nil {
		return r, err
	}
	seed := o.Seed
	if o.Resume != nil {
		if err := Resumable(prog); err != nil {
			return r, err
		}
		if seed = o.Resume.Seed; o.Resume.Step >= o.Steps {
			return r, fmt.Errorf("the run that was saved has done %d steps, and is to do %d", o.Resume.Step, o.Steps)
		}
	}
	x := NewExecutor(o.Device, alloc, o.Source, seed)
	x.resume, x.skip = o.Resume, o.Resume != nil
	if o.Init != nil && o.Resume == nil {
		x.given = &given{file: o.Init, set: map[int32]bool{}, none: map[int32]string{}}
	}
	x.poison, x.stopped, x.single = o.Poison, ctx.Err, o.Single
	if x.source == nil {
		x.source = NewSynthetic(prog, uses, seed)
	}
	if x.validation = o.Validation; x.validation == nil {
		x.validation = NewSynthetic(prog, uses, seed+heldOut)
	}
	x.words = map[int64]bool{}
	for name, n := range uses.Bounds {
		if !uses.Targets[name] {
			x.words[n] = true
		}
	}
	x.onEval = func(e Evaluation) error {
		r.Evals = append(r.Evals, e)
		if o.OnEval != nil {
			return o.OnEval(e)
		}
		return nil
	}
	now := o.Now
	if now == nil {
		now = func() time.Time { return time.Time{} }
	}
	x.clock = func() time.Time {
		o.Device.Synchronize() // what fails here, fails at the end of the step
		return now()
	}
	start := now()
	x.onStart = func() error {
		if x.given != nil {
			if err := x.given.check(&x.weights); err != nil {
				return err
			}
		}
		err := o.Device.Synchronize()
		start = now()
		return err
	}
	x.onStep = func(n int) error {
		if err := o.Device.Synchronize(); err != nil {
			return err
		}
		end := now()
		start, x.paused = start.Add(x.paused), 0
		if x.resume != nil {
			start = end
			if n < x.resume.Step {
				return nil
			}
			return x.restore()
		}
		p := Progress{Step: n, Took: end.Sub(start), Save: func(w io.Writer) error { return x.save(w, n) }}
		start = end
		for _, l := range x.losses {
			p.Loss += l
			p.HasLoss = true
		}
		x.losses = x.losses[:0]
		s := alloc.Stats()
		p.Allocated, p.Reserved = s.AllocatedBytes.All.Peak, s.ReservedBytes.All.Peak
		r.Steps = append(r.Steps, p)
		if o.OnStep != nil {
			if err := o.OnStep(p); err != nil {
				return err
			}
		}
		return nil
	}
	r.Played, err = engine.Play(prog, env, x, o.Steps)
	r.Stats, r.Live, r.HostOperators = alloc.Stats(), x.live, slices.Sorted(maps.Keys(x.hostOps))
	if err == nil && o.OnEnd != nil {
		err = o.OnEnd(&x.weights)
	}
	return r, also(err, x.release())
}

// heldOut is how far the seed of made-up batches of evaluations is from that of a run.
const heldOut = 1 << 40

// NewExecutor returns a backend over a device whose memory an allocator divides.
func NewExecutor(d Device, alloc *allocsim.Allocator, source Source, seed uint64) *Executor {
	x := &Executor{
		memory: memory{arena: arena{alloc: alloc}}, source: source, seed: seed,
		loads: map[string]int{},
	}
	x.device = skipping{d, &x.skip}
	x.weights = Weights{x: x, of: map[string]*op.Tensor{}}
	return x
}

// also joins to an error what others say that is not part of it: after a device
// failed, every call says the same again.
func also(err error, more ...error) error {
	for _, e := range more {
		if several, ok := e.(interface{ Unwrap() []error }); ok {
			err = also(err, several.Unwrap()...)
		} else if e != nil && !errors.Is(err, e) {
			err = errors.Join(err, e)
		}
	}
	return err
}
