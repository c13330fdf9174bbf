package plan_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/plan"
)

func tiny(set ...string) *plan.Job {
	return &plan.Job{Name: "tiny.yaml", Text: []byte(spec), Set: set}
}

// A call ends with its context, and with its limits; the next has its own.
func TestEnds(t *testing.T) {
	ended := errors.New("the scheduler has no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	job := tiny("train.steps=1000")
	if _, err := job.Estimate(ctx); !errors.Is(err, ended) {
		t.Errorf("%v, want the cause", err)
	}
	e, err := job.Estimate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Largest(ctx, plan.Search{}); err == nil {
		t.Error("a search goes on after its context")
	}
	if _, err := e.Largest(t.Context(), plan.Search{}); err != nil {
		t.Error(err)
	}
	job.Limits.Work = 100
	for range 2 {
		var met *plan.LimitError
		if _, err := job.Estimate(t.Context()); !errors.As(err, &met) {
			t.Errorf("%v, want a limit", err)
		}
	}
	trace, err := tiny().Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Replay(ctx, trace, plan.ReplayOptions{}); !errors.Is(err, ended) {
		t.Errorf("%v, want the cause", err)
	}
}

// With leaves the job as it is, and the last value of a key counts.
func TestWith(t *testing.T) {
	job := tiny("train.batch_size=8")
	job.Set = slices.Grow(job.Set, 4)
	a, b := job.With("train.batch_size=16"), job.With("train.batch_size=32")
	for want, j := range map[int64]*plan.Job{8: job, 16: a, 32: b, 64: b.With("train.batch_size=64")} {
		e, err := j.Estimate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Report.Train.BatchSize; got != want {
			t.Errorf("batch %d, want %d", got, want)
		}
	}
}

// The trace of a job, written and read, comes to the peaks of its estimate.
func TestTrace(t *testing.T) {
	e, err := tiny().Estimate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	trace, err := tiny().Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := plan.WriteTrace(&b, trace); err != nil {
		t.Fatal(err)
	}
	if trace, err = plan.ReadTrace(&b); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Replay(t.Context(), trace, plan.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Simulation.Reserved.Peak != e.Report.Peak.ReservedBytes || p.Simulation.Allocated.Peak != e.Report.Peak.AllocatedBytes {
		t.Errorf("%v reserved, %v allocated; the estimate says %v, %v", p.Simulation.Reserved.Peak, p.Simulation.Allocated.Peak, e.Report.Peak.ReservedBytes, e.Report.Peak.AllocatedBytes)
	}
	var drawn strings.Builder
	if err := p.WriteMap(&drawn); err != nil || drawn.Len() == 0 {
		t.Errorf("no map (%v)", err)
	}
	// Events of a program's own.
	own := &plan.Trace{Capacity: 1 << 30}
	own.Events = []plan.Event{{Kind: plan.Alloc, ID: 1, Bytes: 1 << 20}, {Kind: plan.Free, ID: 1}, {Kind: plan.EmptyCache}}
	if p, err = plan.Replay(t.Context(), own, plan.ReplayOptions{Series: true}); err != nil || p.Simulation.Reserved.Current != 0 || len(p.Simulation.Series.Reserved) != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}

// Every preset can be checked; what is not there says so.
func TestNames(t *testing.T) {
	names := plan.Presets()
	if len(names) < 50 || !slices.Contains(names, "gpt2") || !slices.Contains(names, "hf/llama") {
		t.Errorf("presets %q", names)
	}
	for _, n := range names {
		if text, err := plan.Preset(n); err != nil || len(text) == 0 {
			t.Errorf("%s: %v", n, err)
		}
	}
	text, err := plan.Preset("mlp")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&plan.Job{Name: "mlp", Text: text}).Check(t.Context()); err != nil {
		t.Error(err)
	}
	e, err := tiny().Estimate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var unknown *plan.KeyError
	if _, err := e.Largest(t.Context(), plan.Search{Key: "seq"}); !errors.As(err, &unknown) || unknown.Key != "seq" {
		t.Errorf("%v", err)
	}
	if _, err := plan.ReadTrace(strings.NewReader(`{"events": [["a", 1]]}`)); len(plan.Mistakes(err)) != 1 {
		t.Errorf("no mistake in %v", err)
	}
	if plan.Mistakes(context.Canceled) != nil {
		t.Error("an end is a mistake")
	}
}
