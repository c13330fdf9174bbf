package engine

import (
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
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
	cells := map[*python.Cell]distributed.MegatronCell{}
	python.EachParameter(root, func(of *python.Module, k int) {
		path := of.ParameterPath(root, k)
		if m.Shared.Fits(path) {
			shared += of.Params[k].T.Numel()
		}
		cells[of.Params[k]] = distributed.MegatronCell{Cell: of.Params[k], Chunk: m.ChunkOf(path), Tied: m.Tied.Fits(path), Expert: m.Experts.Fits(path)}
	})
	all := make([]distributed.MegatronCell, len(j.opts[0]))
	for i, c := range j.opts[0] {
		all[i] = cells[c]
	}
	j.megatron = distributed.NewMegatron(j.Interp, m, all, j.steppers[0].groups, shared)
	j.masters = make([]*optim.Param, len(j.opts[0]))
	if m.Pipeline != nil {
		j.stages = distributed.NewMegatronPipeline(j.Interp, m.Pipeline, root, j.aux)
		j.stages.NextBatch = func() []*op.Tensor { return j.newBatch(j.prog.Inputs) }
		j.stages.Began = j.sumSaved
		j.stages.Passed, j.stages.Reduce, j.stages.Finalize = j.megatron.Backward, j.megatron.Reduce, j.megatron.Finalize
	}
}

// megatronStep is MegatronOptimizer.step.
func (j *job) megatronStep() {
	outer := j.Push()
	o := j.prog.Optimizers[0]
	j.Label("Optimizer.step#" + o.Row.Name + ".step")
	j.Env().GradMode = false
	if j.prog.Parallel.Megatron.Pipeline == nil {
		j.megatron.Finalize()
	}
	j.megatron.Prepare()
	for n := range j.megatron.Optimizers() {
		var groups []optim.Group
		for _, g := range j.megatron.Groups(n) {
			group := optim.Group{Args: o.Args}
			if len(o.Groups) > 0 {
				group.Args = o.Groups[g.Of].Args
			}
			for _, k := range g.Members {
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
