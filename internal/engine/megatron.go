package engine

import (
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/optim"
)

// makeMegatron puts Megatron-core's DistributedDataParallel around the model, whose optimizer
// steps parameters in float32 from then on.
func (j *job) makeMegatron() {
	m := j.prog.Parallel.Megatron
	if m == nil {
		return
	}
	var shared int64
	root := j.order[0]
	python.EachParameter(root, func(of *python.Module, k int) {
		if m.Shared.Fits(of.ParameterPath(root, k)) {
			shared += of.Params[k].T.Numel()
		}
	})
	j.megatron = distributed.NewMegatron(j.Interp, m, j.opts[0], j.steppers[0].groups, shared)
	j.masters = make([]*optim.Param, len(j.opts[0]))
}

// megatronStep is MegatronOptimizer.step.
func (j *job) megatronStep() {
	outer := j.Push()
	o := j.prog.Optimizers[0]
	j.Label("Optimizer.step#" + o.Row.Name + ".step")
	j.Env().GradMode = false
	j.megatron.Prepare()
	var groups []optim.Group
	for g, members := range j.steppers[0].groups {
		group := optim.Group{Args: o.Args}
		if len(o.Groups) > 0 {
			group.Args = o.Groups[g].Args
		}
		for _, k := range j.megatron.Stepped(members) {
			if j.masters[k] == nil {
				j.masters[k] = &optim.Param{}
			}
			j.masters[k].T, j.masters[k].Grad = j.megatron.Steps(k)
			group.Params = append(group.Params, j.masters[k])
		}
		groups = append(groups, group)
	}
	j.Quiet(func() { o.Row.Step(j, groups) })
	j.megatron.Copied()
	j.Pop(outer)
	for _, c := range j.opts[0] {
		j.Changes(c.T)
	}
}
