package graph

import (
	"github.com/memplan/memplan/internal/aten"
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
	s := &program.Style{Name: x.Style, Input: at(x.Input), Output: at(x.Output), Local: x.Local}
	for i := range min(len(x.Layouts), len(x.Desired)) {
		s.Prepared = append(s.Prepared, program.Prepared{As: at(x.Layouts[i]), Desired: at(x.Desired[i])})
	}
	return s
}

// divided is how a layer's parameters are divided, and what its inputs are to
// itself: hooks change their placements before.
func (el *elaborator) divided(s *program.Style, l *module.Layer, ins []value.Value, at spec.Span) (module.Sharding, []value.Value) {
	table := l.Is.Table
	switch {
	case s.Prepares():
		el.fail(at, "%s is modelled of blocks and Sequential, not of %s", s.Name, l.Name())
	case s.Name == program.Sequence && !l.Is.Apart:
		el.fail(at, "sequence is modelled of LayerNorm and RMSNorm, not of %s", l.Name())
	case s.Name != program.Sequence && !l.Is.Linear && !table:
		el.fail(at, "%s is for Linear and Embedding, PyTorch says, not for %s", s.Name, l.Name())
	}
	out := make([]value.Value, len(ins))
	for i, v := range ins {
		out[i] = el.arrived(s, v, table, at)
	}
	return module.Sharding{Ranks: el.gpus.TP.V, Table: table, Style: *s}, out
}

// arrived is what an input is to the module that a style divides.
func (el *elaborator) arrived(s *program.Style, v value.Value, table bool, at spec.Span) value.Value {
	t, d := v.Meta.Tensor, v.Meta.Spread
	if t == nil {
		return v
	}
	from, to := s.Arrives(), s.Computes(table)
	if d != nil {
		changed := s.Redistributes(from, to, d.Placement, t.Rank())
		if !changed && d.Placement != to.Of(t.Rank()) {
			el.fail(at, "what comes in is a DTensor that lies as %s, but %s expects %s; say in its input_layouts how it lies", d.Python(), s.Name, to.Of(t.Rank()).Python())
		}
		from = d.Placement
		el.reads(d, s.Name == program.Colwise && !changed, at)
	}
	v = el.placed(v, from, to, at)
	v.Meta.Spread = nil
	return v
}

// reads notes which gradients a DTensor gets of a module that reads it.
func (el *elaborator) reads(d *value.Spread, summand bool, at spec.Span) {
	if d.Shard {
		return
	}
	if summand {
		d.Summand = true
	} else {
		d.Whole = true
	}
	if d.Summand && d.Whole {
		el.fail(at, "a DTensor that modules with colwise and others read is not modelled: its gradients lie differently")
	}
}

// returned is what comes out of a layer whose result has the placement that its
// style gives it.
func (el *elaborator) returned(s *program.Style, rets []value.Value, at spec.Span) []value.Value {
	from, _ := s.Gives()
	out := make([]value.Value, len(rets))
	for i, v := range rets {
		out[i] = el.placed(v, from, s.Returns(), at)
		if t := v.Meta.Tensor; t != nil && !s.Local {
			out[i].Meta.Spread = &value.Spread{Placement: s.Returns().Of(t.Rank()), Ranks: el.gpus.TP.V}
		}
	}
	return out
}

// prepareInputs are the inputs of the module at el.path as its forward has them, if the
// plan prepares them.
func (el *elaborator) prepareInputs(ins []value.Value, at spec.Span) []value.Value {
	if s := el.styleOf(el.path); s != nil && s.Name == program.PrepareInput {
		return el.prepared(s, ins, "inputs", at)
	}
	return ins
}

// prepareResults are the results of that module as its caller has them.
func (el *elaborator) prepareResults(c *program.Class, rets []value.Value, at spec.Span) []value.Value {
	s := el.styleOf(el.path)
	if s == nil || !s.Prepares() {
		return rets
	}
	c.Style = s
	if s.Name == program.PrepareOutput {
		return el.prepared(s, rets, "results", at)
	}
	return rets
}

