package estimate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/host"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// Job is a spec that was elaborated for a machine.
type Job struct {
	Spec        *spec.Spec
	Machine     *Machine
	Definer     *spec.Spec // defines the model: Spec, or a preset
	Loop        *spec.Spec // has the statements of its trainer; nil: it has none
	Program     *program.Job
	NotModelled []note.Note
	Warnings    []note.Note
	Fails       []note.Note // those of Warnings for which it would fail, however much memory there is
	Data        graph.Data

	Configurations []string // where those of models that are named come from

	recorded *Recordings // what is played in place of Program; nil: Program

	budget *limit.Budget
	meter  *limit.Meter // of what is done with the job at present
	recipe *Recipe      // of the job, with its keys; nil: none

	replayer *allocsim.Replayer
}

// metered counts what is done with a job until the function that it returns, which
// is deferred, is called: that one makes an error of a limit that was met. It is
// of one goroutine at a time.
func (j *Job) metered(err *error) (end func()) {
	j.meter = j.budget.Meter()
	return func() {
		j.meter.Close()
		j.meter = nil
		limit.Caught(recover(), err)
	}
}

// NewJob elaborates a spec; readFile reads the files that it names, by their
// paths from the spec's folder (nil: there are none). The error, if any, is a *spec.Errors; a spec in
// which reading found mistakes is checked for more of them.
func NewJob(s *spec.Spec, readFile func(name string) ([]byte, error)) (*Job, error) {
	return newJob(s, readFile, nil)
}

// newJob is NewJob where models have names that h knows.
func newJob(s *spec.Spec, readFile func(name string) ([]byte, error), h *hub.Hub) (*Job, error) {
	var m *Machine
	s.Errs.Contained(func() { m = NewMachine(s, readFile) })
	g, err := graph.Build(s, graph.Options{Env: m.Env, Preset: specs.Preset, Presets: specs.Names(), HFTypes: specs.HFTypes(), ReadFile: readFile, Hub: h})
	if err != nil {
		return nil, err
	}
	if err := s.Errs.Err(); err != nil {
		return nil, err
	}
	return &Job{Spec: s, Machine: m, Definer: g.Definer, Loop: g.Loop, Program: g.Job, NotModelled: few(g.NotModelled, note.MoreLeftOut), Warnings: few(g.Warnings, note.MoreWarnings), Fails: fails(g.Warnings), Configurations: g.Configurations, Data: g.Data, replayer: new(allocsim.Replayer)}, nil
}

// maxNotes is how many warnings of one kind are told.
const maxNotes = 100

// few cuts a list of warnings.
func few(list []note.Note, more *note.Code) []note.Note {
	if len(list) > maxNotes {
		return append(list[:maxNotes:maxNotes], more.New("and %d more", len(list)-maxNotes))
	}
	return list
}

// fails are the warnings for which a job would fail.
func fails(list []note.Note) []note.Note {
	return slices.DeleteFunc(slices.Clone(list), func(n note.Note) bool { return n.Code != note.WouldFail })
}

// Outcome is a job that was played and replayed.
type Outcome struct {
	Job    *Job
	Played *engine.Played
	Free   *allocsim.Result // without a limit
	Bare   *allocsim.Result // without a limit and without workspaces of cuDNN's convolutions
	OnGPU  *allocsim.Result // at the device's capacity, up to the first request that fails
	Host   *host.Usage

	Doubts    []record.Doubtful // of a recording, operators that were counted by their results alone
	precision string            // of a recording

	Ranks []*Outcome // of all processes, if they do different things and the spec names none; those that do the same have one

	Varied *report.Lengths // what runs with batches of different lengths do; nil: all are alike

}

// Run plays a job and replays its allocations, of each rank where ranks differ.
func Run(j *Job) (*Outcome, error) {
	if j.differ() {
		return runRanks(j)
	}
	return runOne(j)
}

// runOne is Run of one process.
func runOne(j *Job) (o *Outcome, err error) {
	defer j.metered(&err)()
	o, err = play(j, j.steps())
	if err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return o, err
	}
	o.Varied, err = o.vary()
	return o, err
}

