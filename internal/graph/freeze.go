package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// freeze marks the parameters that are not trained. What a model says of itself
// stands in the place of what the job says of all.
func (el *elaborator) freeze() {
	var all []*program.Model
	for i, m := range el.ms {
		if m.use.Freeze != nil {
			el.freezeModels(m.use.Freeze, el.job.Models[i:i+1])
		} else {
			all = append(all, el.job.Models[i])
		}
	}
	if el.spec.Freeze != nil {
		el.freezeModels(el.spec.Freeze, all)
	}
}

func (el *elaborator) freezeModels(f *spec.Freeze, models []*program.Model) {
	if len(f.Modules)+len(f.Except) == 0 {
		return
	}
	var known []string
	for _, m := range models {
		known = append(append(known, m.Root.ModulePaths()...), m.Root.ParamPaths()...)
	}
	const what = "module or parameter"
	frozen, trained := el.patterns(f.Modules, what, known), el.patterns(f.Except, what, known)
	if len(f.Modules) == 0 { // all but these
		frozen = program.Patterns{"*"}
	}
	for _, m := range models {
		m.Frozen, m.Trained = frozen, trained
	}
	for _, o := range el.job.Optimizers {
		if !el.job.Trains(o) {
			el.fail(f.At, "freeze leaves no parameter to train for %s", o.Name)
		}
	}
}
