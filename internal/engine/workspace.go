package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Workspaces are what cuDNN's convolutions take while they run.
type Workspaces struct {
	Calls    []op.ConvCall // in order
	Expected tensor.Bytes  // the largest that is expected
	Most     tensor.Bytes  // what the largest may be
	Events   []int         // their allocations in the trace, in order
}

// ConvWorkspace implements op.Exec: the workspace lives for the call.
func (p *Player) ConvWorkspace(c op.ConvCall) {
	if p.onHost {
		return
	}
	w, expected := &p.workspaces, p.env.ConvWorkspace(c)
	w.Calls = append(w.Calls, c)
	w.Expected, w.Most = max(w.Expected, expected), max(w.Most, expected, c.Most())
	n := p.env.CudnnWorkspace.Bytes
	if p.env.CudnnWorkspace.Model {
		n = expected
	}
	if n == 0 {
		return
	}
	w.Events = append(w.Events, len(p.tr.Events))
	t := p.New(tensor.Contiguous(tensor.D(int64(n))), tensor.Uint8)
	p.mark(obj(t), trace.Workspace)
	p.Drop(t)
}