// prepared are values as prepare_input and prepare_output leave them.
func (el *elaborator) prepared(s *program.Style, vs []value.Value, what string, at spec.Span) []value.Value {
	if len(vs) != len(s.Prepared) {
		el.fail(at, "%s at %s is for %d %s, but the module has %d", s.Name, el.path, len(s.Prepared), what, len(vs))
	}
	out := make([]value.Value, len(vs))
	for i, v := range vs {
		x := s.Prepared[i]
		if out[i] = v; x.As == nil {
			continue
		}
		t, d := v.Meta.Tensor, v.Meta.Spread
		if t == nil {
			el.fail(at, "%s at %s makes a DTensor of %s", s.Name, el.path, v.Describe())
		}
		from := x.As.Of(t.Rank())
		to := from
		if d != nil {
			from, to = d.Placement, d.Placement
			el.reads(d, false, at)
		}
		if x.Desired != nil && x.As.Of(t.Rank()) != x.Desired.Of(t.Rank()) {
			to = x.Desired.Of(t.Rank())
		}
		out[i] = el.placed(v, from, to, at)
		out[i].Meta.Spread = nil
		if !s.Local {
			out[i].Meta.Spread = &value.Spread{Placement: to, Ranks: el.gpus.TP.V}
		}
	}
	return out
}

// spreadOperand is how the first tensor of an operator lies, if that is a DTensor. In
// loss_parallel those operators are modelled that lead to cross_entropy.
func (el *elaborator) spreadOperand(t *tensorArgs, row *op.Op, args any, head spec.String) *value.Spread {
	var d *value.Spread
	for i, p := range t.params() {
		for _, v := range t.vals[p.Name] {
			if i == 0 && v.Meta.Spread != nil && el.gpus.Loss.V {
				d = v.Meta.Spread
				continue
			}
			el.plain(v, head)
		}
	}
	if d == nil {
		return nil
	}
	el.reads(d, false, head.At)
	x := t.first().Meta.Tensor
	switch a := args.(type) {
	case *aten.LossArgs:
		if row == aten.CrossEntropy && x.Rank() == 2 && d.Shard && d.Dim == 1 && a.LabelSmoothing == 0 && a.Reduction != "none" && len(t.vals["weight"]) == 0 {
			return d
		}
		el.fail(head.At, "%s in loss_parallel is modelled of a DTensor of two dimensions that lies as Shard(1), without weight and label_smoothing, and with a reduction", head.V)
	case *aten.ToArgs:
		return d
	case *aten.FlattenArgs:
		if last := x.Rank() - 1; !d.Shard || d.Dim == last && a.End != -1 && int(a.End) < last {
			return d
		}
		el.fail(head.At, "flatten of a DTensor that lies as %s is modelled of the dimensions before its last one, which is divided", d.Python())
	}
	if row == aten.Float || x.Rank() == 0 && (row == aten.Div || row == aten.Mul) && t.number() {
		return d
	}
	el.plain(t.first(), head)
	return nil
}

// number reports whether no other operand than the first is a tensor.
func (t *tensorArgs) number() bool {
	for _, p := range t.params()[1:] {
		for _, v := range t.vals[p.Name] {
			if v.Meta.Tensor != nil {
				return false
			}
		}
	}
	return true
}

// spreadResult is how the result of such an operator lies.
func (el *elaborator) spreadResult(d *value.Spread, t *op.Tensor, head spec.String) *value.Spread {
	out := *d
	switch {
	case t.Rank() == 0:
		out.Placement = program.Placement{}
	case !d.Shard:
	default:
		out.Dim = t.Rank() - 1
	}
	return &out
}

// plain refuses a DTensor where none is modelled.
func (el *elaborator) plain(v value.Value, head spec.String) {
	if d := v.Meta.Spread; d != nil {
		el.fail(head.At, "%s of a DTensor, which lies as %s, is not modelled: it may go into modules that the plan divides, through prepare_input and prepare_output, and with loss_parallel: true through flatten and float into cross_entropy", head.V, d.Python())
	}
}

// placed is a value whose placement changes.
func (el *elaborator) placed(v value.Value, from, to program.Placement, at spec.Span) value.Value {
	t := v.Meta.Tensor
	if t == nil {
		return v
	}
	a, b := from.Of(t.Rank()), to.Of(t.Rank())
	for _, p := range []program.Placement{a, b} {
		if p.Shard && (p.Dim < 0 || p.Dim >= t.Rank()) {
			el.fail(at, "%s of a tensor of shape %v, which has no such dimension", p.Python(), t.Size)
		}
	}
	switch {
	case a == b:
		return v
	case a.Shard && b.Shard:
		el.fail(at, "a tensor that is divided in dimension %d and is to be divided in dimension %d is not modelled", a.Dim, b.Dim)
	case b.Shard && t.Dim(b.Dim)%el.gpus.TP.V != 0:
		el.fail(at, "dimension %d of a tensor of shape %v is not divided by %d ranks without a rest; that is not modelled", b.Dim, t.Size, el.gpus.TP.V)
	}
	size := program.Redistributed(t.Size, a, b, el.gpus.TP.V)
	v.Meta = value.Tensor(&op.Tensor{Layout: el.shapes.E.Laid(size), DType: t.DType})
	return v
}
