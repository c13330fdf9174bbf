package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/trace"
)

// savedHooks are the hooks under which a step computes; nil if nothing that
// autograd saves is offloaded.
func (j *job) savedHooks() savedHooks {
	if j.offload.Activations || (j.offload.Parameters && j.Env().GradMode) {
		return offloading{j.interp}
	}
	return nil
}

// parametersOnCPU reports whether optimizers step parameters in host memory.
func (j *job) parametersOnCPU() bool {
	f := j.prog.Parallel.FSDP
	return j.offload.Parameters || f != nil && f.Offload
}

// startOptimizer is the constructor of an optimizer. One that is offloaded gets
// copies of the parameters.
func (j *job) startOptimizer(i int) {
	o := j.prog.Optimizers[i]
	switch {
	case j.offload.Optimizer:
		var ps []*optim.Param
		for _, c := range j.opts[i] {
			t := j.transfer(c.t, true, j.offload.Pinned, c.t.LikeDense())
			obj(t).requires = true
			j.mark(t, trace.Parameters)
			h := &optim.Param{T: t}
			ps = append(ps, h)
			if j.offload.Gradients {
				obj(c.t).ready = func(leaf *object) { j.takeGradient(leaf, h) }
			}
		}
		j.onCPU = append(j.onCPU, ps)
		j.on(true, false, func() { o.Row.Start(j, j.grouped(i, ps)) })
	case j.parametersOnCPU():
		j.on(true, false, func() { o.Row.Start(j, j.optimGroups(i)) })
	default:
		o.Row.Start(j, j.optimGroups(i))
	}
}

// takeGradient moves a gradient that is ready to the CPU and adds it to what is
// there (a hook of Tensor.register_post_accumulate_grad_hook).
func (j *job) takeGradient(leaf *object, h *optim.Param) {
	g := obj(j.transfer(&leaf.grad.Tensor, true, j.offload.Pinned, leaf.grad.Tensor.LikeDense()))
	j.mark(&g.Tensor, trace.Gradients)
	if sum := obj(h.T); sum.grad == nil {
		sum.grad = g
	} else {
		j.Drop(j.do1(op.AddInPlace, &op.AddArgs{}, &sum.grad.Tensor, &g.Tensor))
		j.release(g)
	}
	j.dropGrad(leaf)
}

// stepOnCPU steps an optimizer on the CPU: with gradients that are there, or
// copies of those on the device, and the parameters are copied back.
func (j *job) stepOnCPU(i int) {
	o := j.prog.Optimizers[i]
	if j.parametersOnCPU() {
		groups := j.optimGroups(i)
		j.on(true, false, func() { j.quiet(func() { o.Row.StepOnCPU(j, groups) }) })
		j.update(i, groups)
		return
	}
	for k, h := range j.onCPU[i] {
		leaf := obj(j.opts[i][k].t)
		if !j.offload.Gradients {
			j.dropGrad(obj(h.T))
			if leaf.grad != nil {
				g := obj(j.transfer(&leaf.grad.Tensor, true, j.offload.Pinned, leaf.grad.Tensor.LikeDense()))
				j.mark(&g.Tensor, trace.Gradients)
				obj(h.T).grad = g
			}
		}
		h.Grad = nil
		if g := obj(h.T).grad; g != nil {
			h.Grad = &g.Tensor
		}
	}
	groups := j.grouped(i, j.onCPU[i])
	j.on(true, false, func() { j.quiet(func() { o.Row.StepOnCPU(j, groups) }) })
	j.update(i, groups)
	for k, h := range j.onCPU[i] {
		j.copyTo(j.opts[i][k].t, h.T)
	}
}
