package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
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
	log       string
	board     string
	verify    bool
	poison    bool

	share float64 // tolerance, parsed
	last  int     // step

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
	f.StringVar(&e.log, "log", "", "write a line of JSON to this file after each step: its loss, time and memory (backends cpu and cuda)")
	f.StringVar(&e.board, "tensorboard", "", "write losses, evaluations, speed and memory for TensorBoard to an event file in this folder (backends cpu and cuda)")
	f.BoolVar(&e.verify, "verify", false, fmt.Sprintf("also compute the first %d steps in float64, and compare the losses (backends cpu and cuda)", verifySteps))
	f.BoolVar(&e.poison, "poison", false, "fill memory that is fresh or freed with NaN, so that a use of it shows (backends cpu and cuda)")
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
	if !own && sp.Train.Steps.Set {
		steps = int(sp.Train.Steps.V)
	}
	if e.last = steps; c.Flags().Changed("steps") && !sp.Train.Steps.Set {
		_, err := r.Job() // says what is wrong with it
		return err
	}
	keys = append(keys, estimate.Key{Path: "train.steps", Value: strconv.Itoa(min(steps, engine.MaxSteps))})
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
	case rep.Verify != nil && !rep.Verify.Within:
		return errVerify
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
	case e.verify && e.resume != "":
		return usagef("--verify and --resume exclude each other: the first steps are compared")
	case e.backend == report.TorchBackend && (e.init != "" || e.resume != "" || e.log != "" || e.board != "" || e.verify || e.poison):
		return usagef("--init, --resume, --log, --tensorboard, --verify and --poison are for the other backends")
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
	errVerify   = errors.New("the losses are not those of the same job in float64")
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

// context is that of the training itself, which a limit ends only if it was asked for.
func (e *execution) context(c *cobra.Command, r *estimate.Recipe) context.Context {
	if c.Flags().Changed(limit.TimeFlag) {
		return r.Budget.Context(c.Context())
	}
	return c.Context()
}
