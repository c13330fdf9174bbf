package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// share is a function of the script that lays one model over the tensors of
// another.
const share = `

def share(model, like):
    """Gives a model the parameters and buffers of one that is made like it. Modules without any may be in one only."""
    model._parameters, model._buffers = like._parameters, like._buffers
    for name in model._modules.keys() & like._modules.keys():
        share(model._modules[name], like._modules[name])
    return model
`

// shareReplaced is share where layers of the trained model were replaced or got
// hooks. Those suit any batch and are taken as they are, but for the base layers of
// adapters.
const shareReplaced = `

def share(model, like):
    """Gives a model the tensors of one that is made like it, and the layers that were changed there."""
    model._parameters, model._buffers = like._parameters, like._buffers
    for name in model._modules.keys() & like._modules.keys():
        module = like._modules[name]SAVEDADAPTED
        if CHANGED:
            model._modules[name] = module
        else:
            share(model._modules[name], module)
    return model
`

// adaptedOver takes an adapter around the base layer of the model that is called, unless
// the base layer was changed, too.
const adaptedOver = `
        if isinstance(module, Adapter)UNCHANGED:
            around = [module]
            while isinstance(around[-1].base_layer, Adapter):
                around.append(around[-1].base_layer)
            base = share(model._modules[name], around[-1].base_layer)
            for adapter in reversed(around):
                layer = object.__new__(type(adapter))
                layer.__dict__ = dict(adapter.__dict__, _modules=dict(adapter._modules, base_layer=base))
                base = layer
            model._modules[name] = base
            continue`

// sharing is the function that lays one model over another.
func (s *script) sharing() string {
	var changed []string
	add := func(used bool, what string) {
		if used && !slices.Contains(changed, what) {
			changed = append(changed, what)
		}
	}
	for _, m := range s.job.Models {
		add(m.Adapters != nil, "isinstance(module, Adapter)")
		add(m.Quantized != nil, "isinstance(module, QuantizedLinear)")
		add(m.Pruned != nil, `hasattr(module, "weight_orig")`)
	}
	if changed == nil {
		return share
	}
	saved := ""
	if slices.ContainsFunc(s.job.Models, func(m *program.Model) bool { return m.Adapters != nil && len(m.Adapters.Saved) > 0 }) {
		saved = "\n        if isinstance(module, ModulesToSave):\n            module = module.modules_to_save"
	}
	adapted := ""
	if slices.ContainsFunc(s.job.Models, func(m *program.Model) bool { return m.Adapters != nil && s.job.Eval.IsApart(m.Name) }) {
		adapted = adaptedOver
	}
	unchanged := ""
	for _, what := range changed {
		if !strings.Contains(what, "Adapter") {
			unchanged += " and not " + strings.Replace(what, "module", "module.base_layer", 1)
		}
	}
	adapted = strings.ReplaceAll(adapted, "UNCHANGED", unchanged)
	return strings.NewReplacer("SAVED", saved, "ADAPTED", adapted, "CHANGED", strings.Join(changed, " or ")).Replace(shareReplaced)
}

// evalModels makes the models that an evaluation calls with other statements
// than the step: sizes that a spec computes are numbers in this script.
func (s *script) evalModels() {
	e := s.job.Eval
	for _, z := range e.Sizes() {
		last := z == e.Last
		for _, m := range s.job.Models {
			c := z.Models[m.Name]
			if !z.Apart[m.Name] {
				continue
			}
			own := s.forEval(m.Name, last)
			s.printf("%s = share(%s(), %s)", own, s.className(c), s.modelName(m.Name))
			s.fuse(m, own)
			if s.job.Offload.Parameters {
				s.printf("offload(%s)", own)
			}
			if a := s.job.EMA; a != nil && a.Model == m.Name && s.evaluates(a.Name) {
				s.printf("%s = share(%s(), %s.module)", s.forEval(a.Name, last), s.className(c), s.modelName(a.Name))
			}
		}
	}
}

// forEval is the variable of a model that is another in evaluations, or for their last
// batch.
func (s *script) forEval(model string, last bool) string {
	if last {
		return s.name(nameKey{global, "model for the last batch", model + "_for_last_batch"})
	}
	return s.name(nameKey{global, "model for eval", model + "_for_eval"})
}

// evaluates reports whether an evaluation calls a model.
func (s *script) evaluates(model string) bool {
	return s.job.Eval.Fn.Calls(model)
}

// model is the variable behind the name of a model; last: for the last batch of an
// evaluation.
func (p *printer) model(name string, last bool) string {
	if !p.evaluating {
		return p.modelName(name)
	}
	of := name
	if a := p.job.EMA; a != nil && name == a.Name {
		of = a.Model
	}
	if p.job.Eval.OfSize(last).Apart[of] {
		return p.forEval(name, last)
	}
	return p.modelName(name)
}

