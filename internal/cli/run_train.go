package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// onDevice trains on a device of memplan's own.
func (e *execution) onDevice(c *cobra.Command, s *Streams, r *estimate.Recipe, named *estimate.Machine, keys []estimate.Key) (*report.Run, error) {
	if _, given := s.Env("GOGC"); !given { // segments are large, and what is freed goes back soon
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	device, gpu, why, err := openDevice(e.backend, s.Err)
	if err != nil {
		return nil, err
	}
	rep, err := e.train(c, s, r, device, gpu, keys)
	if rep != nil {
		if why != "" {
			rep.Add(note.Backend.New("%s", why))
		}
		if gpu != nil {
			rep.Add(otherGPU(named, gpu)...)
		}
	}
	err = errors.Join(err, device.Close())
	return rep, outOfMemory(rep, err)
}

// train trains on a device that was opened; gpu is nil for the CPU.
func (e *execution) train(c *cobra.Command, s *Streams, r *estimate.Recipe, device limitedDevice, gpu *foundGPU, keys []estimate.Key) (*report.Run, error) {
	backend := "cpu"
	if gpu != nil {
		backend, keys = "cuda", append(keys, gpu.keys()...)
	}
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	if j.Program.Parallel.Ranks > 0 {
		j.Spec.Errs.Addf(j.Spec.Parallel.At, "a job of processes that have a GPU each is run with --backend torch")
		return nil, j.Spec.Errs
	}
	if gpu != nil {
		j.Machine.Context, j.Machine.Occupied = gpu.memory-gpu.free, 0
	}
	capacity := j.Machine.Usable()
	if e.capacity != "" {
		if capacity, err = tensor.ParseBytes(e.capacity); err != nil {
			return nil, err
		}
	}
	if capacity <= 0 {
		return nil, usagef("%s: the CUDA context and other processes leave nothing of the device's %v; --capacity says what the job may take", j.Spec.Path, j.Machine.Total)
	}
	set, err := trainingData(e.open(s, r.Path), j, e.seed)
	if err != nil {
		return nil, err
	}
	device.Limit(capacity)
	j.Machine.Limit(capacity)
	o, rep, err := predicted(j, backend, device.Name())
	if err != nil {
		return nil, err
	}
	e.predicted = o
	if backend == "cpu" {
		segments := min(rep.Predicted.ReservedBytes, capacity)
		if e.verify { // before, in float64
			segments *= 2
		}
		need, err := processMemory(j, o, segments, set)
		if err == nil {
			err = enoughMemory(rep, need, segments)
		}
		if err != nil {
			return nil, err
		}
	}
	rep.Predicted.DeviceBytes = 0
	if gpu != nil {
		rep.Predicted.DeviceBytes = rep.Predicted.ReservedBytes + gpu.memory - gpu.free
	}
	ctx := e.context(c, r)
	if e.saveEvery > 0 {
		if err := runtime.Resumable(j.Program); err != nil {
			return nil, usagef("--save-every: %w", err)
		}
		patient(ctx)
		ctx = context.WithoutCancel(ctx)
	}
	j.Program.Steps = int64(e.last)
	for _, o := range j.Program.Optimizers {
		if o.Unrated != "" {
			rep.Add(note.ConstantRate.New("the learning rate stays: %s", o.Unrated))
		}
	}
	steps := &steps{e: e, s: s, ctx: c.Context(), last: e.last, progress: newProgress(s), rep: rep, gpu: gpu, batch: j.Program.Batch}
	if v := j.Program.Eval; v != nil {
		steps.every = v.Every
	}
	options := runtime.Options{
		Device: device, Config: j.Machine.Conf, Steps: steps.last, Seed: e.seed, Now: time.Now, OnStep: steps.done, OnEval: steps.evaluated, Poison: e.poison,
	}
	if set != nil {
		t := set.Training()
		rep.Data = &report.RunData{Samples: t.Samples()}
		options.Source = data.NewPrefetch(t, j.Program.Inputs)
		if options.Validation, err = evaluated(j, set, rep); err != nil {
			return nil, err
		}
	}
	if e.save != "" && e.saveEvery == 0 {
		options.OnEnd = func(w *runtime.Weights) error { return writeTo(s, e.save, w.WriteSafetensors) }
	}
	if err := e.readWeights(c, &options); err != nil {
		return nil, err
	}
	if options.Resume != nil {
		rep.Resumed = options.Resume.Step
	}
	if err := steps.openLog(); err != nil {
		return nil, err
	}
	var reference []float64
	if e.verify {
		if reference, err = e.reference(ctx, r, keys, options, set); err != nil {
			return nil, errors.Join(err, steps.closeLog())
		}
	}
	res, err := runtime.Run(ctx, j.Program, j.Machine.Env, options)
	steps.progress.clear()
	err = errors.Join(err, steps.closeLog())
	for _, q := range res.Steps {
		rep.StepMS = append(rep.StepMS, float64(q.Took.Microseconds())/1000)
		if q.HasLoss {
			rep.Losses = append(rep.Losses, report.Loss(q.Loss))
		}
	}
	if e.verify && err == nil {
		rep.Verify = verified(rep.Losses, reference, j.Spec.Train.Precision.V)
	}
	if rep.BatchSize = j.Program.Batch; e.last > engine.MaxSteps {
		rep.Add(note.FewSteps.New("of the %d steps the first %d were predicted; those after them count in the peaks", e.last, engine.MaxSteps))
	}
	rep.Steps = len(res.Steps)
	if rep.Host != nil {
		rep.Host.PeakBytes = cpu.Taken()
	}
	switch oom := (*allocsim.OOMError)(nil); {
	case errors.As(err, &oom):
		rep.Measured.OutOfMemory, rep.Measured.OOM = true, failedRequest(res.Played.Trace, oom)
	case err != nil && rep.Resumed+rep.Steps < options.Steps:
		if rep.Stopped = err.Error(); c.Context().Err() != nil {
			rep.Stopped = "interrupted"
		}
	}
	if rep.Backend == "cuda" && len(res.HostOperators) > 0 {
		rep.Add(note.HostOperators.New("computed in host memory, which takes time: operators %s", strings.Join(res.HostOperators, ", ")))
	}
	rep.Measured.AllocatedBytes, rep.Measured.ReservedBytes = res.Stats.AllocatedBytes.All.Peak, res.Stats.ReservedBytes.All.Peak
	if res.Played != nil {
		rep.Trace = sameTrace(o, res.Played, rep)
		rep.Add(byNumbers(j, res.Played, rep.Trace.Equal)...)
	}
	return rep, err
}

// failedRequest is the last event of what was played: a request that failed.
func failedRequest(t *trace.Trace, err *allocsim.OOMError) *report.OOM {
	e := &t.Events[len(t.Events)-1]
	return &report.OOM{
		Step: int(e.Step), Phase: e.Phase.String(), Op: t.Ops[e.Op], Layer: t.Layers[e.Layer],
		TriedBytes: err.Tried, FreeBytes: err.Free, Message: err.Error(),
	}
}

// byNumbers says which allocations depended on numbers, which a prediction does not
// know.
func byNumbers(j *estimate.Job, p *engine.Played, equal bool) []note.Note {
	var out []note.Note
	if p.Skipped > 0 {
		out = append(out, note.StepsSkipped.New("GradScaler left out %s, since gradients were infinite; the prediction is of a job in which none is left out",
			report.Plural(int64(p.Skipped), "optimizer step")))
	}
	for _, o := range j.Program.Optimizers {
		if o.Row.Whole != nil && !equal {
			out = append(out, note.ByNumbers.New("%s", o.Row.Note(o.Args)))
		}
	}
	return out
}

// sameTrace compares what was played with what was predicted: of a run that stopped
// as far as it went, and up to the first request that fails.
func sameTrace(o *estimate.Outcome, m *engine.Played, rep *report.Run) report.RunTrace {
	t := report.RunTrace{Events: len(m.Trace.Events), Equal: true}
	a, b := o.Played.Trace.Events, m.Trace.Events
	switch {
	case rep.Predicted.OutOfMemory && rep.Measured.OutOfMemory:
		a = a[:o.OnGPU.OOMs[0].Event+1]
	case rep.Stopped != "":
		a = a[:min(len(a), len(b))]
	default:
		b = b[:sort.Search(len(b), func(i int) bool { return b[i].Step > engine.MaxSteps })]
		t.Events = len(b)
	}
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Equal, t.FirstDifference = false, fmt.Sprintf("event %d is another one than predicted", i)
			break
		}
	}
	return t
}

// outOfMemory says of an allocation that failed where, and what can be done.
func outOfMemory(rep *report.Run, err error) error {
	if oom := (*allocsim.OOMError)(nil); errors.As(err, &oom) && rep != nil {
		at := rep.Measured.OOM
		return fmt.Errorf("out of memory in %s: %w\nmemplan estimate says what would make the job fit", report.Where(at.Step, at.Phase, at.Op, at.Layer), err)
	}
	return err
}
