package cli

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/torchrun"
	"github.com/memplan/memplan/internal/trace"
)

// onTorch runs the exported script in the user's PyTorch.
func (e *execution) onTorch(c *cobra.Command, s *Streams, r *estimate.Recipe, named *estimate.Machine, keys []estimate.Key) (*report.Run, error) {
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
	gpu := &foundGPU{name: found.Name, arch: found.Arch, sms: found.SMs, memory: found.Memory}
	keys = append(append(keys, gpu.keys()...), releaseKey(found.Torch))
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	o, rep, err := predicted(j, report.TorchBackend, fmt.Sprintf("%s, PyTorch %s", found.Name, found.Torch))
	if err != nil {
		return nil, err
	}
	e.predicted = o
	rep.Add(j.NotModelled...)
	rep.Add(otherGPU(named, gpu)...)
	steps := e.last
	if steps > engine.MaxSteps {
		return nil, usagef("--backend torch compares each event, of at most %d steps; --steps says fewer", engine.MaxSteps)
	}
	if j.Program.Parallel.Planned() > 0 {
		return nil, usagef("--backend torch compares the events of the first process; leave out rank")
	}
	var script bytes.Buffer
	options := scriptOptions(j)
	set, err := trainingData(e.open(s, r.Path), j, e.seed)
	if err != nil {
		return nil, err
	}
	if set != nil {
		folder, err := os.MkdirTemp("", "memplan-data-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		if options.Batches, err = torchData(folder, j, set, int64(steps), rep); err != nil {
			return nil, err
		}
	}
	if err := exporttorch.Write(&script, j.Program, options); err != nil {
		return nil, err
	}
	p := newProgress(s)
	p.line("PyTorch runs %s", report.Plural(int64(steps), "step"))
	ranks := j.Program.Parallel.Ranks
	recs, err := python.Record(e.context(c, r), torchrun.Job{Script: script.Bytes(), Ranks: ranks, AllocConf: j.Machine.ConfText}, found.Count)
	p.clear()
	if err != nil {
		return nil, err
	}
	if ranks > found.Count {
		rep.Add(note.FewerGPUs.New("PyTorch finds %s, the job is for %d: one process stood for the first of %d, without NCCL", report.Plural(found.Count, "GPU"), ranks, ranks))
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
	predictedEvents, recorded := o.Played.Trace.Events, map[string][]trace.RecordedEvent(rec.Events)
	if strings.Contains(rec.Error, "out of memory") {
		rep.Measured.OutOfMemory, rep.Measured.OOM = true, &report.OOM{Step: len(rec.Steps), Message: rec.Error}
		recorded = trace.UntilFailure(recorded) // then the exception frees what it unwinds
		if rep.Predicted.OutOfMemory {
			predictedEvents = predictedEvents[:o.OnGPU.OOMs[0].Event]
		}
	}
	w := &o.Played.Workspaces
	recorded, predictedEvents, taken := trace.WithoutWorkspaces(recorded, predictedEvents, w.Places(), w.Events)
	rep.Trace.Workspaces, rep.Trace.LargestWorkspaceBytes = taken.Count, taken.Largest
	for _, events := range recorded {
		rep.Trace.Events += len(events)
	}
	rep.Trace.FirstDifference = trace.Difference(recorded, predictedEvents, false, j.Program.Autocast)
	if p, m := rep.Predicted.OOM, rep.Measured.OOM; rep.Trace.FirstDifference == "" && p != nil && m != nil {
		if want, got := request(p.Message), request(m.Message); want != got {
			rep.Trace.FirstDifference = fmt.Sprintf("the request that fails: predicted %q, PyTorch %q", want, got)
		}
	}
	rep.Trace.Equal = rep.Trace.FirstDifference == ""
	switch {
	case rep.Measured.OutOfMemory:
		rep.Add(note.FromPyTorch.New("PyTorch: %s", rec.Error))
	case rec.Error != "":
		rep.Stopped = rec.Error
		return rep, fmt.Errorf("the script ended early: %s", rec.Error)
	}
	return rep, nil
}

// request is the part of PyTorch's message that says which request failed.
func request(message string) string {
	_, text, _ := strings.Cut(message, "Tried to allocate ")
	text, _, _ = strings.Cut(text, ". ")
	return text
}

// releaseKey is the key of a spec that says a version of PyTorch.
func releaseKey(version string) estimate.Key {
	parts := strings.Split(strings.SplitN(version, "+", 2)[0], ".")
	return estimate.Key{Path: "torch", Value: strconv.Quote(strings.Join(parts[:min(2, len(parts))], "."))}
}
