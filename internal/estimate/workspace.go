package estimate

import (
	"fmt"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// The values of device.cudnn_workspace beside sizes.
const (
	workspaceNone  = "none"
	workspaceModel = "model"
	workspaceApart = "apart"
)

// workspaceSpread bounds how far the peak of reserved memory is taken to be from
// what is expected, as a share, because cuDNN may pick other plans. It is an
// assumption: the 15 measured peaks that the model of workspaces was made with
// are within 5.5 %, peaks of a family that it was made without may be further off
// (docs/accuracy.md).
const workspaceSpread = 0.07

// cudnnWorkspace reads device.cudnn_workspace.
func cudnnWorkspace(s *spec.Spec) op.CudnnWorkspace {
	d := &s.Device.CudnnWorkspace
	switch d.V {
	case workspaceNone, workspaceApart:
		return op.CudnnWorkspace{}
	case workspaceModel:
		return op.CudnnWorkspace{Model: true}
	}
	n, err := tensor.ParseBytes(d.V)
	if err != nil {
		s.Errs.Addf(d.At, "cudnn_workspace must be %s, %s, %s or a size such as 64MiB, not %q", workspaceApart, workspaceModel, workspaceNone, d.V)
	}
	return op.CudnnWorkspace{Bytes: n}
}

// otherWorkspaces replays the job as if cuDNN's convolutions took no
// workspaces, if they do, or with those that the model expects, if they are to
// be shown apart.
func (o *Outcome) otherWorkspaces() error {
	o.Bare, o.With = o.Free, o.Free
	env, other := o.Job.Machine.Env, &o.Bare
	switch {
	case len(o.Played.Workspaces.Events) > 0:
		env.CudnnWorkspace = op.CudnnWorkspace{}
	case o.apart() && o.Played.Workspaces.Expected > 0:
		env.CudnnWorkspace.Model, other = true, &o.With
	default:
		return nil
	}
	steps := o.Played.Steps
	if o.Played.LeftOut > 0 { // the same are then
		steps = int(o.Job.Spec.Train.Steps.V)
	}
	p, err := engine.PlayWithin(o.Job.meter, o.Job.Program, env, nil, steps)
	if err != nil {
		return err
	}
	if *other, err = o.Job.unlimited(p); err != nil || other == &o.Bare {
		return err
	}
	o.WithOnGPU, err = o.Job.replay(p, false)
	return err
}

// apart reports whether workspaces are left out of the peak and shown beside it.
func (o *Outcome) apart() bool { return o.Job.Spec.Device.CudnnWorkspace.V == workspaceApart }

// workspaceNotes says what of the peak is cuDNN's, and between what the peak is.
func (o *Outcome) workspaceNotes(r *report.Report) {
	w, u, mode := &o.Played.Workspaces, &r.Uncertainty, o.Job.Machine.Env.CudnnWorkspace
	reserved := o.With.PeakReserved.Reserved
	u.CudnnWorkspace = o.Job.Spec.Device.CudnnWorkspace.V
	u.ReservedExpectedBytes, u.ReservedLowBytes, u.ReservedHighBytes = reserved, reserved, reserved
	if len(w.Calls) == 0 {
		return
	}
	u.CudnnWorkspaceBytes, u.CudnnWorkspaceExpectedBytes = w.Most, w.Expected
	if o.Job.Program.Benchmark {
		r.NotModelled = append(r.NotModelled, "convolution: what cuDNN's search for kernels (train.cudnn_benchmark) takes beyond the workspace of the one that it finds, and gives back")
	}
	spread := min(w.Most, tensor.Bytes(workspaceSpread*float64(reserved)))
	u.ReservedLowBytes -= spread
	switch {
	case mode.Model || o.apart():
		u.ReservedHighBytes += spread
	case mode.Bytes < w.Most:
		u.ReservedHighBytes += max(spread, w.Most-mode.Bytes)
	}
	if u.CudnnWorkspace == workspaceNone {
		r.NotModelled = append(r.NotModelled, "convolution: cuDNN's workspaces, which device.cudnn_workspace leaves out")
	}
	if on := o.WithOnGPU; on != nil && r.Verdict.Fits && len(on.OOMs) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf(NoteWorkspaces+" (reserved: %v) it would run out of memory", reserved))
	} else if on != nil && r.Verdict.Fits && !r.Verdict.Tight && o.Job.Machine.tight(on, reserved) {
		r.Warnings = append(r.Warnings, fmt.Sprintf(NoteWorkspaces+" (reserved: %v) it would fit only after cached memory is given back", reserved))
	}
}
