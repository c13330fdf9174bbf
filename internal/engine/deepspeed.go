package engine

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
)

// makeEngine puts DeepSpeed's engine around the model, whose optimizer steps this process's
// part of each parameter group from then on.
func (j *job) makeEngine() {
	if j.prog.Parallel.DeepSpeed == nil || len(j.prog.Optimizers) == 0 {
		return
	}
	o, s := j.prog.Optimizers[0], &j.steppers[0]
	var cells [][]*python.Cell
	var args []any
	for g, members := range s.groups {
		if len(members) == 0 {
			continue
		}
		var group []*python.Cell
		for _, k := range members {
			group = append(group, j.opts[0][k])
		}
		cells = append(cells, group)
		if len(o.Groups) > 0 {
			args = append(args, o.Groups[g].Args)
		} else {
			args = append(args, o.Args)
		}
	}
	masters := map[*op.Tensor]*optim.Param{}
	j.engine = distributed.NewEngine(j.Interp, &j.prog.Parallel, j.order[0], cells, j.engine, func(i int, master, grad *op.Tensor) {
		p := masters[master]
		if p == nil {
			p = &optim.Param{}
			masters[master] = p
		}
		p.T, p.Grad = master, grad
		outer := j.Push()
		j.Label("Optimizer.step#" + o.Row.Name + ".step")
		groups := []optim.Group{{Args: args[i], Params: []*optim.Param{p}}}
		if j.engine.Offload {
			j.On(true, false, func() { j.Quiet(func() { o.Row.StepOnCPU(j, groups) }) })
		} else {
			j.Quiet(func() { o.Row.Step(j, groups) })
		}
		j.Pop(outer)
		j.Changes(master)
		for _, c := range cells[i] {
			if autograd.Of(c.T).Requires {
				j.Changes(c.T)
			}
		}
	})
}
