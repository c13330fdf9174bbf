package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/webpage"
	"github.com/memplan/memplan/plan"
)

// estimation is what the command line asks of an estimate.
type estimation struct {
	source
	format   string
	top      int
	quick    bool
	curve    bool
	search   string
	headroom string
	pictures pictures
	share    float64 // headroom, parsed
	fix      fixing
	layout   layout
}

// defaultShare is the headroom of a recommended batch, unless --headroom says
// otherwise.
const defaultShare = 0.05

func newEstimate(s *Streams) *cobra.Command {
	var e estimation
	c := &cobra.Command{
		Use:   "estimate [SPEC | preset:NAME]",
		Short: "Predict whether a job fits on a GPU, and what takes its memory",
		Long: `Estimate simulates the training steps of a spec and replays every allocation in a
model of PyTorch's caching allocator. It prints the verdict and the largest batch
that fits. The verdict is FITS, TIGHT (the job fits only after cached memory is
given back) or OOM. SPEC is a path, - for standard input, or the name of a model on
Hugging Face's hub; the default is GPT-2 124M. The exit code is 0 whatever the verdict.

Several GPUs, separated by commas, give a table: --gpu a100-40gb,rtx-4090.
--batch-curve draws the peak over the batch size. --search NAME finds the largest
value of a param of the spec or its preset, such as seq; NAME:64 tries multiples
of 64.

If a job does not fit, estimate lists changes of the spec and of the training
script that make it fit, alone and combined, each simulated, the simplest first
(memplan list changes). --advise searches longer for such changes; if the job fits,
it lists changes that leave more room.

--gpus 64 --layout search lists the ten best ways to spread the job over 64 GPUs: each
is simulated with the batch of the spec on each GPU, and the checkpoints and gradient
accumulation with which it is the fastest that fits (docs/advice.md).

--html FILE also writes a page for browsers: memory over the events of the steps, the
allocator's segments at each event, the peak by module (docs/report.md). --svg FILE
writes a picture of the first, for comments.`,
		Example: `  memplan estimate
  memplan estimate preset:resnet --batch-size 512 --gpu rtx-3060,a100-40gb
  memplan estimate preset:mlp --html mlp.html`,
		Args: atMost(1, "estimate takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error { return e.run(c, s, args) },
	}
	e.flags(c)
	f := c.Flags()
	f.StringVar(&e.format, "format", report.Formats.Default(), strings.Join(report.Formats.Names(), ", "))
	completeFlag(c, "format", report.Formats.Names)
	f.IntVar(&e.top, "top", 8, "layers to show")
	f.BoolVar(&e.quick, "quick", false, "search neither for the largest batch nor for changes")
	f.BoolVar(&e.fix.more, "advise", false, "search longer for changes that make the job fit or leave more room; show how to make each")
	f.BoolVar(&e.fix.none, "no-advise", false, "do not search for changes that make the job fit")
	f.BoolVar(&e.curve, "batch-curve", false, "draw the peak over the batch size")
	f.StringVar(&e.search, "search", "", "also find the largest value of this param: seq, or seq:64 for multiples of 64")
	e.layout.flags(c)
	e.pictures.flags(c)
	f.StringVar(&e.headroom, "headroom", fmt.Sprintf("%g%%", 100*defaultShare), "share of the usable memory that the recommended batch leaves")
	return c
}

func (e *estimation) run(c *cobra.Command, s *Streams, args []string) error {
	if err := oneOf("format", e.format, report.Formats.Names()); err != nil {
		return err
	}
	if e.top < 0 {
		return usagef("--top %d: must not be negative", e.top)
	}
	if e.quick && (e.curve || e.search != "") {
		return usagef("--quick does not go with --batch-curve and --search")
	}
	if e.fix.more && (e.quick || e.fix.none) {
		return usagef("--advise does not go with --quick and --no-advise")
	}
	if err := e.layout.check(e); err != nil {
		return err
	}
	var err error
	if e.share, err = parseShare(e.headroom); err != nil {
		return usagef("--headroom: %w", err)
	}
	color, err := colored(c, s)
	if err != nil {
		return err
	}
	format := report.Formats.Lookup(e.format)
	gpus := strings.Split(e.gpu, ",")
	if len(gpus) > 1 {
		if format.Request {
			return usagef("--format %s asks for one GPU; --gpu names %d", e.format, len(gpus))
		}
		if e.fix.more {
			return usagef("--advise is for one GPU; --gpu names %d", len(gpus))
		}
		if flag := e.pictures.asked(); flag != "" {
			return usagef("--%s is for one GPU; --gpu names %d", flag, len(gpus))
		}
		e.gpu = gpus[0]
	}
	e.quick = e.quick || format.Request // what else fits is not asked for
	r, err := e.recipe(c, s, args)
	if err != nil {
		return err
	}
	if e.layout.asked() {
		return e.layout.search(within(c, r), s, plan.FromRecipe(r), e.format)
	}
	if len(gpus) > 1 {
		return e.matrix(within(c, r), s, plan.FromRecipe(r), gpus)
	}
	e.fix.progress = newProgress(s)
	ctx := within(c, r)
	o, err := e.outcome(ctx, plan.FromRecipe(r))
	if err != nil {
		return err
	}
	rep := o.Report
	if err := e.pictures.write(s, func() (*webpage.Page, error) { return pageOf(o) }); err != nil || e.pictures.alone() {
		return err
	}
	if format.Request && !rep.Verdict.Fits {
		printable.Fprintf(s.Err, "memplan: %s\n", report.NotFitting(rep))
	}
	options := report.Options{Top: e.top, Color: color, Shown: e.fix.shown()}
	if format.Name != report.Formats.Default() {
		return format.Write(s.Out, rep, options)
	}
	if options.Width = s.terminal(); options.Width > 0 {
		if options.Spark, err = sparkOf(o); err != nil {
			return err
		}
		options.Spark.ASCII = s.ascii()
	}
	return s.people(func(w io.Writer) error { return format.Write(w, rep, options) })
}

// sparkOf is what a job allocates, without a limit.
func sparkOf(o *plan.Estimate) (*report.Spark, error) {
	t := o.Trace()
	config, err := allocatorOf(t)
	if err != nil {
		return nil, err
	}
	config.MemoryFraction = nil
	r, err := new(allocsim.Replayer).Replay(t.Events, allocsim.ReplayOptions{Config: config, Series: true})
	if err != nil {
		return nil, err
	}
	s := &report.Spark{Allocated: r.AllocatedSeries}
	for i := range t.Events {
		if step := int(t.Events[i].Step); step > len(s.Begins) {
			s.Begins = append(s.Begins, report.SparkStep{Event: i, Step: step})
		}
	}
	return s, nil
}

// within is the context of what is done with a recipe: it ends with the budget, and
// has it.
func within(c *cobra.Command, r *estimate.Recipe) context.Context {
	return limit.In(r.Budget.Context(c.Context()), r.Budget)
}

// outcome estimates one job, with what was asked for.
func (e *estimation) outcome(ctx context.Context, j *plan.Job) (*plan.Estimate, error) {
	o, err := j.Estimate(ctx)
	if err != nil {
		return nil, err
	}
	if !e.quick && o.Report.Verdict.Leak == nil { // with a leak no batch fits for ever
		if err = e.advise(ctx, o); err == nil {
			err = e.fix.run(ctx, o)
		}
	}
	return o, err
}

// advise adds what batch fits and what else was asked for.
func (e *estimation) advise(ctx context.Context, o *plan.Estimate) error {
	rep := o.Report
	if recorded, several := o.Recorded(); recorded && !several {
		if e.curve || e.search != "" {
			return usagef("no other size of the batch follows from the recording; record several: memplan record --batch NAME=V1,V2,V3")
		}
		return nil
	}
	found, err := o.Largest(ctx, plan.Search{Headroom: e.share})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // such as a model that does not take a batch of 1
		rep.Add(note.BatchNotKnown.New("the largest batch is not known: a batch of 1 cannot be simulated (%v)", firstLine(err)))
	} else {
		rep.Advice = &report.Advice{
			MaxBatchSize: found.Largest, MaxIsTight: found.Tight, RecommendedBatchSize: found.Recommended, Headroom: e.share, NotFitting: found.NotFitting,
			Unbounded: found.Unbounded, SearchEnded: found.Cut, Changes: []report.Change{},
		}
	}
	if e.search != "" {
		name, step, err := parseAxis(e.search)
		if err != nil {
			return err
		}
		f, err := o.Largest(ctx, plan.Search{Key: name, Step: step, Headroom: e.share})
		if unknown := (*plan.KeyError)(nil); errors.As(err, &unknown) {
			return usagef("--search %s: %w", e.search, err)
		} else if err != nil {
			return err
		}
		if rep.Advice == nil {
			rep.Advice = &report.Advice{Headroom: e.share, NotFitting: []int64{}, Changes: []report.Change{}}
		}
		rep.Advice.Search = &report.Search{Key: f.Key, Largest: f.Largest, Tight: f.Tight, Recommended: f.Recommended, NotFitting: f.NotFitting, Refused: f.Refused}
	}
	if e.curve && rep.Advice != nil {
		if rep.Curve, err = o.Curve(ctx, rep.Advice.MaxBatchSize); err != nil {
			return err
		}
	}
	return nil
}

