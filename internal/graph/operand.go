package graph

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// operands evaluates several inputs, all of them before it stops at mistakes.
func (f *fn) operands(os []*spec.Operand, sc *scope) []value.Value {
	var out []value.Value
	for i, v := range f.listed(os, sc) {
		out = append(out, f.spreadStar(v, os[i].At)...)
	}
	return out
}

// listed evaluates the items of a literal list, which may have stars.
func (f *fn) listed(os []*spec.Operand, sc *scope) []value.Value {
	var out []value.Value
	failed := false
	for _, o := range os {
		failed = !f.u.el.attempt(func() { out = append(out, f.operand(o, sc)) }) || failed
	}
	if failed {
		panic(spec.Stop{})
	}
	return out
}

// operand evaluates one input.
func (f *fn) operand(o *spec.Operand, sc *scope) value.Value {
	el := f.u.el
	if v, ok := f.ready[o]; ok {
		return v
	}
	switch {
	case o.Nested != nil:
		var out value.Value
		n := 0
		f.u.expand(o.Nested, sc, func(sc *scope, i int) {
			n++
			if n > 1 {
				el.fail(o.At, "an inline entry stands for one call")
			}
			if o.Nested.Head.V == "" || o.Nested.Head.V == spec.HeadLayers {
				el.fail(o.At, "an inline entry is a call")
			}
			out = f.call(o.Nested, sc, i)
			if o.Nested.Pick != nil {
				out = el.picked(o.Nested.Pick, sc, out)
			}
		})
		if n == 0 {
			el.fail(o.At, "the condition of this inline entry is false, so that it has no value")
		}
		return out
	case o.List != nil:
		return f.literal(program.ListLit, f.listed(o.List, sc), o.At)
	}
	x := el.eval(o.Value, sc)
	switch x := x.(type) {
	case nil:
		return value.None()
	case int64, float64, bool:
		return value.Number(x)
	case string:
		return f.text(x, o.At, sc)
	case value.Meta: // ${x} for x
		el.fail(o.At, "name the value itself, without ${}")
	}
	el.fail(o.At, "an input is the name of a value, a number or an inline entry")
	return value.Value{}
}

// isValue reports whether the text of an input names a value.
func (f *fn) isValue(s string) bool {
	stem, _, _ := strings.Cut(strings.TrimSuffix(s, ".pop"), "[")
	if slot, ok := f.slots[stem]; ok && f.bound[slot] {
		return true
	}
	_, ok := f.u.attribute(strings.TrimPrefix(s, "self."))
	return ok
}

// reference resolves the text of an input: a local value, an item or pop of a
// list, or a parameter or buffer.
func (f *fn) reference(s string, at spec.Span) value.Value {
	el := f.u.el
	stem, _, _ := strings.Cut(strings.TrimSuffix(s, ".pop"), "[")
	if slot, ok := f.slots[stem]; ok && f.metas[slot].Lost {
		panic(spec.Stop{})
	}
	if slot, ok := f.slots[stem]; ok && f.bound[slot] {
		f.name(slot, at)
	}
	if slot, ok := f.slots[s]; ok && f.bound[slot] {
		f.reads(slot, at)
		return f.local(s)
	}
	if name, ok := strings.CutSuffix(s, ".pop"); ok {
		if slot, ok := f.slots[name]; ok && f.bound[slot] {
			m := f.metas[slot]
			if m.List == nil || len(m.List.Items) == 0 {
				el.fail(at, "pop needs a list with an item, not %s", m.Describe())
			}
			f.changesList(slot, at)
			return value.Value{Expr: &program.Expr{Kind: program.Pop, Slot: slot}, Meta: m.List.Pop()}
		}
	}
	if name, rest, ok := strings.Cut(s, "["); ok && strings.HasSuffix(rest, "]") {
		if slot, ok := f.slots[name]; ok && f.bound[slot] {
			f.reads(slot, at)
			return f.indexed(slot, rest, at)
		}
	}
	if v, ok := f.u.attribute(strings.TrimPrefix(s, "self.")); ok {
		return v
	}
	if f.astray || f.u.lost && strings.Contains(s, ".") { // perhaps of a module that is not made
		panic(spec.Stop{})
	}
	known := append(f.boundNames(), f.u.ownNames()...)
	if el.findModel(f.u.what) != nil { // an input that forward takes if it is named
		for _, in := range el.job.Inputs {
			if !slices.Contains(known, in.Name) {
				known = append(known, in.Name)
			}
		}
	}
	el.errs.Unknown(at, "value", s, known)
	panic(spec.Stop{})
}

// indexed is an item of a list, a tuple or a tensor, or with several indices, an item
// of that: rest is "1]" or "1][0]".
func (f *fn) indexed(slot int, rest string, at spec.Span) value.Value {
	v := f.local(f.f.Slots[slot])
	for _, index := range strings.Split(strings.TrimSuffix(rest, "]"), "][") {
		if v.Meta.Tensor != nil {
			v = f.apply("getitem", at, f.scope, &spec.Value{Span: at, Kind: spec.Str, Str: index}, v)
			continue
		}
		k, err := strconv.Atoi(index)
		if err != nil {
			f.u.el.fail(at, "index [%s] does not apply to %s", index, v.Meta.Describe())
		}
		v = f.item(v, int64(k), at)
	}
	return v
}

func (u *unit) ownNames() []string {
	var out []string
	for _, p := range u.class.Params {
		out = append(out, p.Name)
	}
	for _, p := range u.class.Buffers {
		out = append(out, p.Name)
	}
	return out
}

// attribute resolves the path of a parameter or buffer from this class.
func (u *unit) attribute(path string) (value.Value, bool) {
	if size, ok := u.shapes[path]; ok {
		t := &op.Tensor{Layout: u.el.shapes.E.Laid(tensor.D(size...)), DType: u.dtypes[path]}
		return value.Value{Expr: &program.Expr{Kind: program.Attr, Path: path}, Meta: value.Tensor(t)}, true
	}
	full := strings.Join(spec.PathParts(path), ".")
	if p := u.class.FindParam(full); p != nil {
		d := p.DType
		if u.class.IsParameter(full) {
			d = u.el.env().Computed(d)
		}
		t := &op.Tensor{Layout: u.el.shapes.E.Laid(tensor.D(p.Size...)), DType: d}
		return value.Value{Expr: &program.Expr{Kind: program.Attr, Path: full}, Meta: value.Tensor(t)}, true
	}
	return value.Value{}, false
}
