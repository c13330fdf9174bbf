package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// step elaborates what runs before the loop, then the statements of a step,
// those of the spec or what train desugars to.
func (el *elaborator) step() {
	el.kept = &el.job.Kept
	before := el.attempt(func() { el.inLoop(el.before) })
	entries := el.spec.Step
	if el.loop != nil {
		el.inLoop(func() { el.job.Step, el.job.Aux = el.function("step", el.loop.Step) })
	} else if entries != nil {
		el.job.Step, el.job.Aux = el.function("step", entries)
	} else {
		// The loss is written in the scope of the file that defines the model.
		loss := el.lossOf()
		entries = el.spec.Desugar(loss)
		if m := el.ms[0]; loss != nil && loss != el.spec.LossValue() && !el.spec.TeachesOtherwise() {
			el.as(m, func() { el.job.Step, el.job.Aux = el.function("step", entries) })
		} else {
			el.job.Step, el.job.Aux = el.function("step", entries)
		}
	}
	if !before {
		panic(spec.Stop{})
	}
	if el.job.Flat {
		el.job.Step.Globals = len(el.job.Step.Slots)
	}
	if el.job.Scaler {
		updateScale(el.job.Step)
	}
	el.stepRates()
	for _, m := range el.ms {
		if m.class == nil {
			el.fail(m.at, "model %q is not called in the step", m.name)
		}
		el.job.Models = append(el.job.Models, &program.Model{Name: m.name, Root: m.class, Eval: m.eval, Loaded: m.loading(), Deviation: m.deviation})
	}
}

// function elaborates statements as a function of the script; the class holds
// the modules that they call themselves.
func (el *elaborator) function(name string, entries []*spec.Entry) (*program.Func, *program.Class) {
	f := el.scriptFunction(name, entries, el.carried)
	el.within(f, entries[0].At)
	el.carriesOn(f, entries)
	nameCriteria(f.u.class)
	return f.f, f.u.class
}

// scriptFunction elaborates statements that begin with names of the script.
func (el *elaborator) scriptFunction(name string, entries []*spec.Entry, names []carried) *fn {
	f := el.scriptFn(name)
	f.carry(names)
	if el.noLoss {
		f.set("loss", value.Meta{Lost: true})
	}
	if !hasBatch(entries) && len(el.job.Inputs)+len(el.lostInputs) > 0 && (el.inEval == nil || el.takesInputs(entries)) {
		f.batch(nil)
	}
	f.statements(entries, f.scope)
	f.modesBack()
	f.u.close()
	return f
}

// scriptFn begins a function of the script.
func (el *elaborator) scriptFn(name string) *fn {
	sc := &scope{parent: el.spec.Env, vars: el.globals()}
	u := el.newUnit("", sc, el.visible(el.spec.Model))
	u.what, u.script = name, true
	if el.inEval == nil {
		u.goOn(el.first)
	}
	f := u.newFn(name, program.StepFunc, sc, nil, nil, spec.Span{})
	f.special = (*fn).stepStatement
	return f
}

// within ends with a mistake at a place where a function stands for too many
// operations.
func (el *elaborator) within(f *fn, at spec.Span) {
	if el.sizeOf(f.f, f.u.class) > maxSteps {
		el.fail(at, "the %s has more than %d operations", f.f.Name, maxSteps)
	}
}

// unscaled reports whether the gradients of an optimizer were unscaled since it
// last stepped.
func (f *fn) unscaled(optimizer int) bool {
	for i := len(f.f.Body) - 1; i >= 0; i-- {
		if s := &f.f.Body[i]; s.Optimizer == optimizer {
			switch s.Kind {
			case program.Unscale:
				return true
			case program.OptStep:
				return false
			}
		}
	}
	return false
}

// updateScale puts scaler.update() behind the last step of an optimizer, in all
// steps in which there is one.
func updateScale(f *program.Func) {
	last, every := -1, int64(0)
	for i := range f.Body {
		if s := &f.Body[i]; s.Kind == program.OptStep {
			last, every = i, common(max(s.Every, 1), every)
		}
	}
	if last >= 0 {
		f.Body = slices.Insert(f.Body, last+1, program.Stmt{Kind: program.UpdateScale, Every: every, Line: f.Body[last].Line})
	}
}