// matrix estimates the job on several GPUs.
func (e *estimation) matrix(ctx context.Context, s *Streams, j *plan.Job, gpus []string) error {
	m := &report.Matrix{Version: 1, Spec: j.Name}
	for _, g := range gpus {
		o, err := j.With("device.gpu=" + strconv.Quote(strings.TrimSpace(g))).Estimate(ctx)
		if err != nil {
			return err
		}
		rep := o.Report
		row := report.MatrixRow{
			GPU: rep.Device.Name, DisplayName: rep.Device.DisplayName, UsableBytes: rep.Device.UsableBytes, PeakReservedBytes: rep.Peak.ReservedBytes,
			DeviceBytes: rep.Peak.DeviceBytes, HeadroomBytes: rep.Verdict.HeadroomBytes, Result: rep.Verdict.Result,
		}
		if recorded, several := o.Recorded(); !e.quick && (!recorded || several) {
			found, err := o.Largest(ctx, plan.Search{Headroom: e.share})
			if err != nil {
				return err
			}
			row.MaxBatchSize, row.RecommendedBatchSize = found.Largest, found.Recommended
		}
		m.Model, m.Batch, m.OneSequence, m.Settings = rep.Model.Name, rep.Train.BatchSize, rep.Train.OneSequence, report.Settings(rep)
		m.Rows = append(m.Rows, row)
	}
	if e.format == "json" {
		return report.JSON(s.Out, m)
	}
	return s.people(func(w io.Writer) error { return m.Write(w, report.Options{Width: s.terminal()}) })
}

// parseShare reads a share: 5% or 0.05.
func parseShare(s string) (float64, error) {
	text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if percent {
		x /= 100
	}
	if err != nil || x < 0 || x >= 1 || x != x {
		return 0, fmt.Errorf("%q is no share such as 5%% or 0.05", s)
	}
	return x, nil
}

// parseAxis reads NAME or NAME:STEP.
func parseAxis(s string) (name string, step int64, err error) {
	name, text, ok := strings.Cut(s, ":")
	step = 1
	if ok {
		if step, err = strconv.ParseInt(text, 10, 64); err != nil || step < 1 {
			return "", 0, usagef("--search %s: the step must be a whole number of 1 or more", s)
		}
	}
	return name, step, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
