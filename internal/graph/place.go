package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
)

// place gives the entry's argument, tensors and others, to the parameters: a mapping
// by name, all else by position.
func (t *tensorArgs) place(a *argReader) {
	switch v := t.e.Arg; {
	case v == nil:
	case v.Kind == spec.Map && !isInline(v, t.sig):
		t.byName(a, v)
	default:
		t.byPosition(a, v)
	}
}

// byName places arguments that are given by their names.
func (t *tensorArgs) byName(a *argReader, v *spec.Value) {
	for _, p := range v.Pairs {
		param := t.sig.Find(p.Key.Str)
		switch {
		case param == nil:
			t.f.u.el.errs.Unknown(p.Key.Span, "argument of "+t.e.Head.V, p.Key.Str, a.names())
			panic(spec.Stop{})
		case param.IsTensor():
			t.assign(param, p.Value)
		default:
			a.set(param, p.Value)
		}
	}
}

// isInline reports whether the argument of an operator is an inline entry rather than
// arguments by name.
func isInline(v *spec.Value, sig *op.Sig) bool {
	call := false
	for _, p := range v.Pairs {
		if sig.Find(p.Key.Str) != nil {
			return false
		}
		call = call || isCall(p.Key.Str)
	}
	return call
}

// isCall reports whether entries with this head are calls.
func isCall(head string) bool {
	return head == spec.HeadForward || head == spec.HeadCall || head == spec.HeadBlock || head == spec.HeadSeq || layers.Lookup(head) != nil || aten.Lookup(head) != nil
}

// fit says how well a value suits a parameter.
type fit uint8

const (
	misfit fit = iota
	maybe      // a name that no value has
	sure
)

// reading is one way to understand arguments that are given by position.
type reading struct {
	args    []argument
	fit     fit
	lacking bool // what is required
	over    bool // there are more values than parameters
}

// byPosition gives positional arguments their parameters, in torch's order. They are
// all of a call's where they can be, softmax: [h, 1], and else what follows inputs: or
// the previous value, softmax: 1.
func (t *tensorArgs) byPosition(a *argReader, v *spec.Value) {
	var params []*op.Param
	for i := range t.sig.Params {
		if p := &t.sig.Params[i]; !p.KwOnly {
			params = append(params, p)
		}
	}
	var all, behind reading
	if len(params) == 0 {
		t.refuse(a, params, v, all, behind)
	}
	if !t.e.HasIn {
		all = t.read(a, params, v)
	}
	if all.fit < sure || all.lacking {
		behind = t.read(a, t.open(params, v), v)
	}
	switch {
	case v.Kind == spec.List && len(v.Items) == 0 && params[0].Kind == op.KTensors:
		t.assign(params[0], v)
	case all.fit == sure && !all.lacking:
		t.take(a, all)
	case behind.fit > misfit:
		t.take(a, behind)
	case !t.e.HasIn && params[0].Kind == op.KTensors && t.areTensors(v): // cat: [a, b]
		t.assign(params[0], v)
	case all.fit > misfit:
		t.take(a, all)
	default:
		t.refuse(a, params, v, all, behind)
	}
}

// open are the parameters for v that inputs: or the previous value leaves open. A
// scalar may be for one that a list cannot reach: gelu: tanh.
func (t *tensorArgs) open(params []*op.Param, v *spec.Value) []*op.Param {
	n := 1
	if t.e.HasIn {
		n = len(t.places)
	}
	var out []*op.Param
	for _, p := range params {
		switch {
		case len(t.vals[p.Name]) > 0: // by name
		case n > 0 && p.Kind == op.KTensors:
			n = 0
		case n > 0 && p.IsTensor():
			n--
		default:
			out = append(out, p)
		}
	}
	if len(out) > 0 || v.Kind == spec.List {
		return out
	}
	for i := range t.sig.Params {
		if p := &t.sig.Params[i]; p.KwOnly && !p.IsTensor() {
			return []*op.Param{p}
		}
	}
	return nil
}

// read gives values to parameters in their order.
func (t *tensorArgs) read(a *argReader, params []*op.Param, v *spec.Value) reading {
	items := []*spec.Value{v}
	if v.Kind == spec.List {
		items = v.Items
	}
	r := reading{fit: sure}
	for i, p := range params {
		rest := items[min(i, len(items)):]
		switch {
		case i == 0 && a.isWhole(v, params):
			r.args, items = []argument{{p, v}}, nil
		case len(rest) == 0:
			r.lacking = r.lacking || p.Required
			continue
		case len(rest) > 1 && (p.Star || p.Kind == op.KInts && t.isOnly(p)):
			list := *v
			list.Items = rest
			r.args, items = append(r.args, argument{p, &list}), nil
		default:
			r.args = append(r.args, argument{p, rest[0]})
		}
		x := &r.args[len(r.args)-1]
		r.fit = min(r.fit, t.fits(a, x.param, x.value))
	}
	if len(items) > len(params) {
		r.fit, r.over = misfit, true
	}
	return r
}

// isOnly reports whether p is the only parameter that is no tensor, so that integers
// need no list: x.flip(0, 1).
func (t *tensorArgs) isOnly(p *op.Param) bool {
	for i := range t.sig.Params {
		if q := &t.sig.Params[i]; q.Name != p.Name && !q.IsTensor() && !q.KwOnly {
			return false
		}
	}
	return true
}

