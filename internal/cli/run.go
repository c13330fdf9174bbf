package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchrun"
	"github.com/memplan/memplan/internal/trace"
)

// execution is what the command line asks of a run.
type execution struct {
	source
	backend   string
	capacity  string
	tolerance string
	python    string
	seed      uint64
	format    string
	save      string

	share float64 // tolerance, parsed
}

// runDefault is what runs without a spec, in seconds on any machine.
const runDefault = presetPrefix + "lenet"

// runSteps is how many steps run, unless --steps or the spec says.
const runSteps = 10

// backends are the values of --backend.
var backends = []string{"auto", "cpu", "cuda", "torch"}

func newRun(s *Streams) *cobra.Command {
	var e execution
	c := &cobra.Command{
		Use:   "run [SPEC | preset:NAME]",
		Short: "Execute the training steps, and hold what they took against the prediction",
		Long: `Run executes the training steps of a spec and compares the memory that they took
with the prediction, allocation by allocation.

--backend torch runs the exported script in your own PyTorch, on your GPU: the
confirmation by the real thing. cuda and cpu train with kernels of memplan's own,
in memory that is divided by the allocator that predicts; they need no Python.
auto is cuda where there is a GPU and memplan was built for it, else cpu.

Without a SPEC it trains LeNet-5 with Adam for some seconds, so that a falling loss
can be seen on any machine.

The exit code is 4 if the measured peaks differ from the predicted ones by more
than --tolerance.`,
		Example: `  memplan run preset:mlp --steps 3
  memplan run preset:lenet --backend cpu --steps 2 --batch-size 8 --format json`,
		Args: atMost(1, "run takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error { return e.run(c, s, args) },
	}
	e.flags(c)
	f := c.Flags()
	f.StringVar(&e.backend, "backend", backends[0], strings.Join(backends, ", "))
	completeFlag(c, "backend", func() []string { return backends })
	f.StringVar(&e.capacity, "capacity", "", "memory that the job may take, such as 2GiB (default: the GPU's)")
	f.Lookup("steps").Usage = fmt.Sprintf("steps to run (default %d)", runSteps)
	f.StringVar(&e.tolerance, "tolerance", "", "how far the measured peaks may be from the predicted ones (default 0%, with torch 2% for the workspaces of cuDNN)")
	f.StringVar(&e.python, "python", "python3", "command that runs Python, for --backend torch")
	f.Uint64Var(&e.seed, "seed", 0, "seed of weights, data and dropout")
	f.StringVar(&e.save, "save", "", "write the weights to this file when the steps are done, as safetensors (backends cpu and cuda)")
	f.StringVar(&e.format, "format", report.RunFormats[0], strings.Join(report.RunFormats, ", "))
	completeFlag(c, "format", func() []string { return report.RunFormats })
	return c
}

func (e *execution) run(c *cobra.Command, s *Streams, args []string) error {
	if err := oneOf("format", e.format, report.RunFormats); err != nil {
		return err
	}
	if err := oneOf("backend", e.backend, backends); err != nil {
		return err
	}
	tolerance := e.tolerance
	switch {
	case tolerance != "":
	case e.backend == "torch":
		tolerance = "2%"
	default:
		tolerance = "0%"
	}
	var err error
	if e.share, err = parseShare(tolerance); err != nil {
		return usagef("--tolerance: %w", err)
	}
	var keys []estimate.Key
	steps := runSteps
	if len(args) == 0 {
		args, steps = []string{runDefault}, 2*runSteps
		if e.optimizer == "" {
			keys = append(keys, estimate.Key{Path: "train.optimizer", Value: "{Adam: {lr: 0.003}}"})
		}
	}
	r, err := e.recipe(c, s, args)
	if err != nil {
		return err
	}
	if !c.Flags().Changed("steps") {
		keys = append(keys, estimate.Key{Path: "train.steps", Value: strconv.Itoa(steps)})
	}
	if e.capacity != "" {
		if _, err := tensor.ParseBytes(e.capacity); err != nil {
			return usagef("--capacity: %w", err)
		}
	}
	if err := e.checkSave(); err != nil {
		return err
	}
	var rep *report.Run
	if e.backend == "torch" {
		rep, err = e.onTorch(c, s, r, keys)
	} else {
		rep, err = e.onDevice(c, s, r, keys)
	}
	if rep == nil {
		return err
	}
	rep.Agrees = rep.Stopped == "" && e.agrees(rep)
	if len(rep.StepMS) > 0 {
		if werr := report.WriteRun(s.Out, rep, e.format); werr != nil {
			return werr
		}
	}
	if err == nil && !rep.Agrees {
		return errMismatch
	}
	return err
}

// checkSave finds out before the run whether a file can be made for its weights.
func (e *execution) checkSave() error {
	switch info, err := os.Stat(e.save); {
	case e.save == "" || err == nil && info.Mode().Type()&(os.ModeDevice|os.ModeNamedPipe) != 0:
		return nil
	case e.save == "-":
		return usagef("--save takes the name of a file; the report goes to standard output")
	case err == nil && info.IsDir():
		return usagef("--save: %s is a directory", e.save)
	}
	f, err := os.CreateTemp(filepath.Dir(e.save), filepath.Base(e.save)+".*")
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// errMismatch says that a run contradicts its prediction, which was printed.
var errMismatch = errors.New("the run differs from the prediction by more than --tolerance")

// agrees compares the peaks. What the device holds beside them depends on the
// driver, and does not count.
func (e *execution) agrees(r *report.Run) bool {
	if r.Predicted.OutOfMemory || r.Measured.OutOfMemory { // the peaks are those of another story
		return r.Predicted.OutOfMemory == r.Measured.OutOfMemory
	}
	near := func(p, m tensor.Bytes) bool { return math.Abs(report.Difference(p, m)) <= e.share }
	return near(r.Predicted.AllocatedBytes, r.Measured.AllocatedBytes) && near(r.Predicted.ReservedBytes, r.Measured.ReservedBytes)
}

// predicted starts the report of a run with what was predicted for it.
func predicted(j *estimate.Job, backend, device string) (*estimate.Outcome, *report.Run, error) {
	o, err := estimate.Run(j)
	if err != nil {
		return nil, nil, err
	}
	p := o.Report()
	return o, &report.Run{
		Version: report.RunVersion, Spec: j.Spec.Path, Backend: backend, Device: device,
		Predicted: report.RunBytes{AllocatedBytes: p.Peak.AllocatedBytes, ReservedBytes: p.Peak.ReservedBytes, DeviceBytes: p.Peak.DeviceBytes},
		Losses:    []report.Loss{}, StepMS: []float64{}, Warnings: []string{},
	}, nil
}

// onDevice trains on a device of memplan's own.
func (e *execution) onDevice(c *cobra.Command, s *Streams, r *estimate.Recipe, keys []estimate.Key) (*report.Run, error) {
	if _, given := s.Env("GOGC"); !given { // segments are large, and what is freed goes back soon
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	if n := j.Program.Parallel.Ranks; n > 0 {
		return nil, usagef("%s: parallel: %s, each on a GPU of its own, run with --backend torch", j.Spec.Path, report.Plural(n, "process"))
	}
	capacity := j.Machine.Usable()
	if e.capacity != "" {
		if capacity, err = tensor.ParseBytes(e.capacity); err != nil {
			return nil, err
		}
	}
	source, err := trainingData(r, j, e.seed)
	if err != nil {
		return nil, err
	}
	device, backend, why, err := openDevice(e.backend, capacity)
	if err != nil {
		return nil, err
	}
	o, rep, err := predicted(j, backend, device.Name())
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	rep.Predicted.DeviceBytes = 0
	if why != "" {
		rep.Warnings = append(rep.Warnings, why)
	}
	p := newProgress(s)
	options := runtime.Options{
		Device: device, Config: j.Machine.Conf, Source: source, Steps: int(j.Spec.Train.Steps.V), Seed: e.seed, Now: time.Now,
		OnStep: func(q runtime.Progress) error {
			p.line("step %d: loss %.4g, %v, allocated %v, reserved %v", q.Step, q.Loss, q.Took.Round(time.Millisecond), q.Allocated, q.Reserved)
			return nil
		},
	}
	if e.save != "" {
		options.OnEnd = func(w *runtime.Weights) error { return writeTo(s, e.save, w.WriteSafetensors) }
	}
	res, err := runtime.Run(c.Context(), j.Program, j.Machine.Env, options)
	p.clear()
	for _, q := range res.Steps {
		rep.StepMS = append(rep.StepMS, float64(q.Took.Microseconds())/1000)
		if q.HasLoss {
			rep.Losses = append(rep.Losses, report.Loss(q.Loss))
		}
	}
	rep.Steps = len(res.Steps)
	if err != nil && rep.Steps < options.Steps {
		rep.Stopped = err.Error()
	}
	if rep.Backend == "cuda" && len(res.Aside) > 0 {
		rep.Warnings = append(rep.Warnings, "computed in the machine's own memory, which takes time: operators "+strings.Join(res.Aside, ", "))
	}
	rep.Measured = report.RunBytes{AllocatedBytes: res.Stats.AllocatedBytes.All.Peak, ReservedBytes: res.Stats.ReservedBytes.All.Peak}
	if res.Played != nil {
		rep.Trace = sameTrace(o.Played, res.Played)
		rep.Warnings = append(rep.Warnings, byNumbers(j, res.Played, rep.Trace.Equal)...)
	}
	err = errors.Join(err, device.Close())
	return rep, outOfMemory(err)
}

// byNumbers says which allocations depended on numbers, which a prediction does not
// know.
func byNumbers(j *estimate.Job, p *engine.Played, equal bool) []string {
	var out []string
	if p.Skipped > 0 {
		out = append(out, fmt.Sprintf("GradScaler left out %s, since gradients were infinite; the prediction is of a job in which none is left out",
			report.Plural(int64(p.Skipped), "optimizer step")))
	}
	for _, o := range j.Program.Optimizers {
		if o.Row.Whole != nil && !equal {
			out = append(out, o.Row.Note(o.Args))
		}
	}
	return out
}

// sameTrace compares what was played with what was predicted.
func sameTrace(p, m *engine.Played) report.RunTrace {
	t := report.RunTrace{Events: len(m.Trace.Events), Equal: true}
	a, b := p.Trace.Events, m.Trace.Events
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Equal, t.FirstDifference = false, fmt.Sprintf("event %d is another one than predicted", i)
			break
		}
	}
	return t
}

// outOfMemory says of an allocation that failed what can be done.
func outOfMemory(err error) error {
	if oom := (*allocsim.OOMError)(nil); errors.As(err, &oom) {
		return fmt.Errorf("%w\nmemplan estimate says what would make the job fit", err)
	}
	return err
}

// onTorch runs the exported script in the user's PyTorch.
func (e *execution) onTorch(c *cobra.Command, s *Streams, r *estimate.Recipe, keys []estimate.Key) (*report.Run, error) {
	python := torchrun.Python(strings.Fields(e.python))
	if len(python) == 0 {
		return nil, usagef("--python must name a command")
	}
	if e.save != "" {
		return nil, usagef("--save is for the other backends")
	}
	if e.capacity != "" {
		return nil, usagef("--capacity is for the other backends; with torch use --set device.memory_fraction")
	}
	found, err := python.Find(c.Context())
	if err != nil {
		return nil, fmt.Errorf("--python: %w", err)
	}
	keys = append(keys, deviceKeys(found)...)
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	o, rep, err := predicted(j, "torch", fmt.Sprintf("%s, PyTorch %s", found.Name, found.Torch))
	if err != nil {
		return nil, err
	}
	rep.Warnings = append(rep.Warnings, j.NotModelled...)
	steps := int(j.Spec.Train.Steps.V)
	var script bytes.Buffer
	if err := exporttorch.Write(&script, j.Program, exporttorch.Options{Steps: steps}); err != nil {
		return nil, err
	}
	p := newProgress(s)
	p.line("PyTorch runs %s", report.Plural(int64(steps), "step"))
	ranks := j.Program.Parallel.Ranks
	recs, err := python.Record(c.Context(), script.Bytes(), ranks, found.Count)
	p.clear()
	if err != nil {
		return nil, err
	}
	if ranks > found.Count {
		rep.Warnings = append(rep.Warnings, fmt.Sprintf("PyTorch finds %s, the job is for %d: one process stood for the first of %d, without NCCL", report.Plural(found.Count, "GPU"), ranks, ranks))
	}
	for _, rec := range recs {
		rep.Measured.DeviceBytes = max(rep.Measured.DeviceBytes, rec.Device)
		for _, q := range rec.Steps {
			rep.Measured.AllocatedBytes = max(rep.Measured.AllocatedBytes, q.PeakAllocated)
			rep.Measured.ReservedBytes = max(rep.Measured.ReservedBytes, q.PeakReserved)
		}
	}
	rec := recs[0] // of the first process, whose events are compared
	rep.Steps = len(rec.Steps)
	if rep.Ranks = len(recs); rep.Ranks > 1 {
		rep.Device += ", " + report.Plural(int64(rep.Ranks), "process")
	}
	for _, q := range rec.Steps {
		rep.StepMS = append(rep.StepMS, q.MS)
	}
	for _, events := range rec.Events {
		rep.Trace.Events += len(events)
	}
	predictedEvents := o.Played.Trace.Events
	rep.Predicted.OutOfMemory, rep.Measured.OutOfMemory = !o.Fits(), strings.Contains(rec.Error, "out of memory")
	if rep.Predicted.OutOfMemory {
		p := o.Report()
		predictedEvents = predictedEvents[:o.OnGPU.OOMs[0].Event]
		rec.Events = trace.Until(rec.Events, predictedEvents) // then the exception frees what it unwinds
		rep.Warnings = append(rep.Warnings, "predicted: "+strings.ReplaceAll(p.Verdict.Reason, "\n", "; "))
	}
	rep.Trace.FirstDifference = trace.Difference(rec.Events, predictedEvents, false, j.Program.Autocast)
	rep.Trace.Equal = rep.Trace.FirstDifference == ""
	switch {
	case rep.Measured.OutOfMemory:
		rep.Warnings = append(rep.Warnings, "PyTorch: "+rec.Error)
	case rec.Error != "":
		rep.Stopped = rec.Error
		return rep, fmt.Errorf("the script ended early: %s", rec.Error)
	}
	return rep, nil
}

// deviceKeys are the keys of a spec that describe a GPU and a version of PyTorch.
func deviceKeys(d *torchrun.Device) []estimate.Key {
	version := strings.SplitN(d.Torch, "+", 2)[0]
	parts := strings.Split(version, ".")
	if len(parts) > 2 {
		version = strings.Join(parts[:2], ".")
	}
	return []estimate.Key{
		{Path: "device.arch", Value: fmt.Sprintf("sm_%d", d.Arch)},
		{Path: "device.sms", Value: strconv.Itoa(d.SMs)},
		{Path: "device.memory", Value: strconv.FormatInt(int64(d.Memory), 10)},
		{Path: "torch", Value: strconv.Quote(version)},
	}
}