// stepRates puts scheduler.step() behind the last step of its optimizer.
func (el *elaborator) stepRates() {
	for i, o := range el.job.Optimizers {
		if o.Scheduler == nil || o.Scheduler.Trainer || o.Measures() {
			continue
		}
		body := el.job.Step.Body
		last := len(body) - 1
		for last >= 0 && !(body[last].Kind == program.OptStep && body[last].Optimizer == i) {
			last--
		}
		if last < 0 {
			el.fail(el.optimDefs[i].Scheduler.Span, "the scheduler of %q needs an optimizer_step", o.Name)
		}
		st := program.Stmt{Kind: program.RateStep, Optimizer: i, Every: body[last].Every, Begin: body[last].Begin, Line: body[last].Line}
		if o.Scheduler.Every > 0 {
			st.Every, st.Begin = o.Scheduler.Every, 0
		}
		if last+1 < len(body) && body[last+1].Kind == program.UpdateScale {
			last++
		}
		el.job.Step.Body = slices.Insert(body, last+1, st)
	}
}

// nameCriteria gives the modules of a step the names of the variables that hold
// them: criterion, unless the spec names them.
func nameCriteria(c *program.Class) {
	for i := range c.Children {
		ch := &c.Children[i]
		rest, numbered := strings.CutPrefix(ch.Path, "layers.")
		switch {
		case numbered && len(c.Children) == 1:
			ch.Path = "criterion"
		case numbered:
			ch.Path = "criterion" + rest
		default:
			ch.Path = strings.ReplaceAll(ch.Path, ".", "_")
		}
	}
}

// lossOf is the loss of the only model, which may be a preset's.
func (el *elaborator) lossOf() *spec.Value {
	if len(el.spec.Models) > 0 {
		el.fail(el.ms[0].at, "several models need step:, the statements of a step")
	}
	loss := el.optionalLoss()
	if loss == nil && el.job.Inference == "" && el.spec.Teacher == nil {
		el.errs.Addf(el.ms[0].at, "a model needs loss:, such as {CrossEntropyLoss: {target: label}}")
		el.noLoss = true
	}
	return loss
}

// optionalLoss is the loss of the first model, its preset's if the spec gives
// none; nil if there is none.
func (el *elaborator) optionalLoss() *spec.Value {
	if v := el.spec.LossValue(); v != nil {
		return v
	}
	return el.ms[0].spec.LossValue()
}

func hasBatch(es []*spec.Entry) bool {
	for _, e := range es {
		if e.Head.V == spec.HeadBatch || hasBatch(e.Body) {
			return true
		}
	}
	return false
}

// takesInputs reports whether statements take inputs of a batch, by name or as
// those of a model.
func (el *elaborator) takesInputs(es []*spec.Entry) bool {
	takes := false
	spec.Words(es, func(w string) {
		takes = takes || el.isInput(w)
	})
	return takes || slices.ContainsFunc(es, func(e *spec.Entry) bool {
		return e.Head.V == spec.HeadForward && !e.HasIn && e.Arg.Get("inputs") == nil || el.takesInputs(e.Body)
	})
}

// batch binds the inputs, or the names that e gives, to a new batch; e is nil
// where no statement says so.
func (f *fn) batch(e *spec.Entry) {
	el := f.u.el
	st := program.Stmt{Kind: program.Batch, Unpack: true, Last: el.inLast}
	inputs := el.batchInputs()
	var names []string
	for _, in := range inputs {
		names = append(names, in.Name)
	}
	if e != nil {
		st.Line = e.At.Line
		switch {
		case len(el.lostInputs) > 0 && len(e.Name) > 0:
			panic(spec.Stop{})
		case len(inputs)+len(el.lostInputs) == 0:
			el.fail(e.Head.At, "a batch has no tensors: every input of the models has from: step")
		case e.Nest != nil:
			el.fail(e.Name[0].At, "a batch is a tuple of tensors, which takes a list of names, such as [%s], and no list in it", strings.Join(names, ", "))
		case len(e.Name) > 0 && len(e.Name) != len(names):
			el.fail(e.Name[0].At, "a batch has %s (%s), which need as many names, not %d", spec.Plural(len(names), "tensor"), strings.Join(names, ", "), len(e.Name))
		}
		for i, n := range e.Name {
			names[i] = n.V
		}
	}
	for i, in := range inputs {
		t := el.ofBatch(in)
		st.Targets = append(st.Targets, f.set(names[i], value.Tensor(t)))
	}
	for _, name := range el.lostInputs {
		f.set(name, value.Meta{Lost: true})
	}
	f.emit(st)
}

// batchSize reads how many samples a batch has; nil: as many as the others.
func (f *fn) batchSize(v *spec.Value, sc *scope) {
	el := f.u.el
	var n int64
	if v != nil {
		if n = el.evalInt(v, sc, "samples"); n < 1 {
			el.errs.Addf(v.Span, "samples must be at least 1, not %d", n)
			v = nil
		}
	}
	el.batchSize(v, n)
}