// fits says how well a value suits a parameter.
func (t *tensorArgs) fits(a *argReader, p *op.Param, v *spec.Value) fit {
	list := v.Kind == spec.List
	switch {
	case p.Kind == op.KTensors && list, p.IsTensor() && v.Kind == spec.Map, p.Optional && v.Kind == spec.Null:
		return sure
	case p.IsTensor() && list, v.Kind == spec.Map, list && slices.ContainsFunc(v.Items, func(it *spec.Value) bool { return it.Kind == spec.Map }):
		return misfit
	}
	x := a.value(v)
	if !p.IsTensor() {
		if _, err := p.Check(x); err != nil {
			return misfit
		}
		return sure
	}
	switch x := x.(type) {
	case string:
		return t.names(p, x)
	case int64, float64, bool:
		if p.Kind != op.KOperand && !t.reflects(p) {
			return misfit
		}
	case nil, []any:
		return misfit
	}
	return sure
}

// names says how well the name of a value, or an expression of values, suits a tensor
// parameter.
func (t *tensorArgs) names(p *op.Param, name string) fit {
	switch slot, ok := t.f.slots[name]; {
	case strings.HasPrefix(name, "*"): // the items of a list
		if p.Kind == op.KTensors && !p.Star {
			return misfit
		}
		return sure
	case spec.IsTree(name):
		return sure
	case !t.f.isValue(name):
		return maybe
	case p.Kind != op.KTensors || p.Star || ok && (t.f.metas[slot].Lost || t.f.metas[slot].Tuple != nil) || strings.HasSuffix(name, "]"):
		return sure
	}
	return misfit
}

// areTensors reports whether a list can be one of tensors.
func (t *tensorArgs) areTensors(v *spec.Value) bool {
	return v.Kind == spec.List && !slices.ContainsFunc(v.Items, func(it *spec.Value) bool { return !t.isOperand(it) })
}

// isOperand reports whether a value of the spec stands for a tensor: a name, or an
// inline entry.
func (t *tensorArgs) isOperand(v *spec.Value) bool {
	switch {
	case v.Kind == spec.Map:
		return true
	case v.Kind == spec.List:
		return false
	}
	switch t.f.u.el.eval(v, t.sc).(type) {
	case string, value.Meta:
		return true
	}
	return false
}

// take gives the parameters their values.
func (t *tensorArgs) take(a *argReader, r reading) {
	for _, x := range r.args {
		if x.param.IsTensor() {
			t.assign(x.param, x.value)
		} else {
			a.set(x.param, x.value)
		}
	}
}

// refuse says what is wrong with arguments by position that suit no parameters.
func (t *tensorArgs) refuse(a *argReader, params []*op.Param, v *spec.Value, all, behind reading) {
	el, name := t.f.u.el, t.e.Head.V
	items := []*spec.Value{v}
	if v.Kind == spec.List {
		items = v.Items
	}
	first := 0 // that is no tensor
	for first < len(items) && t.isOperand(items[first]) {
		first++
	}
	open, r := t.open(params, v), behind
	if !t.e.HasIn && (first > 0 || behind.over && !all.over) {
		open, r = params, all
	}
	switch {
	case len(params) == 0:
		el.fail(v.Span, "%s takes its arguments by name: %s", name, strings.Join(a.names(), ", "))
	case len(open) == 0:
		el.fail(v.Span, "%s takes tensors only, no other arguments", name)
	case params[0].Kind == op.KTensors && first > 0 && !t.e.HasIn:
		list := *v
		list.Kind, list.Items = spec.List, items[:first]
		rest := []string{list.Flow()}
		for _, it := range items[first:] {
			rest = append(rest, it.Flow())
		}
		el.fail(v.Span, "%s takes a list of tensors first; write {%s: [%s]}", name, name, strings.Join(rest, ", "))
	case first == 0 && behind.over && t.suit(a, items):
		el.fail(v.Span, "%s takes at most %d of these arguments by position; write {%s: %s}", name, len(t.open(params, v)), name, named(t.attributes(), items))
	case r.over:
		el.fail(v.Span, "%s takes at most %s by position (%s), not %d", name, spec.Plural(len(open), "argument"), paramNames(open), len(items))
	}
	for _, x := range r.args {
		p, it := x.param, x.value
		if t.fits(a, p, it) > misfit {
			continue
		}
		switch {
		case !p.IsTensor() && it.Kind == spec.Map:
			el.fail(it.Span, "%s: %s is not a tensor; an entry, which gives one, cannot stand there", name, p.Name)
		case !p.IsTensor():
			a.set(p, it)
		case it.Kind == spec.List:
			el.fail(it.Span, "argument %s of %s is one tensor, not a list", p.Name, name)
		case t.isNumber(it):
			el.fail(it.Span, "argument %s of %s is a tensor, not a number", p.Name, name)
		}
		el.fail(it.Span, "argument %s of %s is a tensor, not %s", p.Name, name, it.Describe())
	}
	el.fail(v.Span, "%s takes %s", name, paramNames(open))
}

// attributes are the parameters that are no tensors.
func (t *tensorArgs) attributes() []*op.Param {
	var out []*op.Param
	for i := range t.sig.Params {
		if p := &t.sig.Params[i]; !p.IsTensor() {
			out = append(out, p)
		}
	}
	return out
}

// suit reports whether values suit the parameters that are no tensors, by keyword alone
// among them.
func (t *tensorArgs) suit(a *argReader, items []*spec.Value) bool {
	params := t.attributes()
	for i, it := range items {
		if i >= len(params) || t.fits(a, params[i], it) == misfit {
			return false
		}
	}
	return true
}

// isNumber reports whether a value of the spec is a number, or an expression for one.
func (t *tensorArgs) isNumber(v *spec.Value) bool {
	switch t.f.u.el.eval(v, t.sc).(type) {
	case int64, float64:
		return true
	}
	return false
}

// paramNames lists the names of parameters.
func paramNames(params []*op.Param) string {
	var out []string
	for _, p := range params {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}
