package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/engine"
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

// The peak of reserved memory is taken to lie so far below and above what is
// predicted without workspaces, as shares of it: where, by the measured runs of
// convolutional networks, 90 % of all runs lie with 95 % confidence, whatever cuDNN
// did in them (testdata/measured; a tolerance interval, which TestTolerance computes
// and docs/accuracy.md tries on networks and GPUs that it is computed without).
const (
	workspaceBelow = 0.13
	workspaceAbove = 0.3
)

// cudnnWorkspace reads device.cudnn_workspace.
func cudnnWorkspace(s *spec.Spec) cudnn.Workspace {
	d := &s.Device.CudnnWorkspace
	switch d.V {
	case workspaceNone, workspaceApart:
		return cudnn.Workspace{}
	case workspaceModel:
		return cudnn.Workspace{Converts: true}
	}
	n, err := tensor.ParseBytes(d.V)
	if err != nil {
		s.Errs.Addf(d.At, "cudnn_workspace must be %s, %s, %s or a size such as 64MiB, not %q", workspaceApart, workspaceModel, workspaceNone, d.V)
	}
	return cudnn.Workspace{Bytes: n}
}

// withoutWorkspaces replays the job as if cuDNN's convolutions took no
// workspaces, if they are counted with some.
func (o *Outcome) withoutWorkspaces() error {
	o.Bare = o.Free
	if len(o.Played.Workspaces.Events) == 0 {
		return nil
	}
	var err error
	o.Bare, err = o.Job.unlimited(o.unworked())
	return err
}

// unworked is what was played without the workspaces of convolutions: so many steps,
// and more only where some between others were left out.
func (o *Outcome) unworked() *engine.Played {
	p, w := o.Played, o.Played.Workspaces.Events
	events, next := make([]trace.Event, 0, len(p.Trace.Events)), 0
	o.Job.meter.Hold(tensor.Bytes(cap(events)) * trace.EventBytes)
	for _, at := range w {
		events, next = append(events, p.Trace.Events[next:at]...), at+2
	}
	out := &engine.Played{Growth: p.Growth, Trace: &trace.Trace{Events: append(events, p.Trace.Events[next:]...)}}
	if p.LeftOut == 0 {
		return out
	}
	moved := func(at int) int {
		before, _ := slices.BinarySearch(w, at)
		return at - 2*before
	}
	for _, l := range p.Loops {
		l.Begin, l.End = moved(l.Begin), moved(l.End)
		out.Loops = append(out.Loops, l)
	}
	return out
}

// workspaceNotes says what of the peak is cuDNN's, and between what the peak is. It is
// off by no more than all that the convolutions of the job can convert, each call in
// a segment of its own.
func (o *Outcome) workspaceNotes(r *report.Report) {
	w, u := &o.Played.Workspaces, &r.Uncertainty
	reserved, bare := o.Free.PeakReserved.Reserved, o.Bare.PeakReserved.Reserved
	u.CudnnWorkspace = o.Job.Spec.Device.CudnnWorkspace.V
	u.ReservedExpectedBytes, u.ReservedLowBytes, u.ReservedHighBytes = reserved, reserved, reserved
	if len(w.Calls) == 0 {
		return
	}
	u.CudnnWorkspaceBytes, u.CudnnWorkspaceExpectedBytes = w.Most, w.Counted
	if o.Job.Program.Benchmark {
		r.Add(note.CudnnSearch.New("convolution: what cuDNN's search for kernels (train.cudnn_benchmark) takes beyond the workspace of the one that it finds, and gives back").Of("train.cudnn_benchmark").OfOp(aten.Conv.Name))
	}
	sum, seen := tensor.Bytes(0), map[cudnn.ConvCall]bool{}
	for i := range w.Calls {
		if c := w.Calls[i].ConvCall; !seen[c] {
			seen[c] = true
			sum += c.Most()
		}
	}
	share := func(s float64) tensor.Bytes { return tensor.Bytes(s * float64(bare)) }
	u.ReservedLowBytes = min(reserved, max(o.Bare.PeakAllocated.Allocated, bare-min(sum, share(workspaceBelow))))
	u.ReservedHighBytes = max(reserved, bare+min(sum, max(w.Most, share(workspaceAbove))))
	if u.CudnnWorkspace == workspaceNone {
		r.Add(note.NoWorkspaces.New("convolution: cuDNN's workspaces, which device.cudnn_workspace leaves out").Of("device.cudnn_workspace").OfOp(aten.Conv.Name))
	}
}
