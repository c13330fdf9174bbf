package graph

import (
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// stepValues are the statements of a step that have a value, which may stand in a
// function.
var stepValues = []string{spec.HeadForward, spec.HeadGrad, spec.HeadConvert}

// convertOutputs evaluates accelerate's convert_outputs_to_fp32: of the result of a
// model, a tensor or a tuple, tensors of 16 bits become float32. Lists and tuples in it
// stay as they are.
func (f *fn) convertOutputs(e *spec.Entry, sc *scope) value.Value {
	el := f.u.el
	if e.Arg == nil {
		el.fail(e.Head.At, "%s needs the result of a model, such as {%s: out, name: out}", e.Head.V, e.Head.V)
	}
	v := f.reference(el.evalStr(e.Arg, sc, e.Head.V), e.Arg.Span)
	convert := func(v value.Value) value.Value {
		if t := v.Meta.Tensor; t == nil || !t.DType.IsHalf() {
			return v
		}
		return f.apply("float", e.Arg.Span, sc, nil, v)
	}
	if v.Meta.Tuple == nil || v.Meta.List != nil {
		return convert(v)
	}
	x := &program.Expr{Kind: program.TupleLit}
	m := value.Meta{}
	for i := range v.Meta.Tuple {
		it := convert(f.item(v, int64(i), e.Arg.Span))
		x.Args, m.Tuple = append(x.Args, it.Expr), append(m.Tuple, it.Meta)
	}
	return value.Value{Expr: x, Meta: m}
}
