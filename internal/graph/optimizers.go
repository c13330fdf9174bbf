package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// optimizers resolves train.optimizer or optimizers, but for the patterns of
// parameters, which need the models elaborated.
func (el *building) optimizers() {
	if el.job.Inference != "" {
		return
	}
	s := el.spec
	var all []string
	for _, m := range el.ms {
		if !m.helps {
			all = append(all, m.name)
		}
	}
	if len(s.Optimizers) == 0 {
		c := s.Train.Optimizer
		if c == nil {
			c = &spec.Callee{Name: spec.String{V: "SGD"}}
		}
		el.optimizer("optimizer", &spec.OptimizerDef{Optimizer: c, Scheduler: s.Train.LRScheduler}, all)
		return
	}
	if v := s.Train.LRScheduler; v != nil {
		el.errs.Addf(v.Span, "train.lr_scheduler is that of train.optimizer; of several optimizers each has its own, beside optimizer")
	}
	for _, o := range s.Optimizers {
		models := all
		if len(o.V.Models) > 0 {
			models = nil
			for _, m := range o.V.Models {
				if el.findModel(m.V) == nil {
					el.errs.Unknown(m.At, "model", m.V, all)
					continue
				}
				models = append(models, m.V)
			}
		}
		spec.Try(func() { el.optimizer(o.Name.V, o.V, models) })
	}
}

// optimizer reads one optimizer with its groups.
func (el *building) optimizer(name string, def *spec.OptimizerDef, models []string) {
	o := &program.Optimizer{Name: name, Models: models}
	el.job.Optimizers = append(el.job.Optimizers, o) // even with a mistake: the step may name it
	c := def.Optimizer
	el.optimDefs = append(el.optimDefs, def)
	o.Row = optim.Lookup(c.Name.V)
	if o.Row == nil { // which was reported
		el.badOptim = true
		panic(spec.Stop{})
	}
	a := el.optimArgs(o.Row, c.Arg, c.Name.V, c.Name.At)
	var vals map[string]any
	vals, o.Given = a.merged(nil)
	args := el.bindOptimizer(o.Row, a, vals)
	var groups []program.ParamGroup
	for _, g := range groupsOf(def) {
		if o.Row.OneGroup {
			el.fail(g.At, "%s takes no parameter groups", c.Name.V)
		}
		a := el.optimArgs(o.Row, g.Arg, c.Name.V, g.At)
		for _, arg := range a.order {
			if !o.Row.OfGroup(arg) {
				el.fail(a.from[arg].Span, "%s: %s is for all parameters, not for a group", c.Name.V, arg)
			}
		}
		own, given := a.merged(vals)
		groups = append(groups, program.ParamGroup{Args: el.bindOptimizer(o.Row, a, own), Given: given})
	}
	o.Args, o.Groups = args, groups
	el.rates(o, def.Scheduler)
	el.trainerRates(o)
}

// groupsOf are the groups that a definition gives, in its own key or beside the
// optimizer's name.
func groupsOf(def *spec.OptimizerDef) spec.ParamGroups {
	return slices.Concat(def.Optimizer.Groups, def.Groups)
}

// optimArgs reads arguments of an optimizer, each within its range.
func (el *building) optimArgs(row *optim.Row, v *spec.Value, what string, at spec.Span) *argReader {
	a := &argReader{el: el.elaborator, env: el.spec.Env, what: what, at: at, sigs: []*op.Sig{row.Signature()}}
	a.read(v)
	for _, arg := range a.order {
		if err := row.Range(arg, a.vals[arg]); err != nil {
			el.fail(a.from[arg].Span, "%s: %v", what, err)
		}
	}
	return a
}

// merged returns all arguments by name, with base, or the defaults, in the
// place of those that a does not give, and those that it gives.
func (a *argReader) merged(base map[string]any) (vals map[string]any, given []program.KwArg) {
	vals = map[string]any{}
	for _, p := range a.sigs[0].Params {
		if v, ok := a.vals[p.Name]; ok {
			vals[p.Name] = v
			given = append(given, program.KwArg{Name: p.Name, Value: v})
		} else if base != nil {
			vals[p.Name] = base[p.Name]
		} else {
			vals[p.Name] = module.DefaultValue(&p)
		}
	}
	return vals, given
}

// bindOptimizer fills the row's argument struct and checks it as a whole.
func (el *building) bindOptimizer(row *optim.Row, a *argReader, vals map[string]any) any {
	args := op.BindArgs(row.Args, vals)
	if arg, err := row.Check(args, el.opts.Env.Torch); err != nil {
		at := a.at
		if v := a.from[arg]; v != nil {
			at = v.Span
		}
		el.fail(at, "%v", err)
	}
	return args
}

