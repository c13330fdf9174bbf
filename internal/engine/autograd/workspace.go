package autograd

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Workspaces are what cuDNN's convolutions take while they run.
type Workspaces struct {
	Calls   []ConvCall   // in order
	Counted tensor.Bytes // the largest that is counted
	Most    tensor.Bytes // the largest in which all operands are converted
	Events  []int        // their allocations in the trace, in order
}

// ConvCall is a kernel of a convolution that ran, and what the events of its workspace
// have in common; they are in the trace from At on.
type ConvCall struct {
	cudnn.ConvCall
	At    int
	Event trace.Event
}

// Places are the events before which calls take their workspaces.
func (w *Workspaces) Places() []int {
	out := make([]int, len(w.Calls))
	for i := range w.Calls {
		out[i] = w.Calls[i].At
	}
	return out
}

// ConvWorkspace implements op.Exec: the workspace lives for the call.
func (p *Player) ConvWorkspace(c cudnn.ConvCall) {
	if p.onHost {
		return
	}
	w, n := &p.workspaces, p.env.ConvWorkspace(c)
	w.Calls = append(w.Calls, ConvCall{c, len(p.tr.Events), p.event(trace.Alloc, 0, 0)})
	w.Counted, w.Most = max(w.Counted, n), max(w.Most, c.Most())
	if n == 0 {
		return
	}
	w.Events = append(w.Events, len(p.tr.Events))
	t := p.New(tensor.Contiguous(tensor.D(int64(n))), tensor.Uint8)
	p.Mark(t, trace.Workspace)
	p.Drop(t)
}

// plan is a plan of cuDNN that a thread has.
type plan struct {
	cudnn.ConvPlan
	thread uint8
}

// FirstPlan implements op.Exec. Each thread keeps its own plans.
func (p *Player) FirstPlan(c cudnn.ConvPlan) bool {
	key := plan{c, p.thread}
	if p.onHost || p.plans[key] {
		return false
	}
	if p.plans == nil {
		p.plans = map[plan]bool{}
	}
	p.plans[key] = true
	return true
}

// EmptyCache implements op.Exec.
func (p *Player) EmptyCache() {
	p.emit(trace.EmptyCache, 0, 0)
	if p.Executes() {
		p.Must(p.backend.EmptyCache())
	}
}

// KernelCall is a kernel that ran, and what its events have in common; they are in the
// trace from At on. Calls of equal kernels in one job share one.
type KernelCall struct {
	*op.Kernel
	At    int
	Event trace.Event
}

// kernelBytes is what a KernelCall takes, with its share of a list that grows.
const kernelBytes = 100

// Kernel implements op.Exec.
func (p *Player) Kernel(k op.Kernel) {
	if p.onHost {
		return
	}
	own := p.distinct[k]
	if own == nil {
		if p.distinct == nil {
			p.distinct = map[op.Kernel]*op.Kernel{}
		}
		first := k // k itself stays off the heap
		own = &first
		p.distinct[k] = own
	}
	p.Meter.Hold(kernelBytes)
	p.kernels = append(p.kernels, KernelCall{own, len(p.tr.Events), p.event(trace.Alloc, 0, 0)})
}