// tupleBatch binds one name to the tuple of a new batch.
func (f *fn) tupleBatch(e *spec.Entry) {
	el := f.u.el
	if len(e.Name) != 1 || e.Tuple {
		el.fail(e.At, "a batch as a tuple has one name, such as {batch: {tuple: true}, name: ahead}")
	}
	if el.job.Rebind {
		el.fail(e.At, "data: {input: rebind} rebinds the names of a batch's tensors, which a tuple has not")
	}
	if len(el.lostInputs) > 0 {
		panic(spec.Stop{})
	}
	m := value.Meta{Tuple: []value.Meta{}}
	for _, in := range el.batchInputs() {
		m.Tuple = append(m.Tuple, value.Tensor(el.ofBatch(in)))
	}
	f.emit(program.Stmt{Kind: program.Batch, Last: el.inLast, Targets: []int{f.set(e.Name[0].V, m)}, Line: e.At.Line})
}

// unpackBatch binds the inputs to the tensors of a batch that is a tuple.
func (f *fn) unpackBatch(e *spec.Entry, of *spec.Value, sc *scope) {
	el := f.u.el
	v := f.text(el.evalStr(of, sc, "of"), of.Span, sc)
	inputs := el.batchInputs()
	if len(v.Meta.Tuple) != len(inputs) || v.Meta.List != nil {
		el.fail(of.Span, "of is a batch that {batch: {tuple: true}} gave, not %s", v.Meta.Describe())
	}
	st := program.Stmt{Kind: program.Assign, Unpack: true, Value: v.Expr, Line: e.At.Line}
	for i, in := range inputs {
		st.Targets = append(st.Targets, f.set(in.Name, v.Meta.Tuple[i]))
	}
	f.emit(st)
}

// ofBatch is a tensor of a batch.
func (el *elaborator) ofBatch(in program.Input) *op.Tensor {
	return &op.Tensor{Layout: el.job.BatchLayout(in), DType: in.DType}
}

// batchInputs are the tensors of a batch of the function under way, in a pipeline those of a
// microbatch.
func (el *elaborator) batchInputs() []program.Input {
	if ev := el.inEval; ev != nil {
		return ev.OfSize(el.inLast).Inputs
	}
	if el.parts > 1 { // schedule.step divides them
		inputs := slices.Clone(el.job.Inputs)
		for i := range inputs {
			inputs[i].Size = slices.Clone(inputs[i].Size)
			inputs[i].Size[0] /= el.parts
		}
		return inputs
	}
	return el.job.Inputs
}

// trainingStatements have no place in an evaluation.
var trainingStatements = []string{
	spec.HeadBackward, spec.HeadOptimizer, spec.HeadZeroGrad, spec.HeadClipNorm, spec.HeadClipValue, spec.HeadEMA, spec.HeadSync,
}

