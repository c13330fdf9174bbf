package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// setupEval makes the modules of an evaluation: those that its statements call
// themselves, unless the step has them, and the models that have other
// statements for its batches, over the parameters of those that are trained.
func (j *job) setupEval() {
	e := j.prog.Eval
	if e == nil {
		return
	}
	j.evalAux = j.instantiate(e.Aux, "")
	for i, ch := range e.Aux.Children {
		for k, own := range j.prog.Aux.Children {
			if own.Path == ch.Path {
				j.evalAux.children[i] = j.aux.children[k]
			}
		}
	}
	j.evalAux.registered = j.evalAux.children
	j.toDevice(j.evalAux) // what it shares is there already
	j.initialize(j.evalAux, nil)
	j.evals = map[string]*module{}
	for name, class := range e.Models {
		j.evals[name] = j.over(class, j.models[name])
		if a := j.prog.EMA; a != nil && a.Model == name {
			j.evals[a.Name] = j.over(class, j.models[a.Name])
		}
	}
}

// over instantiates a class over the parameters and buffers of a module that is
// made like it, whose name it goes by in reports.
func (p *Player) over(c *program.Class, m *module) *module {
	n := p.instantiate(c, m.path)
	p.take(n, m)
	return n
}

func (p *Player) take(n, from *module) {
	n.params, n.buffers, n.attrs, n.sharded = from.params, from.buffers, from.attrs, from.sharded
	p.names.class(n.layer, from.class)
	for i, own := range n.class.Children {
		k := slices.IndexFunc(from.class.Children, func(ch program.Child) bool { return ch.Path == own.Path })
		switch {
		case k < 0: // it holds no tensors, and is called here only
		case from.children[k].class != from.class.Children[k].Class: // put in the place of another; its forward suits any batch
			n.replace(n.children[i], from.children[k])
		default:
			p.take(n.children[i], from.children[k])
		}
	}
}

// staticEvalBatch makes the batch that all evaluations take, or finds that of the
// steps to be one.
func (j *job) staticEvalBatch() {
	j.evalBatch = j.batch
	if e := j.prog.Eval; e != nil && j.prog.OwnBatches() {
		j.evalBatch = j.newBatch(e.Inputs)
	}
}

// model is the model of that name, as what runs now calls it.
func (j *job) model(name string) *module {
	if j.evaluating && j.evals[name] != nil {
		return j.evals[name]
	}
	return j.models[name]
}

// evalOnly reports whether a model is in eval mode while the job trains.
func (j *job) evalOnly(name string) bool {
	for _, m := range j.prog.Models {
		if m.Name == name {
			return m.Eval
		}
	}
	return false
}

// evaluate calls the function of an evaluation.
func (j *job) evaluate(e *program.Eval) {
	outer, step := j.push(), j.script
	j.evaluating = true
	j.env.Training, j.env.GradMode = e.Train, e.Context == ""
	j.script = script{frame: newScriptFrame(j.evalAux, e.Fn), inputs: e.Inputs, kept: map[string]value{}}
	for range e.Batches {
		for i := range e.Fn.Body {
			if s := &e.Fn.Body[i]; s.Every <= 1 || j.stepNo%s.Every == 0 {
				j.run1(s)
			}
		}
		j.autocast(false)
	}
	for _, k := range e.Kept { // the locals, in the order of their first appearance
		j.drop(j.kept[k.Name])
	}
	for i := range j.frame.slots {
		j.store(j.frame, i, value{})
	}
	j.script = step
	j.pop(outer)
}

// copyStream is the stream on which batches are copied ahead.
const copyStream = 1

// prefetch copies the next batch on a stream of its own, whose blocks are a
// pool apart; then the tuple of the one before is given up.
func (j *job) prefetch() {
	before := j.ahead
	j.onStream(copyStream, func() { j.ahead = append([]*op.Tensor(nil), j.newBatch(j.prog.Inputs)...) })
	for i := len(before) - 1; i >= 0; i-- {
		j.Drop(before[i])
	}
}
