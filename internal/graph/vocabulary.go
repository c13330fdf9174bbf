package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/spec"
)

// Vocabulary lists what specs may call, from the tables of layers, operators
// and optimizers.
func Vocabulary() spec.Vocabulary {
	var v spec.Vocabulary
	for _, n := range layers.Names() {
		l := layers.Lookup(n)
		c := callable(n, slices.Concat(l.Sigs()[0].Params, l.Sigs()[1].Params))
		for _, in := range l.InputNames() {
			c.Args = append(c.Args, spec.Argument{Name: strings.TrimSuffix(in, "?")})
		}
		v.Heads = append(v.Heads, c)
	}
	for _, n := range aten.Names() {
		if layers.Lookup(n) == nil {
			v.Heads = append(v.Heads, callable(n, aten.Lookup(n).Sig.Params))
		}
	}
	for _, n := range optim.Names() {
		v.Optimizers = append(v.Optimizers, callable(n, optim.Lookup(n).Signature().Params))
	}
	return v
}

// argForms maps the kinds of parameters to what YAML may hold for them.
var argForms = map[op.ParamKind]spec.Form{
	op.KTensor: spec.AnyForm, op.KTensors: spec.AnyForm, op.KOperand: spec.AnyForm, op.KInt: spec.IntForm, op.KInts: spec.IntsForm, op.KSizes: spec.IntsForm,
	op.KPair: spec.IntsForm, op.KFloat: spec.NumberForm, op.KFloats: spec.NumbersForm, op.KNumber: spec.NumberForm, op.KBool: spec.BoolForm, op.KStr: spec.StringForm,
	op.KDType: spec.StringForm, op.KFormat: spec.StringForm,
}

func callable(name string, params []op.Param) spec.Callable {
	c := spec.Callable{Name: name}
	for i := range params {
		p := &params[i]
		a := spec.Argument{Name: p.Name, Form: argForms[p.Kind], Choices: p.Choices, Null: p.Optional, Default: p.Default}
		if p.Star || len(p.Choices) > 0 && p.Kind != op.KStr && p.Kind != op.KFormat {
			a.Form = spec.AnyForm
		}
		c.Args = append(c.Args, a)
	}
	return c
}
