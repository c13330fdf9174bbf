package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/internal/webpage"
	"github.com/memplan/memplan/plan"
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
	saveEvery int
	init      string
	resume    string

	share float64 // tolerance, parsed

	pictures  pictures
	predicted *estimate.Outcome
}

// runDefault is what runs without a spec, in seconds on any machine.
const runDefault = presetPrefix + "lenet"

// runSteps is how many steps run, unless --steps or the spec says.
const runSteps = 10

// backends are the values of --backend.
var backends = []string{"auto", "cpu", "cuda", report.TorchBackend}

func newRun(s *Streams) *cobra.Command {
	var e execution
	c := &cobra.Command{
		Use:   "run [SPEC | preset:NAME]",
		Short: "Execute the training steps and compare their memory with the prediction",
		Long: `Run executes the training steps of a spec and compares the memory that they take
with the prediction, allocation by allocation.

--backend torch runs the exported script in your own PyTorch, on your GPU. Only this
backend shows that PyTorch does what is predicted; the report then says AGREES. The
backends cuda and cpu need no Python: they train with memplan's own kernels, engine
and allocator, which also make the prediction. That is a self-check: it shows that
the job runs and learns, but is no evidence about PyTorch. auto is cuda if there is
a GPU and memplan was built for it, otherwise cpu.

Without a SPEC it trains LeNet-5 with Adam for some seconds, so that a falling loss
can be seen on any machine.

The exit code is 4 if the measured peaks differ from the predicted ones by more
than --tolerance, or, without that flag, if any allocation or free differs from the
predicted one. The workspaces of cuDNN's convolutions depend on the machine: they
are compared in the peaks, but not as allocations.

--html FILE also writes a page with the losses and the predicted events.`,
		Example: `  memplan run preset:mlp --steps 3
  memplan run preset:lenet --backend cpu --steps 2 --batch-size 8 --format json`,
		Args: atMost(1, "run takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error { return e.run(c, s, args) },
	}
	e.flags(c)
	e.pictures.flags(c)
	f := c.Flags()
	f.StringVar(&e.backend, "backend", backends[0], strings.Join(backends, ", "))
	completeFlag(c, "backend", func() []string { return backends })
	f.StringVar(&e.capacity, "capacity", "", "memory that the job may take, such as 2GiB (default: the GPU's)")
	f.Lookup("steps").Usage = fmt.Sprintf("steps to run (default: train.steps, or %d)", runSteps)
	f.StringVar(&e.tolerance, "tolerance", "", "largest difference of measured and predicted peaks (default 0%; with torch 2%, for cuDNN's workspaces)")
	f.StringVar(&e.python, "python", "python3", "command that runs Python, for --backend torch")
	f.Uint64Var(&e.seed, "seed", 0, "seed of weights, data and dropout")
	f.StringVar(&e.save, "save", "", "write the weights to this safetensors file after the last step (backends cpu and cuda)")
	f.IntVar(&e.saveEvery, "save-every", 0, "also write the file of --save after every so many steps and when interrupted, with all that --resume needs")
	f.StringVar(&e.resume, "resume", "", "go on with the run that --save-every saved in this file")
	f.StringVar(&e.init, "init", "", "start from the weights of this safetensors file, named as in PyTorch's state_dict")
	f.StringVar(&e.format, "format", report.RunFormats.Default(), strings.Join(report.RunFormats.Names(), ", "))
	completeFlag(c, "format", report.RunFormats.Names)
	return c
}

func (e *execution) run(c *cobra.Command, s *Streams, args []string) error {
	if err := oneOf("format", e.format, report.RunFormats.Names()); err != nil {
		return err
	}
	if err := oneOf("backend", e.backend, backends); err != nil {
		return err
	}
	tolerance := e.tolerance
	switch {
	case tolerance != "":
	case e.backend == report.TorchBackend:
		tolerance = "2%"
	default:
		tolerance = "0%"
	}
	var err error
	if e.share, err = parseShare(tolerance); err != nil {
		return usagef("--tolerance: %w", err)
	}
	var keys []estimate.Key
	steps, own := runSteps, false
	if len(args) == 0 {
		args, steps, own = []string{runDefault}, 2*runSteps, true
		if e.optimizer == "" {
			keys = append(keys, estimate.Key{Path: "train.optimizer", Value: "{Adam: {lr: 0.003}}"})
		}
	}
	r, err := e.recipe(c, s, args)
	if err == nil && r.Recorded != nil {
		err = usagef("%s is a recording: its script runs it", r.Path)
	}
	if err != nil {
		return err
	}
	sp, m, err := r.Outline(keys...)
	if err != nil {
		return err
	}
	if own || !sp.Train.Steps.Set {
		keys = append(keys, estimate.Key{Path: "train.steps", Value: strconv.Itoa(steps)})
	}
	if e.capacity != "" {
		switch n, err := tensor.ParseBytes(e.capacity); {
		case err != nil:
			return usagef("--capacity: %w", err)
		case n <= 0:
			return usagef("--capacity: must be more than nothing")
		}
	}
	if err := e.checkFiles(c); err != nil {
		return err
	}
	if err := e.checkSave(); err != nil {
		return err
	}
	var rep *report.Run
	if e.backend == report.TorchBackend {
		rep, err = e.onTorch(c, s, r, m, keys)
	} else {
		rep, err = e.onDevice(c, s, r, m, keys)
	}
	if rep == nil {
		return err
	}
	asPredicted := rep.Conclude(rep.Stopped == "" && e.within(rep))
	if len(rep.StepMS) > 0 {
		if werr := e.pictures.write(s, func() (*webpage.Page, error) { return e.page(rep) }); werr != nil {
			return werr
		}
	}
	if (len(rep.StepMS) > 0 || rep.Measured.OutOfMemory) && !e.pictures.alone() {
		format, write, options := report.RunFormats.Lookup(e.format), s.people, report.RunOptions{Width: s.terminal()}
		if format.Name != report.RunFormats.Default() {
			write = func(f func(io.Writer) error) error { return f(s.Out) }
		}
		if werr := write(func(w io.Writer) error { return format.Write(w, rep, options) }); werr != nil {
			return werr
		}
	}
	switch {
	case err != nil:
		return err
	case !rep.Within:
		return errMismatch
	case !asPredicted && !c.Flags().Changed("tolerance"):
		return errOther
	}
	return nil
}

// page is the page of a run: what was measured, and the events that were predicted.
func (e *execution) page(r *report.Run) (*webpage.Page, error) {
	m := e.predicted.Job.Machine
	memory, err := memoryOf(&plan.Trace{
		Config: m.ConfText, Torch: m.Env.Torch.String(), Capacity: m.Total, Occupied: m.Context + m.Occupied, MemoryFraction: m.Fraction, Trace: *e.predicted.ToPeak(),
	}, e.predicted.Report())
	if err != nil {
		return nil, err
	}
	for i := range memory {
		memory[i].Name = "predicted, " + memory[i].Name
	}
	return webpage.OfRun(r, memory), nil
}

// checkFiles refuses flags of weights that do not go together.
func (e *execution) checkFiles(c *cobra.Command) error {
	switch {
	case e.saveEvery < 0 || e.saveEvery == 0 && c.Flags().Changed("save-every"):
		return usagef("--save-every: must be at least 1")
	case e.saveEvery > 0 && e.save == "":
		return usagef("--save-every needs --save FILE")
	case e.init != "" && e.resume != "":
		return usagef("--init and --resume exclude each other: the run that is resumed has its weights")
	case e.backend == report.TorchBackend && (e.init != "" || e.resume != ""):
		return usagef("--init and --resume are for the other backends")
	}
	return nil
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
	if err := files.Try(e.save); err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	return nil
}

// The errors of a run that contradicts its prediction, which was printed.
var (
	errMismatch = errors.New("the run differs from the prediction by more than --tolerance")
	errOther    = errors.New("the run made other allocations than predicted; with --tolerance the peaks alone decide")
)

// within compares the peaks. What the device holds beside them depends on the
// driver, and does not count.
func (e *execution) within(r *report.Run) bool {
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
	rep := &report.Run{
		Version: report.RunVersion, Spec: j.Spec.Path, Backend: backend, Device: device,
		Predicted: report.RunBytes{AllocatedBytes: p.Peak.AllocatedBytes, ReservedBytes: p.Peak.ReservedBytes, DeviceBytes: p.Peak.DeviceBytes},
		Losses:    []report.Loss{}, StepMS: []float64{}, Warnings: []string{}, Notes: []note.Note{},
	}
	if oom := p.Verdict.OOM; oom != nil {
		rep.Predicted.OutOfMemory, rep.Predicted.OOM = true, oom
		rep.Add(note.Dies.New("predicted: %s", strings.ReplaceAll(p.Verdict.Reason, "\n", "; ")))
	}
	return o, rep, nil
}

// onDevice trains on a device of memplan's own.
func (e *execution) onDevice(c *cobra.Command, s *Streams, r *estimate.Recipe, named *estimate.Machine, keys []estimate.Key) (*report.Run, error) {
	if _, given := s.Env("GOGC"); !given { // segments are large, and what is freed goes back soon
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	device, gpu, why, err := openDevice(e.backend)
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
	source, err := trainingData(e.open(s, r.Path), j, e.seed)
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
		if err := enoughMemory(min(rep.Predicted.AllocatedBytes, capacity)); err != nil {
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
	p := newProgress(s)
	options := runtime.Options{
		Device: device, Config: j.Machine.Conf, Source: source, Steps: int(j.Spec.Train.Steps.V), Seed: e.seed, Now: time.Now,
		OnStep: func(q runtime.Progress) error {
			p.line("step %d: loss %.4g, %v, allocated %v, reserved %v", q.Step, q.Loss, q.Took.Round(time.Millisecond), q.Allocated, q.Reserved)
			if gpu != nil {
				rep.Measured.DeviceBytes = max(rep.Measured.DeviceBytes, gpu.used())
			}
			over := e.saveEvery > 0 && c.Context().Err() != nil
			if over || e.saveEvery > 0 && (q.Step%e.saveEvery == 0 || q.Step == int(j.Spec.Train.Steps.V)) {
				if err := writeTo(s, e.save, q.Save); err != nil {
					return fmt.Errorf("--save: %w", err)
				}
			}
			if over {
				p.clear()
				fmt.Fprintf(s.Err, "memplan: %s holds the run after step %d; --resume goes on with it\n", printable.File(e.save), q.Step)
				return c.Context().Err()
			}
			if q.HasLoss && math.IsNaN(q.Loss) {
				return fmt.Errorf("the loss is NaN in step %d", q.Step)
			}
			return nil
		},
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
	res, err := runtime.Run(ctx, j.Program, j.Machine.Env, options)
	p.clear()
	for _, q := range res.Steps {
		rep.StepMS = append(rep.StepMS, float64(q.Took.Microseconds())/1000)
		if q.HasLoss {
			rep.Losses = append(rep.Losses, report.Loss(q.Loss))
		}
	}
	rep.Steps = len(res.Steps)
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

// context is that of the training itself, which a limit ends only if it was asked for.
func (e *execution) context(c *cobra.Command, r *estimate.Recipe) context.Context {
	if c.Flags().Changed(limit.TimeFlag) {
		return r.Budget.Context(c.Context())
	}
	return c.Context()
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
	if oom := (*allocsim.OOMError)(nil); errors.As(err, &oom) {
		at := rep.Measured.OOM
		return fmt.Errorf("out of memory in %s: %w\nmemplan estimate says what would make the job fit", report.Where(at.Step, at.Phase, at.Op, at.Layer), err)
	}
	return err
}