// optimParams resolves which parameters optimizers and their groups take.
func (el *building) optimParams() {
	el.trainerGroups()
	for i, o := range el.job.Optimizers {
		if o.Args == nil { // a mistake, which is reported
			panic(spec.Stop{})
		}
		def := el.optimDefs[i]
		var known []string
		for _, m := range el.job.Models {
			if len(def.Params)+len(groupsOf(def)) > 0 && slices.Contains(o.Models, m.Name) {
				known = append(append(known, m.Root.ModulePaths()...), m.Root.ParamPaths()...)
			}
		}
		const what = "module or parameter"
		o.Params = el.mayFit(def.Params, what, known)
		rest := false
		for k, g := range groupsOf(def) {
			o.Groups[k].Params = el.mayFit(g.Params, what, known)
			rest = rest || len(g.Params) == 0
		}
		if el.errs.Err() != nil {
			panic(spec.Stop{})
		}
		if len(o.Groups) > 0 && !rest { // the optimizer's own arguments are those of what is left
			o.Groups = slices.Insert(o.Groups, 0, program.ParamGroup{Args: o.Args})
		}
	}
}

// mayFit reads patterns of paths. One with stars that fits none of the known
// paths takes nothing, as "norm" in name does: that is said, and no mistake.
func (el *building) mayFit(list []spec.String, what string, known []string) program.Patterns {
	var fitting []spec.String
	var all program.Patterns
	for _, s := range list {
		p := program.Patterns{s.V}
		if !strings.ContainsAny(s.V, "*?[") || program.CheckPattern(s.V) != nil || slices.ContainsFunc(known, p.Fits) {
			fitting = append(fitting, s)
			continue
		}
		el.warnings = append(el.warnings, placed(note.FitsNothing.New("pattern %q (%s:%d) fits no %s", s.V, el.spec.Path, s.At.Line, what), el.spec, s.At.Line))
		all = append(all, s.V)
	}
	return append(techniques.Patterns(el.errs, fitting, what, known), all...)
}

// optimGiven checks what optimizers are given, once it is known what is frozen.
// It warns of parameters that require grad and that no optimizer is given,
// though another one of their model is.
func (el *building) optimGiven() {
	for i, o := range el.job.Optimizers {
		at := el.optimDefs[i].Optimizer.Name.At
		if el.job.Offload.Optimizer && len(o.Params)+len(o.Groups) > 0 {
			el.fail(at, "parameter groups, and optimizers of some parameters only, are not modelled on the CPU (offload.optimizer)")
		}
		if el.job.Offload.Optimizer && slices.ContainsFunc(el.job.Step.Body, func(s program.Stmt) bool { return s.Closure != nil }) {
			el.fail(at, "a closure is not modelled with the optimizer on the CPU (offload.optimizer)")
		}
		if len(o.Params) > 0 && !el.job.Trains(o) {
			el.fail(at, "%s is given no parameter that requires grad", o.Name)
		}
		for _, m := range el.job.Models {
			if refuse := o.Row.RefuseParam; refuse != nil && slices.Contains(o.Models, m.Name) {
				for _, path := range m.Root.ParamPaths() {
					if !o.Updates(path) || m.Freezes(path) {
						continue
					}
					if err := refuse(m.Root.FindParam(path).Size); err != nil {
						el.fail(at, "%v; %s of %s has another shape (optimizers: and params: give it to another optimizer)", err, path, m.Name)
					}
				}
			}
		}
	}
	for i, o := range el.job.Optimizers {
		el.optimNotes(o, el.optimDefs[i].Optimizer.Name.At)
	}
	for _, m := range el.job.Models {
		all := func(o *program.Optimizer) bool { return slices.Contains(o.Models, m.Name) && len(o.Params) == 0 }
		if slices.ContainsFunc(el.job.Optimizers, all) {
			continue
		}
		var left []string
		some := false
		for _, path := range m.Root.ParamPaths() {
			updated := slices.ContainsFunc(el.job.Optimizers, func(o *program.Optimizer) bool { return slices.Contains(o.Models, m.Name) && o.Updates(path) })
			some = some || updated
			if !updated && !m.Freezes(path) {
				left = append(left, path)
			}
		}
		if some && len(left) > 0 {
			el.warnings = append(el.warnings, note.NotOptimized.New("no optimizer is given %s of %s; they require grad all the same, and their gradients are never cleared (freeze them?)", shortList(left), m.Name))
		}
	}
	if left := el.job.Aux.ParamPaths(); len(left) > 0 && el.job.Inference == "" {
		el.warnings = append(el.warnings, note.NotOptimized.New("no optimizer is given %s of modules that the step itself calls; they require grad all the same, and their gradients are never cleared (a model of its own is trained or frozen)", shortList(left)))
	}
}

// optimNotes warns of what the figures of an optimizer leave open.
func (el *building) optimNotes(o *program.Optimizer, at spec.Span) {
	if o.Row.Note == nil {
		return
	}
	for _, args := range o.AllArgs() {
		if text := o.Row.Note(args); text != "" {
			n := placed(note.OfOptimizer.New("%s", text), el.spec, at.Line)
			n.Place.Col = at.Col
			el.warnings = note.Add(el.warnings, n)
		}
	}
}

// shortList names the first of some paths.
func shortList(paths []string) string {
	return shortened(paths, "parameters")
}
