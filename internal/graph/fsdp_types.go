package graph

import (
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

// shardedApart reports whether fully_shard is called on the module at a path, which
// is in another one: it is the outermost that a pattern fits.
func (el *elaborator) shardedApart(outer, path string) bool {
	s := el.gpus
	if s == nil || !s.FSDP.Set || len(el.ms) != 1 {
		return false
	}
	patterns := el.ms[0].checkpointed()
	if len(s.Modules) > 0 {
		patterns = nil
		for _, m := range s.Modules {
			patterns = append(patterns, m.V)
		}
	}
	for _, q := range patterns {
		if program.CheckPattern(q) != nil {
			continue
		}
		one := program.Patterns{q}
		if (outer == "" || !one.Cover(outer)) && one.Cover(path) {
			return true
		}
	}
	return false
}

// castInputs converts what goes into a module that fully_shard is called on
// (cast_forward_inputs), as far as is known of it before it is computed.
func (el *elaborator) castInputs(ins []value.Value) []value.Value {
	if el.gathered == nil || !el.gpus.Cast.V {
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
