package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/torchrun"
	"github.com/memplan/memplan/internal/trace"
)

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
	o, rep, err := predicted(j, report.TorchBackend, fmt.Sprintf("%s, PyTorch %s", found.Name, found.Torch))
	if err != nil {
		return nil, err
	}
	e.predicted = o
	rep.Add(j.NotModelled...)
	steps := int(j.Spec.Train.Steps.V)
	var script bytes.Buffer
	if err := exporttorch.Write(&script, j.Program, exporttorch.Options{Steps: steps}); err != nil {
		return nil, err
	}
	p := newProgress(s)
	p.line("PyTorch runs %s", report.Plural(int64(steps), "step"))
	ranks := j.Program.Parallel.Ranks
	recs, err := python.Record(e.context(c, r), script.Bytes(), ranks, found.Count)
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
	predictedEvents := o.Played.Trace.Events
	rep.Predicted.OutOfMemory, rep.Measured.OutOfMemory = !o.Fits(), strings.Contains(rec.Error, "out of memory")
	if rep.Predicted.OutOfMemory {
		p := o.Report()
		predictedEvents = predictedEvents[:o.OnGPU.OOMs[0].Event]
		rep.Add(note.Dies.New("predicted: %s", strings.ReplaceAll(p.Verdict.Reason, "\n", "; ")))
	}
	w := &o.Played.Workspaces
	recorded, predictedEvents, taken := trace.WithoutWorkspaces(rec.Events, predictedEvents, w.Places(), w.Events)
	rep.Trace.Workspaces, rep.Trace.LargestWorkspaceBytes = taken.Count, taken.Largest
	if rep.Predicted.OutOfMemory {
		recorded = trace.Until(recorded, predictedEvents) // then the exception frees what it unwinds
	}
	for _, events := range recorded {
		rep.Trace.Events += len(events)
	}
	rep.Trace.FirstDifference = trace.Difference(recorded, predictedEvents, false, j.Program.Autocast)
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
