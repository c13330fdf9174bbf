package graph

import (
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// styleOf is the style in which parallelize_module spreads the module at a path;
// nil: it does not.
func (el *elaborator) styleOf(path string) *program.Style {
	for _, x := range el.plan {
		if program.CheckPattern(x.Pattern.V) == nil && (program.Patterns{x.Pattern.V}).Fits(path) {
			return style(x)
		}
	}
	return nil
}

func style(x spec.Planned) *program.Style {
	at := func(l *spec.Layout) *program.Placement {
		if l == nil {
			return nil
		}
		return &program.Placement{Shard: l.Shard, Dim: l.Dim}
	}
	return &program.Style{Name: x.Style, Input: at(x.Input), Output: at(x.Output)}
}

// divided is how a layer's parameters are divided, and what its inputs are to
// itself: hooks change their placements before.
func (el *elaborator) divided(s *program.Style, l *module.Layer, ins []value.Value, at spec.Span) (module.Sharding, []value.Value) {
	table := l.Is.Table
	switch {
	case s.Name == program.Sequence && !l.Is.Apart:
		el.fail(at, "sequence is modelled of LayerNorm, not of %s", l.Name())
	case s.Name != program.Sequence && !l.Is.Linear && !table:
		el.fail(at, "%s is for Linear and Embedding, PyTorch says, not for %s", s.Name, l.Name())
	}
	return module.Sharding{Ranks: el.gpus.TP.V, Table: table, Style: *s}, el.placed(ins, s.Arrives(), s.Computes(table), at)
}

// returned is what comes out of a layer whose result has the placement that its
// style gives it.
func (el *elaborator) returned(s *program.Style, rets []value.Value, at spec.Span) []value.Value {
	from, _ := s.Gives()
	return el.placed(rets, from, s.Returns(), at)
}

// placed are values whose placements change.
func (el *elaborator) placed(vs []value.Value, from, to program.Placement, at spec.Span) []value.Value {
	out := make([]value.Value, len(vs))
	for i, v := range vs {
		out[i] = v
		t := v.Meta.Tensor
		if t == nil {
			continue
		}
		a, b := from.Of(t.Rank()), to.Of(t.Rank())
		for _, p := range []program.Placement{a, b} {
			if p.Shard && (p.Dim < 0 || p.Dim >= t.Rank()) {
				el.fail(at, "%s of a tensor of shape %v, which has no such dimension", p.Python(), t.Size)
			}
		}
		switch {
		case a == b:
			continue
		case a.Shard && b.Shard:
			el.fail(at, "a tensor that is divided in dimension %d and is to be divided in dimension %d is not modelled", a.Dim, b.Dim)
		case b.Shard && t.Dim(b.Dim)%el.gpus.TP.V != 0:
			el.fail(at, "dimension %d of a tensor of shape %v is not divided by %d ranks without a rest; that is not modelled", b.Dim, t.Size, el.gpus.TP.V)
		}
		size := program.Redistributed(t.Size, a, b, el.gpus.TP.V)
		out[i].Meta = value.Tensor(&op.Tensor{Layout: el.shapes.E.Laid(size), DType: t.DType})
	}
	return out
}
