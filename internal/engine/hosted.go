package engine

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/trace"
)

// savedHooks are the hooks under which a step computes; nil if nothing that
// autograd saves is offloaded.
func (j *job) savedHooks() autograd.SavedHooks {
	if j.Offload.Activations || (j.Offload.Parameters && j.Env().GradMode) {
		return j.SaveOffloaded()
	}
	return nil
}

// parametersOnCPU reports whether optimizers step parameters in host memory.
func (j *job) parametersOnCPU() bool {
	f := j.prog.Parallel.FSDP
	return j.Offload.Parameters || f != nil && f.Offload
}

// startOptimizer is the constructor of an optimizer. One that is offloaded gets
// copies of the parameters.
func (j *job) startOptimizer(i int) {
	o := j.prog.Optimizers[i]
	switch {
	case j.Offload.Optimizer:
		var ps []*optim.Param
		for _, c := range j.opts[i] {
			t := j.Transfer(c.T, true, j.Offload.Pinned, c.T.LikeDense())
			autograd.Of(t).Requires = true
			j.Mark(t, trace.Parameters)
			h := &optim.Param{T: t}
			ps = append(ps, h)
			if j.Offload.Gradients {
				autograd.Of(c.T).Ready = func(leaf *autograd.Object) { j.takeGradient(leaf, h) }
			}
		}
		j.onCPU = append(j.onCPU, ps)
		j.On(true, false, func() { o.Row.Start(j, j.grouped(i, ps)) })
	case j.parametersOnCPU():
		j.On(true, false, func() { o.Row.Start(j, j.optimGroups(i)) })
	default:
		o.Row.Start(j, j.optimGroups(i))
	}
}

// takeGradient moves a gradient that is ready to the CPU and adds it to what is
// there (a hook of Tensor.register_post_accumulate_grad_hook).
func (j *job) takeGradient(leaf *autograd.Object, h *optim.Param) {
	g := autograd.Of(j.Transfer(&leaf.Grad.Tensor, true, j.Offload.Pinned, leaf.Grad.Tensor.LikeDense()))
	j.Mark(&g.Tensor, trace.Gradients)
	if sum := autograd.Of(h.T); sum.Grad == nil {
		sum.Grad = g
	} else {
		j.Drop(j.Do1(aten.AddInPlace, &aten.AddArgs{}, &sum.Grad.Tensor, &g.Tensor))
		j.Release(g)
	}
	j.dropGrad(leaf)
}

// stepOnCPU steps an optimizer on the CPU: with gradients that are there, or
// copies of those on the device, and the parameters are copied back.
func (j *job) stepOnCPU(i int) {
	o := j.prog.Optimizers[i]
	if j.parametersOnCPU() {
		groups := j.optimGroups(i)
		j.On(true, false, func() { j.Quiet(func() { o.Row.StepOnCPU(j, groups) }) })
		j.update(i, groups)
		return
	}
	for k, h := range j.onCPU[i] {
		leaf := autograd.Of(j.opts[i][k].T)
		if !j.Offload.Gradients {
			j.dropGrad(autograd.Of(h.T))
			if leaf.Grad != nil {
				g := autograd.Of(j.Transfer(&leaf.Grad.Tensor, true, j.Offload.Pinned, leaf.Grad.Tensor.LikeDense()))
				j.Mark(&g.Tensor, trace.Gradients)
				autograd.Of(h.T).Grad = g
			}
		}
		h.Grad = nil
		if g := autograd.Of(h.T).Grad; g != nil {
			h.Grad = &g.Tensor
		}
	}
	groups := j.grouped(i, j.onCPU[i])
	j.On(true, false, func() { j.Quiet(func() { o.Row.StepOnCPU(j, groups) }) })
	j.update(i, groups)
	for k, h := range j.onCPU[i] {
		j.CopyTo(j.opts[i][k].T, h.T)
	}
}