// modes prints what puts the models that an evaluation calls into eval mode, or
// back.
func (s *script) modes(method string) {
	e := s.job.Eval
	if e.Train {
		return
	}
	f := &printer{script: s, evaluating: true}
	names := make([]string, 0, len(s.job.Models)+1)
	for _, m := range s.job.Models {
		if !m.Eval && s.evaluates(m.Name) {
			names = append(names, m.Name)
		}
	}
	if a := s.job.EMA; a != nil && s.evaluates(a.Name) {
		names = append(names, a.Name)
	}
	for _, n := range names {
		s.printf("%s.%s()", f.model(n, false), method)
		if e.Last != nil && f.model(n, true) != f.model(n, false) {
			s.printf("%s.%s()", f.model(n, true), method)
		}
	}
}

// evaluate prints the function of an evaluation.
func (s *script) evaluate() {
	e := s.job.Eval
	if e == nil {
		return
	}
	s.line("")
	s.line("")
	s.scope(nil, s.evaluateText)
}

func (s *script) evaluateText() {
	e := s.job.Eval
	s.printf("def evaluate(%s):", s.counter())
	s.indent++
	s.global(s.rebound(e.Fn))
	s.modes("eval")
	for _, k := range e.Kept {
		s.printf("%s = %s", s.keptName(k.Name), empty(k))
	}
	if e.Context != "" {
		s.printf("with torch.%s():", e.Context)
		s.indent++
	}
	measured := slices.ContainsFunc(s.job.Optimizers, (*program.Optimizer).Measures)
	if measured {
		s.printf("%s = []", s.lossesName())
	}
	s.printf("for _ in range(%d):", e.Batches)
	s.indent++
	contexts := ""
	if s.job.Autocast {
		contexts = s.autocast()
	}
	p := &printer{script: s, fn: e.Fn, class: e.Aux, evaluating: true}
	s.statements(p, e.Fn.Body, contexts)
	if measured {
		s.printf("%s.append(%s.item())", s.lossesName(), p.local(e.Loss()))
	}
	s.indent--
	if e.Context != "" {
		s.indent--
	}
	s.modes("train")
	for _, o := range s.job.Optimizers {
		if o.Measures() {
			s.printf("%s.step(sum(%s) / %d)", s.schedulerName(o.Name), s.lossesName(), e.Batches)
		}
	}
	s.indent--
}

// callEvaluate prints the call of evaluate in the loop.
func (s *script) callEvaluate(counter string) {
	e := s.job.Eval
	switch {
	case e == nil:
	case e.Every > 1:
		s.printf("if %s %% %d == 0:", counter, e.Every)
		s.indent++
		s.printf("evaluate(%s)", counter)
		s.indent--
	default:
		s.printf("evaluate(%s)", counter)
	}
}

// empty is what a variable of keep begins as.
func empty(k program.Kept) string {
	if k.Sum {
		return "0.0"
	}
	return "[]"
}

// lists prints the variables that outlive steps.
func (s *script) lists(kept []program.Kept) {
	if len(kept) > 0 {
		s.line("")
		s.line("")
	}
	for _, k := range kept {
		s.printf("%s = %s", s.keptName(k.Name), empty(k))
	}
}

// globalsOf declares the variables of the script that a step binds.
func (s *script) globalsOf() {
	var names []string
	if s.job.Prefetch && !s.job.Static {
		names = append(names, "upcoming")
	}
	for _, k := range s.job.Kept {
		if k.Sum {
			names = append(names, s.keptName(k.Name))
		}
	}
	s.global(append(names, s.rebound(s.job.Step)...))
}

// global declares variables of the script in a function.
func (s *script) global(names []string) {
	if len(names) > 0 {
		s.printf("global %s", strings.Join(names, ", "))
	}
}

// rebound are the names of the script that a function rebinds.
func (s *script) rebound(f *program.Func) []string {
	var out []string
	for slot := range f.Globals {
		if slices.ContainsFunc(f.Body, func(st program.Stmt) bool { return st.Kind != program.Append && slices.Contains(st.Targets, slot) }) {
			out = append(out, s.variable(f, slot))
		}
	}
	return out
}

// keep prints what holds a value longer than its name does.
func (p *printer) keep(s *program.Stmt) {
	k := s.Keep
	v := p.expr(s.Value)
	if k.Detach {
		v += ".detach()"
	}
	if k.CPU {
		v += ".cpu()"
	}
	if k.Item {
		v += ".item()"
	}
	if k.Sum {
		p.printf("%s += %s", p.keptName(k.List), v)
	} else {
		p.printf("%s.append(%s)", p.keptName(k.List), v)
	}
}

// prefetch prints what copies batches ahead.
func (s *script) prefetch() {
	s.line("")
	s.line("")
	s.line("copy_stream = torch.cuda.Stream()")
	s.line("")
	s.line("")
	s.line("def prefetch():")
	s.indent++
	s.line("copy_stream.wait_stream(torch.cuda.current_stream())")
	s.line("with torch.cuda.stream(copy_stream):")
	s.indent++
	s.line("return next_batch()")
	s.indent -= 2
	s.line("")
	s.line("")
	s.line("upcoming = prefetch()")
}

// autocast is the context of mixed precision.
func (s *script) autocast() string {
	return fmt.Sprintf(`torch.autocast("cuda", dtype=%s)`, program.Literal(s.job.LowerType))
}