// complete fills in what Run says of a job that was played; OnGPU may be there.
func (o *Outcome) complete() (err error) {
	j := o.Job
	if j.recorded == nil { // which says nothing of host memory
		if o.Host, err = o.hostUsage(); err != nil {
			return err
		}
	}
	grows := o.Played.Growth > 0
	if !grows && o.OnGPU == nil {
		if err := o.replayOnGPU(false); err != nil {
			return err
		}
	}
	if o.Free = o.OnGPU; grows || !j.Machine.unhindered(o.OnGPU) {
		if o.Free, err = j.unlimited(o.Played); err != nil {
			return err
		}
	}
	if err := o.withoutWorkspaces(); err != nil {
		return err
	}
	if grows || o.OnGPU.CutShort { // the last takes the work that is left
		return o.replayOnGPU(true)
	}
	return nil
}

// play plays so many steps or, with 0, until two are alike.
func play(j *Job, steps int) (*Outcome, error) {
	if j.recorded != nil {
		return j.playRecorded()
	}
	p, err := engine.PlayWithin(j.meter, j.Program, j.Machine.Env, nil, steps)
	if err != nil {
		return nil, err
	}
	return &Outcome{Job: j, Played: p}, nil
}

// replayOnGPU replays the allocations at the device's capacity; follow says
// whether a leak is followed until the job runs out of memory.
func (o *Outcome) replayOnGPU(follow bool) (err error) {
	o.OnGPU, err = o.Job.replay(o.Played, follow)
	return err
}

// unlimited replays what was played on a device that has no limit.
func (j *Job) unlimited(p *engine.Played) (*allocsim.Result, error) {
	return j.replayer.Replay(p.Trace.Events, allocsim.ReplayOptions{Config: j.Machine.Conf, Loops: loops(p, false), LoopEvents: maxLoopEvents, Meter: j.meter, KeepWork: j.keepWork(false)})
}

// replay replays what was played at the device's capacity, up to the first
// request that fails.
func (j *Job) replay(p *engine.Played, follow bool) (*allocsim.Result, error) {
	m := j.Machine
	return j.replayer.Replay(p.Trace.Events, allocsim.ReplayOptions{
		Config: m.Conf, Capacity: m.Total, Occupied: m.Context + m.Occupied, MemoryFraction: m.Fraction, StopAtOOM: true,
		Loops: loops(p, follow), LoopEvents: maxLoopEvents, Meter: j.meter, KeepWork: j.keepWork(follow),
		MayFail: func(event int) bool { // another plan of cuDNN is tried
			_, found := slices.BinarySearch(p.Workspaces.Events, event)
			return found
		},
	})
}

