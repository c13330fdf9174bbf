package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// gathers is the type in which FSDP gathers the parameters of a model; nil: in
// their own.
func (el *elaborator) gathers(m *model) *tensor.DType {
	if s := el.gpus; s != nil && s.FSDP.Set && len(el.ms) == 1 && m == el.ms[0] {
		return floatType(s.Param)
	}
	return nil
}

// floatType is a type of floating-point numbers; nil if none is given, or what is
// given is no such type, which the elaborator says in its place.
func floatType(s spec.String) *tensor.DType {
	if d, err := tensor.ParseDType(s.V); s.Set && err == nil && d.IsFloating() {
		return &d
	}
	return nil
}

// env is what modules are made in.
func (el *elaborator) env() *module.Env {
	return &module.Env{Shapes: el.shapes, DType: el.job.DType, Gathered: el.gathered, Notes: &el.warnings, Apart: el.apart}
}

// calledApart is a call of a module that fully_shard is called on, by itself or with others.
type calledApart struct {
	first, last bool // of the modules that one call of fully_shard takes, the first and the last one that runs
}

// shardedApart reports whether fully_shard is called on the module at a path, which
// is in another one: it is the outermost that a pattern fits.
func (el *elaborator) shardedApart(outer, path string) calledApart {
	s := el.gpus
	if s == nil || !s.FSDP.Set || len(el.ms) != 1 {
		return calledApart{}
	}
	apart := func(q string) bool {
		one := program.Patterns{q}
		return program.CheckPattern(q) == nil && (outer == "" || !one.Cover(outer)) && one.Cover(path)
	}
	if len(s.Modules) == 0 {
		is := slices.ContainsFunc(el.ms[0].checkpointed(), apart)
		return calledApart{is, is}
	}
	for i, u := range s.Modules {
		switch {
		case !slices.ContainsFunc(u.Modules, func(m spec.String) bool { return u.Together && m.V == path || !u.Together && apart(m.V) }):
		case u.Together:
			return el.oneOfSeveral(i, path)
		default:
			return calledApart{true, true}
		}
	}
	return calledApart{}
}

// oneOfSeveral says which of the modules of a unit that are called one after the other the one
// at a path is (_register_group_forward_hooks).
func (el *elaborator) oneOfSeveral(unit int, path string) calledApart {
	if el.torun == nil {
		el.torun = map[int]map[string]bool{}
	}
	first := len(el.torun[unit]) == 0
	if first {
		el.torun[unit] = map[string]bool{}
		for _, m := range el.gpus.Modules[unit].Modules {
			el.torun[unit][m.V] = true
		}
	}
	delete(el.torun[unit], path)
	return calledApart{first, len(el.torun[unit]) == 0}
}

// castInputs converts what goes into a module that fully_shard is called on
// (cast_forward_inputs), as far as is known of it before it is computed.
func (el *elaborator) castInputs(ins []value.Value) []value.Value {
	if el.gathered == nil {
		return ins
	}
	if modules, _ := el.gpus.CastsInputs(); !modules {
		return ins
	}
	return converted(ins, *el.gathered)
}

// castRootInputs converts what goes into the model.
func (el *elaborator) castRootInputs(ins []value.Value) []value.Value {
	if el.gathered == nil {
		return ins
	}
	if _, root := el.gpus.CastsInputs(); !root {
		return ins
	}
	return converted(ins, *el.gathered)
}

// castResults converts what comes out of one (output_dtype).
func (el *elaborator) castResults(rets []value.Value) []value.Value {
	if s := el.gpus; s != nil && s.FSDP.Set {
		if d := floatType(s.Output); d != nil {
			return converted(rets, *d)
		}
	}
	return rets
}

// converted are values whose tensors of floating-point numbers have that type.
func converted(vs []value.Value, d tensor.DType) []value.Value {
	out := make([]value.Value, len(vs))
	for i, v := range vs {
		out[i] = value.Value{Expr: v.Expr, Meta: v.Meta.As(d)}
	}
	return out
}
