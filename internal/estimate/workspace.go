package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
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
func cudnnWorkspace(s *spec.Spec) cudnn.Workspace {
	d := &s.Device.CudnnWorkspace
	switch d.V {
	case workspaceNone, workspaceApart:
		return cudnn.Workspace{}
	case workspaceModel:
		return cudnn.Workspace{Model: true}
	}
	n, err := tensor.ParseBytes(d.V)
	if err != nil {
		s.Errs.Addf(d.At, "cudnn_workspace must be %s, %s, %s or a size such as 64MiB, not %q", workspaceApart, workspaceModel, workspaceNone, d.V)
	}
	return cudnn.Workspace{Bytes: n}
}

// otherWorkspaces replays the job as if cuDNN's convolutions took no
// workspaces, if they do, or with those that the model expects, if they are to
// be shown apart.
func (o *Outcome) otherWorkspaces() error {
	o.Bare, o.With = o.Free, o.Free
	env, other, size := &o.Job.Machine.Env, &o.Bare, noWorkspace
	switch {
	case len(o.Played.Workspaces.Events) > 0:
	case o.apart() && o.Played.Workspaces.Expected > 0:
		other, size = &o.With, env.ConvWorkspace
	default:
		return nil
	}
	p := o.workspaces(size)
	var err error
	if other == &o.With {
		if o.WithOnGPU, err = o.Job.replay(p, false); err != nil {
			return err
		}
		if o.Job.Machine.unhindered(o.WithOnGPU) {
			o.With = o.WithOnGPU
			return nil
		}
	}
	*other, err = o.Job.unlimited(p)
	return err
}

func noWorkspace(cudnn.ConvCall) tensor.Bytes { return 0 }

// workspaces is what was played with workspaces of other sizes: so many steps, and
// more only where some between others were left out.
func (o *Outcome) workspaces(size func(cudnn.ConvCall) tensor.Bytes) *engine.Played {
	p, w := o.Played, &o.Played.Workspaces
	events, own, next := make([]trace.Event, 0, len(p.Trace.Events)+2*len(w.Calls)), w.Events, 0
	number := int32(len(p.Trace.Categories)) // of the next block
	out := &engine.Played{Growth: p.Growth}
	o.Job.meter.Hold(tensor.Bytes(cap(events)) * trace.EventBytes)
	for i := range w.Calls {
		c := &w.Calls[i]
		events, next = append(events, p.Trace.Events[next:c.At]...), c.At
		if len(own) > 0 && own[0] == c.At {
			own, next = own[1:], next+2
		}
		if n := size(c.ConvCall); n > 0 {
			out.Workspaces.Events = append(out.Workspaces.Events, len(events))
			alloc, free := c.Event, c.Event
			alloc.Bytes, alloc.ID, free.ID, free.Kind = n, number, number, trace.Free
			events = append(events, alloc, free)
			number++
		}
	}
	events = append(events, p.Trace.Events[next:]...)
	out.Trace = &trace.Trace{Events: events}
	if p.LeftOut == 0 {
		return out
	}
	moved := func(at int) int {
		calls, _ := slices.BinarySearchFunc(w.Calls, at, func(c autograd.ConvCall, at int) int { return c.At - at })
		before, _ := slices.BinarySearch(w.Events, at)
		added := 0
		for i := range w.Calls[:calls] {
			if size(w.Calls[i].ConvCall) > 0 {
				added += 2
			}
		}
		return at - 2*before + added
	}
	for _, l := range p.Loops {
		l.Begin, l.End = moved(l.Begin), moved(l.End)
		out.Loops = append(out.Loops, l)
	}
	return out
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
		r.Add(note.CudnnSearch.New("convolution: what cuDNN's search for kernels (train.cudnn_benchmark) takes beyond the workspace of the one that it finds, and gives back").Of("train.cudnn_benchmark").OfOp(aten.Conv.Name))
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
		r.Add(note.NoWorkspaces.New("convolution: cuDNN's workspaces, which device.cudnn_workspace leaves out").Of("device.cudnn_workspace").OfOp(aten.Conv.Name))
	}
	if on := o.WithOnGPU; on != nil && r.Verdict.Fits && len(on.OOMs) > 0 {
		r.Add(note.Workspaces.New("with the workspaces that cuDNN's convolutions are expected to take (reserved: %v) it would run out of memory", reserved))
	} else if on != nil && r.Verdict.Fits && !r.Verdict.Tight && o.Job.Machine.tight(on, reserved) {
		r.Add(note.Workspaces.New("with the workspaces that cuDNN's convolutions are expected to take (reserved: %v) it would fit only after cached memory is given back", reserved))
	}
}
