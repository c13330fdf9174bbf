package autograd

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// libraries is what CUDA's libraries keep for the life of the process.
type libraries struct {
	blas       [2]*op.Tensor            // cuBLAS workspace of each thread's handle
	lt         [2]*op.Tensor            // cuBLASLt's, where it has one
	workspaces Workspaces               // of cuDNN's convolutions
	plans      map[plan]bool            // that were searched for
	attention  tensor.Bytes             // the largest workspace that a plan of cuDNN's attention may take
	kernels    []KernelCall             // that ran on the device
	distinct   map[op.Kernel]*op.Kernel // those kernels, each once
	rnnState   *op.Tensor               // random numbers of cuDNN's RNN
	rnnReset   bool                     // the device's random numbers were set since
}

// Searched is for how many convolutions cuDNN has searched a plan.
func (l *libraries) Searched() int { return len(l.plans) }

// Searches are the workspaces of cuDNN's convolutions.
func (l *libraries) Searches() Workspaces { return l.workspaces }

// AttentionPlans is the largest workspace that a plan of cuDNN's attention may take.
func (l *libraries) AttentionPlans() tensor.Bytes { return l.attention }

// AttentionPlan implements op.Exec.
func (p *Player) AttentionPlan(most tensor.Bytes) {
	if !p.onHost {
		p.attention = max(p.attention, most)
	}
}

// OwnKernels are the kernels that ran of whose scratch a rule of their own decides.
func (l *libraries) OwnKernels() []KernelCall { return l.kernels }

// Reseed notes that the state of the device's random numbers was set.
func (l *libraries) Reseed() { l.rnnReset = true }

// BlasHandle implements op.Exec. The first cuBLAS call of a thread allocates
// its handle's workspace, which stays for the life of the process; newer
// versions take one for each call.
func (p *Player) BlasHandle() {
	if p.blas[p.thread] != nil || p.env.NoKernels() {
		return
	}
	w := p.New(tensor.Contiguous(tensor.D(p.env.CublasWorkspace())), tensor.Uint8)
	p.Mark(w, trace.Workspace)
	if p.env.Torch.CublasWorkspaceTransient() {
		p.Drop(w)
		return
	}
	p.blas[p.thread] = w
}

// LtHandle implements op.Exec. Where the call does not use the handle's workspace, it has
// one for its own time, or its thread keeps one like the handle's.
func (p *Player) LtHandle() {
	n := p.env.LtWorkspace()
	kept := p.env.Torch.CublasLtKeepsWorkspace()
	if n == 0 || kept && p.lt[p.thread] != nil {
		p.BlasHandle()
		return
	}
	if kept {
		p.BlasHandle()
	}
	w := p.New(tensor.Contiguous(tensor.D(n)), tensor.Uint8)
	if kept {
		p.Mark(w, trace.Workspace)
		p.lt[p.thread] = w
		return
	}
	p.BlasHandle()
	p.Drop(w)
}

// DropoutState implements op.Exec. The first call makes the state, which stays
// for the life of the process, until somebody sets the state of the device's
// random numbers; the seed for it is drawn on the device, too.
func (p *Player) DropoutState() {
	if p.rnnState != nil && !p.rnnReset || p.env.FakeTensors {
		return
	}
	p.Drop(p.New(tensor.Layout{}, tensor.Int64))
	old := p.rnnState
	p.rnnState, p.rnnReset = p.Do1(aten.InitDropoutState, nil), false
	p.Mark(p.rnnState, trace.Workspace)
	p.Drop(old)
}