// Report turns the outcome into a report.
func (o *Outcome) Report() *report.Report {
	j, m, free := o.Job, o.Job.Machine, o.Free
	tr := o.Played.Trace
	p := &o.Played.Totals
	r := &report.Report{
		Version: report.Version,
		Spec:    j.Spec.Path,
		Model:   report.Model{Name: j.Program.Name, Parameters: p.Parameters, TrainableParameters: p.Trainable, Configurations: j.Configurations},
		Device: report.Device{
			Name: m.GPU.Name, DisplayName: m.GPU.Display, Arch: fmt.Sprintf("sm_%d", m.GPU.Arch), SMs: m.GPU.SMs,
			TotalBytes: m.Total, UsableBytes: m.Usable(), ContextBytes: m.Context, OccupiedBytes: m.Occupied,
		},
		Train: report.Train{
			Mode: j.Spec.Mode.V, BatchSize: j.BatchSize(), OneSequence: j.Spec.Trainer.Flattened(), Precision: j.precision(), Optimizer: optimizers(j.Program), Ranks: j.ranks(),
			Loop: j.Spec.Train.Loop.V, Input: j.Spec.Data.Input.V, Steps: o.Played.Steps, Torch: m.Env.Torch.String(), TorchFrom: m.Torch,
		},
		Peak: report.Peak{
			AllocatedBytes: free.PeakAllocated.Allocated, ReservedBytes: free.PeakReserved.Reserved,
			RequestedBytes: free.PeakAllocated.Requested, DeviceBytes: free.PeakReserved.Reserved + m.Context,
			AllocatedBareBytes: o.Bare.PeakAllocated.Allocated, ReservedBareBytes: o.Bare.PeakReserved.Reserved,
		},
		Totals: report.Totals{
			ParametersBytes: p.ParameterBytes, BuffersBytes: p.BufferBytes, GradientsBytes: p.GradientBytes,
			OptimizerStateBytes: p.OptimizerStateBytes, SavedActivationsBytes: p.SavedBytes, BatchBytes: p.BatchBytes,
		},
		Allocator: report.Allocator{
			Conf:               m.ConfText,
			FragmentationBytes: free.PeakReserved.Reserved - free.PeakAllocated.Allocated,
			InactiveSplitBytes: free.PeakReserved.InactiveSplit,
			Segments:           free.PeakReserved.Segments,
			NumAllocRetries:    o.OnGPU.Stats.NumAllocRetries,
			NumOOMs:            o.OnGPU.Stats.NumOOMs,
		},
		NotModelled: []string{},
		Warnings:    []string{},
		Notes:       []note.Note{},
		Steps:       []report.Step{},
		Phases:      []report.Phase{},
	}
	if r.Model.Name == "" {
		r.Model.Name = nameOf(j.Spec.Path)
	}
	if i := free.PeakAllocated.Event; i >= 0 {
		e := &tr.Events[i]
		r.Peak.Step, r.Peak.Phase, r.Peak.Op, r.Peak.Layer = int(int64(e.Step)+free.PeakAllocated.Ahead), e.Phase.String(), tr.Ops[e.Op], tr.Layers[e.Layer]
	}
	for _, s := range free.Steps {
		if s.Step > 0 {
			r.Steps = append(r.Steps, report.Step{
				Step:               s.Step,
				PeakAllocatedBytes: s.PeakAllocated.Allocated, PeakReservedBytes: s.PeakReserved.Reserved,
				EndAllocatedBytes: s.EndAllocated, EndReservedBytes: s.EndReserved,
			})
		}
	}
	for p, peaks := range free.Phases {
		if peaks.Allocated > 0 {
			r.Phases = append(r.Phases, report.Phase{Phase: trace.Phase(p).String(), PeakAllocatedBytes: peaks.Allocated, PeakReservedBytes: peaks.Reserved})
		}
	}
	if o.Job.recorded != nil {
		o.recordedSettings(r)
	} else {
		j.settings(r)
	}
	o.breakdown(r)
	o.verdict(r)
	o.ranks(r)
	o.lengths(r)
	o.leak(r)
	if o.Host != nil {
		o.host(r)
	}
	o.notes(r)
	return r
}

// nameOf is what a job without a name is called: as its file, which may be one of
// a commit, REF:PATH.
func nameOf(path string) string {
	name := filepath.Base(path[strings.LastIndexByte(path, ':')+1:])
	if name = strings.TrimSuffix(name, filepath.Ext(name)); name == "" || strings.HasPrefix(path, "<") {
		return "model"
	}
	return name
}

