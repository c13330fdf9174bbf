package accuracy

import (
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// predict plays steps of a spec and returns the events, and the allocator's
// configuration that the spec asks for.
func predict(name, text string, env op.Env, steps int) ([]trace.Event, allocsim.Config, error) {
	var none allocsim.Config
	s, err := spec.Parse(name+".yaml", []byte(text), spec.Options{})
	if err != nil {
		return nil, none, err
	}
	conf, err := allocsim.ParseConfig(s.Device.AllocConf.V, torchver.Default)
	if err != nil {
		return nil, none, err
	}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return nil, none, err
	}
	p, err := engine.Play(g.Job, env, nil, steps)
	if err != nil {
		return nil, none, err
	}
	return p.Trace.Events, conf, nil
}

// Compare holds the prediction for a recording of testdata/truth against it.
func Compare(r *Recording) *Case {
	c := &Case{
		Name: r.Name, Family: r.Family(),
		Precision: r.Config.Precision, Optimizer: r.Config.Optimizer, Arch: r.Config.Arch,
	}
	if ok, why := r.InScope(); !ok {
		c.Skipped = why
		return c
	}
	c.compare(r.Spec(), r.Env(), r.Events, r.Steps, true)
	return c
}

// Compare holds the prediction for a program against what was recorded.
func (f *FuzzCase) Compare() *Case {
	c := &Case{Name: f.Name, Arch: f.Arch}
	c.compare(f.Spec, ArchEnv(f.Arch), f.Events, f.Steps, false)
	return c
}

// compare fills in the result. With late, what dies when a step returns was
// recorded in the step after it.
func (c *Case) compare(text string, env op.Env, recorded map[string][]RecordedEvent, steps []RecordedStep, late bool) {
	events, conf, err := predict(c.Name, text, env, len(steps))
	if err != nil {
		c.Difference = "no prediction: " + err.Error()
		return
	}
	c.Difference = difference(recorded, events, late)
	c.Equal = c.Difference == ""
	events = slices.Clone(events)
	for i := range events {
		events[i].Step = int16(step(&events[i], late))
	}
	res, err := allocsim.Replay(events, allocsim.ReplayOptions{Config: conf})
	if err != nil {
		c.Equal, c.Difference = false, "the prediction cannot be replayed: "+err.Error()
		return
	}
	for i, s := range steps {
		sp := StepPeaks{RecordedAllocated: s.PeakAllocated, RecordedReserved: s.PeakReserved}
		for _, q := range res.Steps {
			if q.Step == i+1 {
				sp.Allocated, sp.Reserved = q.PeakAllocated.Allocated, q.PeakReserved.Reserved
			}
		}
		c.Steps = append(c.Steps, sp)
	}
}
