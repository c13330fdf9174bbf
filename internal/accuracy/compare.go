package accuracy

import (
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// prediction is what playing a spec gives.
type prediction struct {
	events   []trace.Event
	conf     allocsim.Config // that the spec asks for
	autocast bool
	rows     []*op.Op // that ran
	derived  []*op.Op // whose derivatives did

	workspaces *autograd.Workspaces // of cuDNN's convolutions
}

// predict plays steps of a spec.
func predict(name, text string, env op.Env, steps int, files func(string) ([]byte, error)) (*prediction, error) {
	s, err := spec.Parse(name+".yaml", []byte(text), spec.Options{})
	if err != nil {
		return nil, err
	}
	conf, err := allocsim.ParseConfig(s.Device.AllocConf.V, torchver.Recorded)
	if err != nil {
		return nil, err
	}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names(), HFTypes: specs.HFTypes(), ReadFile: files})
	if err != nil {
		return nil, err
	}
	p, err := engine.Play(g.Job, env, nil, steps)
	if err != nil {
		return nil, err
	}
	return &prediction{p.Trace.Events, conf, g.Job.Autocast, p.Rows, p.Derived, &p.Workspaces}, nil
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
	c := &Case{Name: f.Name, Arch: f.Arch, Real: f.GPU != ""}
	env, err := f.Env()
	switch {
	case err != nil:
		c.Difference = err.Error()
	case f.Pretended:
		c.pretended(f, env)
	default:
		c.compare(f.Spec, env, f.Events, f.Steps, false)
	}
	return c
}

// pretended fills in the result of a case that ran on a pretended GPU.
func (c *Case) pretended(f *FuzzCase, env op.Env) {
	c.Live, c.Torch = true, env.Torch.String()
	j := f.job
	if j == nil {
		j = &job{spec: f.Spec}
	}
	p, err := predict(c.Name, j.spec, env, len(f.Steps), j.files)
	if err != nil {
		c.Difference = "no prediction: " + err.Error()
		return
	}
	recorded, list, events, steps := f.Events, p.events, p.events, len(f.Steps)
	if j.trainer {
		at := f.Ends
		if f.Events != nil {
			at, recorded = ends(f.Events, steps), whole(f.Events, steps)
		}
		events = cut(p.events, at)
		list, steps = joined(events), 0
	}
	if recorded != nil {
		c.Difference = trace.RunsDifference(recorded, list, steps)
	} else if trace.RunsDigest(list, steps) != f.Digest {
		c.Difference = "the events are others than those recorded"
	}
	if c.Equal = c.Difference == ""; c.Equal {
		c.Rows, c.Derived = p.rows, p.derived
	}
	for i, peak := range livePeaks(events, len(f.Steps)) {
		c.Steps = append(c.Steps, StepPeaks{Allocated: peak, RecordedAllocated: f.Steps[i].PeakAllocated})
	}
}

// compare fills in the result. With late, what is freed when a step returns was
// recorded in the step after it. On a real GPU the workspaces of cuDNN's convolutions are
// those that it found fastest, which are compared in the peaks alone.
func (c *Case) compare(text string, env op.Env, recorded map[string][]trace.RecordedEvent, steps []RecordedStep, late bool) {
	p, err := predict(c.Name, text, env, len(steps), c.files)
	if err != nil {
		c.Difference = "no prediction: " + err.Error()
		return
	}
	played := p.events
	if c.Real {
		c.Torch = env.Torch.String()
		recorded, played, _ = trace.WithoutWorkspaces(recorded, played, p.workspaces.Places(), p.workspaces.Events)
	}
	c.Difference = trace.Difference(recorded, played, late, p.autocast)
	if c.Equal = c.Difference == ""; c.Equal {
		c.Rows, c.Derived = p.rows, p.derived
	}
	events := slices.Clone(p.events)
	for i := range events {
		events[i].Step = int32(trace.StepOf(&events[i], late))
	}
	res, err := allocsim.Replay(events, allocsim.ReplayOptions{Config: p.conf})
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
