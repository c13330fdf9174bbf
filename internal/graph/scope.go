package graph

import (
	"sort"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// scope resolves the names of expressions.
type scope struct {
	parent spec.Env
	vars   map[string]any
	fn     *fn                   // whose local values have shapes
	inputs map[string]value.Meta // of forward: those of declarations, such as modules, have shapes
}

func (s *scope) Lookup(name string) (any, bool) {
	if v, ok := s.vars[name]; ok {
		return v, true
	}
	local := value.Meta{}
	if s.fn != nil {
		if i, ok := s.fn.slots[name]; ok && s.fn.bound[i] {
			switch local = s.fn.metas[i]; {
			case local.Lost:
				return spec.Invalid{}, true
			case local.Tensor != nil:
				if why := s.fn.unclear(i); why != "" {
					return spec.Invalid{Why: why}, true
				}
				return local, true
			case local.None:
				return nil, true
			case local.Number != nil:
				return local.Number, true
			}
		}
	}
	if s.parent != nil {
		if v, ok := s.parent.Lookup(name); ok {
			return v, true
		}
	}
	if m, ok := s.inputs[name]; ok {
		if m.Lost {
			return spec.Invalid{}, true
		}
		return m, m.Tensor != nil
	}
	return local, local.Tuple != nil // of which an expression says that it is none of a tensor
}

func (s *scope) Names() []string {
	var out []string
	for n := range s.vars {
		out = append(out, n)
	}
	if s.fn != nil {
		out = append(out, s.fn.boundNames()...)
	}
	for n := range s.inputs {
		out = append(out, n)
	}
	sort.Strings(out)
	if s.parent != nil {
		out = append(out, s.parent.Names()...)
	}
	return out
}

// declaring is the scope of what a block or model declares: the shapes of its inputs
// are known there.
func (s *scope) declaring(names []string, ins []value.Value) *scope {
	out := &scope{parent: s.parent, vars: s.vars, inputs: map[string]value.Meta{}}
	for i, n := range names[:min(len(names), len(ins))] {
		out.inputs[n] = ins[i].Meta
	}
	return out
}

// globals are the names that every expression may use: the batch size, of a pipeline that of
// a microbatch, and whether the models are in training mode.
func (el *elaborator) globals() map[string]any {
	return map[string]any{"B": el.batch / el.parts, "training": el.training()}
}

// training reports whether the models are in training mode.
func (el *elaborator) training() bool {
	return el.job.Inference == "" && !el.evalMode && (el.inEval == nil || el.inEval.Train)
}

// Meter is that of the spec's params, where the chain of scopes ends.
func (s *scope) Meter() *limit.Meter {
	for s.parent != nil {
		outer, ok := s.parent.(*scope)
		if !ok {
			return s.parent.Meter()
		}
		s = outer
	}
	return nil
}

func (s *scope) with(vars map[string]any) *scope { return &scope{parent: s, vars: vars} }

// eval computes a value; a mistake is reported at its place.
func (el *elaborator) eval(v *spec.Value, env spec.Env) any {
	return el.errs.Eval(v, env)
}

func (el *elaborator) evalInt(v *spec.Value, env spec.Env, what string) int64 {
	x := el.eval(v, env)
	n, ok := x.(int64)
	if !ok {
		el.fail(v.Span, "%s must be an integer, not %s", what, spec.Show(x))
	}
	return n
}

// evalNumber evaluates a number.
func (el *elaborator) evalNumber(v *spec.Value, env spec.Env, what string) float64 {
	switch n := el.eval(v, env).(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	el.fail(v.Span, "%s must be a number, not %s", what, v.Describe())
	return 0
}

func (el *elaborator) evalBool(v *spec.Value, env spec.Env, what string) bool {
	x := el.eval(v, env)
	b, ok := x.(bool)
	if !ok {
		el.fail(v.Span, "%s must be true or false, not %s", what, spec.Show(x))
	}
	return b
}

func (el *elaborator) evalStr(v *spec.Value, env spec.Env, what string) string {
	x := el.eval(v, env)
	s, ok := x.(string)
	if !ok {
		el.fail(v.Span, "%s must be a string, not %s", what, spec.Show(x))
	}
	return s
}

// shape evaluates a list of sizes.
func (el *elaborator) shape(v *spec.Value, env spec.Env) []int64 {
	if v == nil {
		return nil
	}
	x := el.eval(v, env)
	list, ok := x.([]any)
	if n, isInt := x.(int64); isInt {
		list, ok = []any{n}, true
	}
	if !ok {
		el.fail(v.Span, "shape must be a list of integers, not %s", spec.Show(x))
	}
	if len(list) >= tensor.MaxRank {
		el.fail(v.Span, "shape has %d dimensions; at most %d are handled", len(list), tensor.MaxRank-1)
	}
	out := make([]int64, len(list))
	for i, e := range list {
		n, ok := e.(int64)
		if !ok || n < 0 {
			at := v.Span
			if len(v.Items) == len(list) {
				at = v.Items[i].Span
			}
			el.fail(at, "shape must be a list of integers that are not negative; %s is none", spec.Show(e))
		}
		out[i] = n
	}
	return out
}
