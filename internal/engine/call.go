package engine

import (
	"github.com/memplan/memplan/internal/engine/compiled"
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// distribute puts DistributedDataParallel around the models that are trained, or makes the
// schedule of a pipeline.
func (j *job) distribute() {
	j.reducers = map[string]*distributed.Reducer{}
	for _, m := range j.prog.Models {
		if j.prog.Wraps(m) {
			j.reducers[m.Name] = distributed.NewReducer(j.Interp, j.models[m.Name], &j.prog.Parallel)
		}
	}
	if j.prog.Parallel.Pipeline != nil {
		var around []*distributed.Reducer
		for _, m := range j.prog.Models {
			r := j.reducers[m.Name]
			if r != nil {
				r.Sync = false // forward passes of microbatches are under no_sync
			}
			around = append(around, r)
		}
		j.pipeline = distributed.NewPipeline(j.Interp, j.prog, j.order, around, j.aux)
		j.pipeline.FirstBackward = j.sumSaved
	}
}

// compile puts the code of Inductor in the place of the models that were compiled.
func (j *job) compile() {
	j.compiled = map[string]*compiled.Model{}
	for _, m := range j.prog.Models {
		if m.Compiled != nil {
			j.compiled[m.Name] = compiled.New(j.Interp, j.models[m.Name], m.Compiled)
		}
	}
}

// callModel calls a model of the step, through DistributedDataParallel if that is
// around it. It takes over the arguments.
func (j *job) callModel(e *program.Expr, args []python.Value) python.Value {
	name, outer := e.Model, j.Push()
	eval := j.evalMode[name]
	j.EnterModel(eval)
	j.OffloadAgain()
	if e.Base {
		j.DisableAdapters()
	}
	j.Env().Training = j.Env().Training && (eval == nil || !*eval)
	lower := e.Lower && j.prog.Autocast && !j.Env().Autocast
	if lower {
		j.EnterAutocast(j.prog.LowerType)
	}
	var v python.Value
	if c := j.compiled[name]; c != nil && c.Has(j.Env().GradMode) {
		v = c.Call(args)
	} else if j.engine != nil && !j.Evaluating {
		held := j.HoldAll(args)
		j.engine.PreForward()
		v = j.CallModule(j.model(name, e.Last), nil, args)
		j.engine.PostForward(v)
		j.LetGoAll(held)
	} else if r := j.reducers[name]; r == nil {
		v = j.CallModule(j.model(name, e.Last), nil, args)
	} else {
		held := j.HoldAll(args)
		r.PreForward()
		v = r.PostForward(j.CallModule(j.model(name, e.Last), nil, args))
		j.LetGoAll(held)
	}
	if lower {
		j.ExitAutocast()
	}
	j.Pop(outer)
	return v
}

// model is the model of that name, as what runs now calls it.
func (j *job) model(name string, last bool) *python.Module {
	if !j.Evaluating {
		return j.models[name]
	}
	evals := j.evals[0]
	if last {
		evals = j.evals[1]
	}
	if evals[name] != nil {
		return evals[name]
	}
	return j.models[name]
}

// scheduleStep runs schedule.step of a pipeline.
func (j *job) scheduleStep(fr *python.Frame, s *program.Stmt) {
	j.Store(fr, s.Targets[0], python.Value{List: python.NewList(nil)})
	if j.megatron != nil {
		fr.Slots[s.Targets[0]].List.Items = j.stages.Step()
		j.countGradients()
		return
	}
	pl := j.prog.Parallel.Pipeline
	var inputs []*op.Tensor
	for _, slot := range pl.Stages[pl.Rank].Inputs {
		inputs = append(inputs, fr.Slots[slot].T)
	}
	fr.Slots[s.Targets[0]].List.Items = j.pipeline.Step(inputs, fr.Slots[pl.Target].T)
	j.countGradients()
}

// InferStages finds what the stages of a pipeline send to each other, which a script of the job
// says. An error is a *program.Error.
func InferStages(m *limit.Meter, prog *program.Job, env op.Env) (err error) {
	defer func() { caught(recover(), &err) }()
	newJob(m, prog, env, nil).inferStages(env)
	return nil
}

// inferStages is InferStages for a job that is played.
func (j *job) inferStages(env op.Env) {
	if j.prog.Parallel.Pipeline != nil {
		distributed.InferStages(newJob(j.Meter, j.prog, env, nil).Interp, j.prog)
	}
}