// stepStatement elaborates the statements that only a step has; false if e is
// none of them.
func (f *fn) stepStatement(e *spec.Entry, sc *scope) bool {
	el := f.u.el
	st := program.Stmt{Line: e.At.Line}
	kw := func(allowed ...string) map[string]*spec.Value { return f.keywords(e, allowed) }
	if el.inEval != nil && slices.Contains(trainingStatements, e.Head.V) {
		el.fail(e.Head.At, "an evaluation trains nothing; %s belongs in the step", e.Head.V)
	}
	switch e.Head.V {
	case spec.HeadBatch:
		a := kw("tuple", "of", "samples")
		if a["of"] == nil {
			f.batchSize(a["samples"], sc)
		}
		switch {
		case a["of"] != nil:
			f.unpackBatch(e, a["of"], sc)
		case a["tuple"] != nil && el.evalBool(a["tuple"], sc, "tuple"):
			f.tupleBatch(e)
		default:
			f.batch(e)
		}
		return true
	case spec.HeadForward:
		f.forwardStatement(e, sc)
		return true
	case spec.HeadBackward:
		a := kw("of", "retain_graph")
		of := "loss"
		at := e.Head.At
		if v := a["of"]; v != nil {
			of, at = el.evalStr(v, sc, "of"), v.Span
		}
		v := f.reference(of, at)
		if v.Meta.Tensor == nil {
			el.fail(at, "backward needs a tensor, not %s", v.Meta.Describe())
		}
		if v.Meta.Tensor.Numel() != 1 {
			el.fail(at, "backward needs a loss of one element, not of shape %v", v.Meta.Tensor.Size)
		}
		st.Kind, st.Value = program.Backward, v.Expr
		if r := a["retain_graph"]; r != nil {
			st.Retain = el.evalBool(r, sc, "retain_graph")
		}
	case spec.HeadOptimizer:
		st.Kind, st.Optimizer = program.OptStep, f.optimizer(e, kw("optimizer")["optimizer"], sc)
		f.closure(&st, e, sc)
	case spec.HeadZeroGrad:
		a := kw("optimizer", "set_to_none")
		st.Kind, st.Optimizer, st.SetToNone = program.ZeroGrad, f.optimizer(e, a["optimizer"], sc), true
		if v := a["set_to_none"]; v != nil {
			st.SetToNone = el.evalBool(v, sc, "set_to_none")
		}
	case spec.HeadEmpty:
		a := kw("first")
		st.Kind = program.EmptyCache
		if v := a["first"]; v != nil {
			st.Begin = el.evalInt(v, sc, "first")
			switch {
			case e.Every == nil || !f.steps.own:
				el.fail(v.Span, "first needs every in the same statement, and none around it")
			case st.Begin < 1 || st.Begin > f.steps.every:
				el.fail(v.Span, "first must be 1 to %d, as every is, not %d", f.steps.every, st.Begin)
			}
		}
	case spec.HeadClipNorm, spec.HeadClipValue:
		bound := "max_norm"
		st.Kind = program.ClipNorm
		if e.Head.V == spec.HeadClipValue {
			bound, st.Kind = "clip_value", program.ClipValue
		}
		a := kw(bound, "optimizer")
		if a[bound] == nil {
			el.fail(e.At, "%s needs its bound, such as {%s: 1.0}", e.Head.V, e.Head.V)
		}
		st.Number = el.evalNumber(a[bound], sc, bound)
		st.Optimizer = f.optimizer(e, a["optimizer"], sc)
		if len(e.Name) > 0 && e.Head.V == spec.HeadClipNorm { // the norm of all gradients
			if len(e.Name) > 1 || e.Tuple {
				el.fail(e.Name[0].At, "%s gives one tensor, which takes one name", e.Head.V)
			}
			st.Targets = []int{f.set(e.Name[0].V, value.Tensor(&op.Tensor{Layout: tensor.Contiguous(tensor.D()), DType: el.job.DType}))}
		}
		if el.job.Scaler && !f.unscaled(st.Optimizer) {
			f.emit(program.Stmt{Kind: program.Unscale, Optimizer: st.Optimizer, Line: st.Line})
		}
	case spec.HeadToDevice:
		switch {
		case f.u.what != beforeFunction:
			el.fail(e.Head.At, "optimizer_to_device is a statement of before:, when an optimizer has the state that its constructor makes")
		case el.spec.Train.InBackward.V:
			el.fail(e.Head.At, "optimizer_to_device is for one optimizer; optimizer_in_backward makes one for each parameter")
		}
		st.Kind, st.Optimizer = program.ToDevice, f.optimizer(e, kw("optimizer")["optimizer"], sc)
		if !el.job.Optimizers[st.Optimizer].Row.Eager && !el.spec.PEFT.Recurrent() { // has no state yet, and a move changes nothing
			return true
		}
	case spec.HeadKeep:
		f.keep(e, sc, st)
		return true
	case spec.HeadEMA:
		kw()
		if el.job.EMA == nil {
			el.fail(e.Head.At, "there are no averaged weights; train: {ema: {decay: 0.999}} makes them")
		}
		st.Kind = program.UpdateEMA
	case spec.HeadEval, spec.HeadTrain:
		f.setMode(e, sc, st)
		return true
	case spec.HeadSync:
		f.gradSync(e, sc, st)
		return true
	default:
		return false
	}
	f.emit(st)
	return true
}

// optimizer resolves the name of an optimizer; without one there must be only
// one.
func (f *fn) optimizer(e *spec.Entry, v *spec.Value, sc *scope) int {
	el := f.u.el
	if el.badOptim {
		panic(spec.Stop{})
	}
	if len(el.job.Optimizers) == 0 {
		el.fail(e.At, "there is no optimizer in inference")
	}
	var names []string
	for _, o := range el.job.Optimizers {
		names = append(names, o.Name)
	}
	if v == nil {
		if len(names) > 1 {
			el.fail(e.At, "%s needs the name of an optimizer", e.Head.V)
		}
		return 0
	}
	s := el.evalStr(v, sc, "optimizer")
	for i, n := range names {
		if n == s {
			return i
		}
	}
	el.errs.Unknown(v.Span, "optimizer", s, names)
	panic(spec.Stop{})
}

// forwardStatement binds what a model gives, which is called out unless it has
// a name.
func (f *fn) forwardStatement(e *spec.Entry, sc *scope) {
	v := f.forward(e, sc)
	f.settle(e)
	named := *e
	if len(e.Name) == 0 {
		named.Name = []spec.String{{V: "out", At: e.At}}
	}
	f.bind(&named, v)
}
