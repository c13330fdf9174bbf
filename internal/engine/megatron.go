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
	experts := map[*python.Cell]bool{}
	root := j.order[0]
	python.EachParameter(root, func(of *python.Module, k int) {
		path, cell := of.ParameterPath(root, k), of.Params[k]
		if m.Shared.Fits(path) {
			shared += cell.T.Numel()
		}
		experts[cell] = m.Experts.Fits(path)
	})
	expert := make([]bool, len(j.opts[0]))
	for k, c := range j.opts[0] {
		expert[k] = experts[c]
	}
	j.megatron = distributed.NewMegatron(j.Interp, m, j.opts[0], j.steppers[0].groups, expert, shared)
	j.masters = make([]*optim.Param, len(j.opts[0]))
}

// megatronStep is MegatronOptimizer.step.
func (j *job) megatronStep() {
	outer := j.Push()
	o := j.prog.Optimizers[0]
	j.Label("Optimizer.step#" + o.Row.Name + ".step")
	j.Env().GradMode = false
	j.megatron.Prepare()
	for n := range j.megatron.Optimizers() {
		var groups []optim.Group
		for g, members := range j.steppers[0].groups {
			group := optim.Group{Args: o.Args}
			if len(o.Groups) > 0 {
				group.Args = o.Groups[g].Args
			}
			for _, k := range j.megatron.Stepped(n, members) {
				if j.masters[k] == nil {
					j.masters[k] = &optim.Param{}
				}
				j.masters[k].T, j.masters[k].Grad = j.megatron.Steps(k)
				group.Params = append(group.Params, j.masters[k])
			}
			groups = append(groups, group)
		}
		j.Quiet(func() { o.Row.Step(j, groups) })
		j.megatron.Copied(n)
	}
	j.Pop(outer)
	for _, c := range j.opts[0] {
		j.Changes(c.T)
	}
}