// optimizers names the optimizers as a script would construct them, with the
// number of their parameter groups if they have several.
func optimizers(p *program.Job) string {
	var all []string
	for _, o := range p.Optimizers {
		var args []string
		for _, a := range o.Given {
			args = append(args, fmt.Sprintf("%s=%s", a.Name, program.Literal(a.Value)))
		}
		text := o.Row.Name + "(" + strings.Join(args, ", ") + ")"
		if n := len(o.Groups); n > 1 {
			text += fmt.Sprintf(" with %d parameter groups", n)
		}
		if p.InBackward {
			text += " in the backward pass"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// verdict says whether the job fits, and why.
func (o *Outcome) verdict(r *report.Report) {
	v, m := &r.Verdict, o.Job.Machine
	v.Fits = len(o.OnGPU.OOMs) == 0
	v.Tight = m.tight(o.OnGPU, r.Peak.ReservedBytes)
	v.HeadroomBytes = m.Usable() - r.Peak.ReservedBytes
	v.SteadyFromStep = o.Played.Steady
	switch {
	case !v.Fits:
		v.Result = report.OOMs
	case v.Tight:
		v.Result = report.Tight
	default:
		v.Result = report.Fits
	}
	switch {
	case v.Tight && o.OnGPU.Stats.NumAllocRetries == 0:
		v.Reason = fmt.Sprintf("%v would be reserved without a limit, %v is usable: it fits only by giving cached segments back (%s), which costs time",
			r.Peak.ReservedBytes, m.Usable(), m.givesBack())
	case v.Tight:
		v.Reason = fmt.Sprintf("%v would be reserved without a limit, %v is usable: it fits only by giving cached memory back %s, which costs time",
			r.Peak.ReservedBytes, m.Usable(), report.Plural(o.OnGPU.Stats.NumAllocRetries, "time"))
	case v.Fits:
		v.Reason = fmt.Sprintf("%v reserved at the peak, %v usable: headroom %v (%.1f %%)",
			r.Peak.ReservedBytes, m.Usable(), v.HeadroomBytes, 100*float64(v.HeadroomBytes)/float64(m.Usable()))
	default:
		oom := o.OnGPU.OOMs[0]
		tr := o.Played.Trace
		e := &tr.Events[oom.Event]
		v.OOM = &report.OOM{
			Step: int(int64(e.Step) + oom.Ahead), Phase: e.Phase.String(), Op: tr.Ops[e.Op], Layer: tr.Layers[e.Layer],
			TriedBytes: oom.Err.Tried, FreeBytes: oom.Err.Free, Message: oom.Err.Error(),
		}
		v.Reason = fmt.Sprintf("out of memory in %s: tried to allocate %v, %v free\nwithout a limit %v would be reserved, %v is usable: %v too little",
			report.Where(v.OOM.Step, v.OOM.Phase, v.OOM.Op, v.OOM.Layer), oom.Err.Tried, oom.Err.Free, r.Peak.ReservedBytes, m.Usable(), -v.HeadroomBytes)
		if oom.Err.Limited {
			v.Reason = fmt.Sprintf("out of memory in %s: tried to allocate %v; the memory fraction allows %v",
				report.Where(v.OOM.Step, v.OOM.Phase, v.OOM.Op, v.OOM.Layer), oom.Err.Tried, oom.Err.Limit)
		}
	}
}

// What one NCCL communicator was seen to take on each GPU of one machine, by
// topology and version: 484 MiB with the context on two RTX 3090 (NVIDIA/nccl pull
// request 2366), 544 MiB for two and 688 MiB for four A100 with NVLink (issue 964),
// 1.6 GB (issue 864).
const (
	ncclLow  tensor.Bytes = 128 << 20
	ncclHigh tensor.Bytes = 1600 * 1000 * 1000
)

// notes collects what a reader must know to trust the figures.
func (o *Outcome) notes(r *report.Report) {
	j, m := o.Job, o.Job.Machine
	r.Add(o.unplayed()...)
	r.Add(j.NotModelled...)
	var keys []string
	for _, a := range j.NotModelled {
		if a.Code == note.CompiledGraph {
			continue // what graphs do that are replayed; note.Compiled says that they are not
		}
		key := a.Text
		if end := strings.IndexAny(key, ":;"); end >= 0 {
			key = key[:end]
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		r.Add(note.AskedWithout.New("not planned as requested: %s; see \"Not modelled\"", strings.Join(keys, ", ")))
	}
	r.Add(j.Warnings...)
	r.Add(o.Played.Warnings...)
	if !m.Given {
		r.Add(note.GPUAssumed.New("no GPU named; %s is assumed (--gpu)", m.GPU.Name))
	}
	r.Add(m.gpuNotes()...)
	if n := o.Played.Totals.PagedStateBytes; n > 0 {
		r.Add(note.PagedState.New("%v of optimizer state are in CUDA managed memory, in addition to what PyTorch reserves: the driver moves them to the GPU for a step, and to the host when GPU memory is short", n))
	}
	if m.Usable() <= 0 {
		r.Add(note.NothingLeft.New("the CUDA context and other processes leave nothing of the device's %v", m.Total))
	}
	o.stepNotes(r)
	r.Add(o.operatorNotes()...)
	for _, option := range m.Conf.NotModelled {
		r.Add(note.AllocConf.New("device.alloc_conf: %s", option).Of("device.alloc_conf"))
	}
	c := &m.ContextOf
	r.Uncertainty.ContextLowBytes, r.Uncertainty.ContextHighBytes, r.Uncertainty.ContextAssumed, r.Uncertainty.ContextSource = c.Low, c.High, c.Assumed, c.Source
	r.Uncertainty.SMsUnsourced = m.GPU.SMsSource == ""
	o.workspaceNotes(r)
	o.attentionNotes(r)
	r.Uncertainty.Unrecorded = unrecorded(o.Played)
	r.Uncertainty.CudnnRNNBytes = o.rnnSpaces()
	if p := &j.Program.Parallel; p.Processes() > 1 {
		n := tensor.Bytes(p.Communicators())
		r.Uncertainty.NCCLLowBytes, r.Uncertainty.NCCLHighBytes = n*ncclLow, n*ncclHigh
	}
	if slack := r.Uncertainty.ReservedHighBytes - r.Peak.ReservedBytes + r.Uncertainty.CudnnRNNBytes + r.Uncertainty.NCCLHighBytes + r.Uncertainty.ContextHighBytes - m.Context; r.Verdict.Fits && r.Verdict.HeadroomBytes < slack && slack > 0 {
		r.Add(note.Uncertain.New("the headroom is smaller than the uncertainty (%v)", slack).InReport("the headroom is smaller than the uncertainty (%v; see below)", slack))
	}
}

// operatorNotes say what the figures of the operators that ran leave out, whatever
// else a spec says.
func (o *Outcome) operatorNotes() []note.Note {
	ran := map[string]bool{}
	for _, name := range o.Played.Trace.Ops {
		ran[name] = true
	}
	var out []note.Note
	for _, row := range aten.Rows() {
		if row == aten.Conv && o.Job.Spec.Train.CudnnBenchmark.Set {
			continue // the spec says whether there is a search
		}
		if row.NotModelled != "" && ran[row.Name] {
			out = append(out, note.Operator.New("%s: %s", row.Name, row.NotModelled).OfOp(row.Name))
		}
	}
	return out
}

// stepNotes says what more steps than were played may bring.
func (o *Outcome) stepNotes(r *report.Report) {
	p, n := o.Played, o.Played.Steps
	asked, leak := o.Job.steps() > 0, r.Verdict.Leak != nil
	if !asked {
		warn := func(format string, args ...any) {
			r.Add(note.Unsettled.New("not all steps that differ were simulated: "+format, args...))
		}
		switch {
		case p.Late > 0 && r.Verdict.Fits:
			warn("an optimizer allocates differently from its step %d on", p.Late)
		case p.Settled && (o.Free.CutShort || o.OnGPU.CutShort) && !leak:
			warn("the steps are equal, but the allocator still places their blocks differently; later steps may need more")
		case p.Settled || !r.Verdict.Fits: // what a leak that is not settled comes to is not known
		case p.Unreached > 0:
			warn("a statement that runs in every %d-th step was not reached in %d steps", p.Unreached, n)
		case p.LeftOut > 0, p.Period != 1 && p.Growth <= 0:
			warn("statements with every: combine in more ways than %d steps show; later steps may need more", n)
		default:
			warn("after %d steps memory still differs from step to step; it may be growing (a leak), and later steps may need more", n)
		}
		return
	}
	warn := func(format string, args ...any) { r.Add(note.FewSteps.New(format, args...)) }
	if p.Unreached > 0 {
		warn("a statement that runs in every %d-th step was not reached in %d steps; simulate more (--steps)", p.Unreached, n)
	}
	switch {
	case n < 3 && o.Job.Spec.Mode.V == "train":
		warn("the first step has no gradients and optimizer state yet when it begins; simulate 3 steps or more to see the peak")
	case p.Steady > 0 || n < 3 || leak:
	case p.Compared:
		warn("after %d steps memory still differs from step to step: it may be growing (a leak), and later steps may need more", n)
	default:
		warn("statements with every: repeat as a whole after %d steps; the %d simulated are too few to tell whether memory grows", p.Period, n)
	}
}
