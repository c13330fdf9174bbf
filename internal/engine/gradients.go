package engine

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
)

// gradients are those of the parameters of optimizer i, or of its copies of them
// if gradients are offloaded.
func (j *job) gradients(i int) []*op.Tensor {
	var out []*op.Tensor
	if j.Offload.Gradients {
		for _, h := range j.onCPU[i] {
			if g := autograd.Of(h.T).Grad; g != nil {
				out = append(out, &g.Tensor)
			}
		}
		return out
	}
	for _, c := range j.opts[i] {
		if g := autograd.Of(c.T).Grad; g != nil {
			out = append(out, &g.Tensor)
		}
	}
	return out
}

// update steps those parameters that have gradients, for which the optimizer's
// row has made what it needs. A fused optimizer leaves them as they are where a
// GradScaler has found infinities, and counts no step.
func (j *job) update(optimizer int, groups []optim.Group) {
	o := j.prog.Optimizers[optimizer]
	if !j.Executes() || o.Row.Whole != nil { // the latter has computed by itself
		return
	}
	with := make([]optim.Group, len(groups))
	for i, g := range groups {
		with[i].Args = g.Args
		for _, p := range g.Params {
			switch {
			case p.Grad == nil:
			case j.scaler.infinite[optimizer]:
				p.Steps--
			default:
				with[i].Params = append(with[i].Params, p)
			}
		}
	}
	j.Must(j.backend.Step(o, with))
}

// values are optim.Values.
type values struct{ j *job }

func (e values) Read(t *op.Tensor) []float64 {
	v, err := e.j.backend.Read(t)
	e.j.Must(err)
	return v
}

func (e values) Write(t *op.Tensor, v []float64) { e.j.Must(e.j.backend.Write(t, v)) }

// Values implements optim.Exec.
func (j *job) Values() optim.Values {
	if j.backend == nil || j.backend.Dry() {
		return nil
	}
	return values{j}
}
