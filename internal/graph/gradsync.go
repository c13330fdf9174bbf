package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// gradSync elaborates {grad_sync: true or false}, of all models or of one.
func (f *fn) gradSync(e *spec.Entry, sc *scope, st program.Stmt) {
	el := f.u.el
	if p := el.gpus; p == nil || !p.DDP.Set && !p.FSDP.Set {
		el.fail(e.Head.At, "%s is for jobs on several GPUs; parallel.ddp or parallel.fsdp makes one", e.Head.V)
	}
	a := f.keywords(e, []string{"on", "model"})
	if a["on"] == nil {
		el.fail(e.At, "%s needs true or false", e.Head.V)
	}
	st.Kind, st.NoSync = program.GradSync, !el.evalBool(a["on"], sc, "on")
	var names []string
	for _, m := range el.ms {
		names = append(names, m.name)
	}
	switch v := a["model"]; {
	case v != nil:
		st.Model = el.evalStr(v, sc, "model")
		if el.findModel(st.Model) == nil {
			el.errs.Unknown(v.Span, "model", st.Model, names)
			panic(spec.Stop{})
		}
	case len(names) > 1:
		el.fail(e.At, "%s needs the name of a model", e.Head.V)
	default:
		st.Model = names[0]
	}
	f.emit(st)
}
