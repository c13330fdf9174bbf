package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/program"
)

// evaluation is what evaluations call.
type evaluation struct {
	evalAux *python.Module
	evals   [2]map[string]*python.Module // models as an evaluation calls them, if otherwise; with batches of the last size
}

// setupEval makes the modules of an evaluation: those that its statements call
// themselves, unless the step has them, and the models that have other
// statements for its batches, over the parameters of those that are trained.
func (j *job) setupEval() {
	e := j.prog.Eval
	if e == nil {
		return
	}
	j.evalAux = j.Instantiate(e.Aux, "")
	for i, ch := range e.Aux.Children {
		for k, own := range j.prog.Aux.Children {
			if own.Path == ch.Path {
				j.evalAux.Children[i] = j.aux.Children[k]
			}
		}
	}
	j.evalAux.Registered = j.evalAux.Children
	j.ToDevice(j.evalAux) // what it shares is there already
	j.Initialize(j.evalAux, nil)
	for i, s := range e.Sizes() {
		evals := map[string]*python.Module{}
		for name, class := range s.Models {
			evals[name] = j.Over(class, j.models[name])
			evals[name].Fuse(s.Fused[name])
			if a := j.prog.EMA; a != nil && a.Model == name {
				evals[a.Name] = j.Over(class, j.models[a.Name])
			}
		}
		j.evals[i] = evals
	}
}

// staticEvalBatch makes the batches that all evaluations take, or finds that of the
// steps to be one.
func (j *job) staticEvalBatch() {
	j.evalBatch = j.batch
	e := j.prog.Eval
	if e == nil {
		return
	}
	if j.Executes() {
		j.backend.BeginEval()
	}
	if j.prog.OwnBatches() {
		j.evalBatch = j.newBatch(e.Inputs)
	}
	if e.Last != nil {
		j.lastBatch = j.newBatch(e.Last.Inputs)
	}
	if j.Executes() {
		_, err := j.backend.EndEval(0)
		j.Must(err)
	}
}

// evaluated runs a statement of an evaluation, and tells the backend of the batch that begins
// with it, or of the loss that it computes.
func (j *job) evaluated(s *program.Stmt, loss int) {
	if !j.Executes() {
		j.run1(s)
		return
	}
	if s.Kind == program.Batch {
		j.backend.EvalBatch()
	}
	j.run1(s)
	if loss < 0 || !slices.Contains(s.Targets, loss) {
		return
	}
	if t := j.frame.Slots[loss].T; t != nil {
		j.Must(j.backend.EvalLoss(t))
	}
}

// evaluate calls the function of an evaluation.
func (j *job) evaluate(e *program.Eval) {
	outer, step := j.Push(), j.script
	j.Evaluating = true
	j.Env().Training, j.Env().GradMode, j.Env().Inference = e.Train, e.Context == "", e.Context == "inference_mode"
	j.script = script{frame: newScriptFrame(j.evalAux, e.Fn), inputs: e.Inputs, kept: map[string]python.Value{}}
	copy(j.frame.Slots, step.frame.Slots[:e.Fn.Globals])
	if j.Executes() {
		j.backend.BeginEval()
	}
	loss := slices.Index(e.Fn.Slots, program.LossName)
	for range e.Batches {
		for i := range e.Fn.Body {
			j.evaluated(&e.Fn.Body[i], loss)
		}
		j.autocast(false)
	}
	if j.Executes() {
		j.backend.EvalBatch()
		mean, err := j.backend.EndEval(int(j.stepNo))
		j.Must(err)
		j.measureRates(mean)
	}
	for _, k := range e.Kept { // the locals, in the order of their first appearance
		j.LetGo(j.kept[k.Name])
	}
	copy(step.frame.Slots, j.frame.Slots[:e.Fn.Globals])
	for i := e.Fn.Globals; i < len(j.frame.Slots); i++ {
		j.Store(j.frame, i, python.Value{})
	}
	j.script = step
	j.Pop(outer)
}
