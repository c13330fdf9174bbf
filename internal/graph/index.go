package graph

import (
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// subscript is x[...] of a tensor x, whose indices are those of getitem.
func (f *fn) subscript(s string, at spec.Span, sc *scope) (value.Value, bool) {
	name, index, ok := strings.Cut(s, "[")
	index, closed := strings.CutSuffix(index, "]")
	if !ok || !closed || !balanced(index) {
		return value.Value{}, false
	}
	x, ok := value.Value{}, false
	if slot, known := f.slots[name]; known {
		x, ok = f.local(name), f.bound[slot] && f.metas[slot].Tensor != nil
		if ok {
			f.name(slot, at)
			f.reads(slot, at)
		}
	} else {
		x, ok = f.u.attribute(strings.TrimPrefix(name, "self."))
	}
	if !ok {
		return value.Value{}, false
	}
	return f.apply("getitem", at, sc, &spec.Value{Span: at, Kind: spec.Str, Str: f.indices(index, at, sc)}, x), true
}

// balanced reports whether every bracket of a text closes in it.
func balanced(s string) bool {
	depth := 0
	for _, c := range s {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0
}

// indices is the text of the indices of a tensor, with numbers in place of the
// expressions in it.
func (f *fn) indices(s string, at spec.Span, sc *scope) string {
	var out strings.Builder
	depth, from := 0, 0
	put := func(to int) {
		part := s[from:to]
		word := strings.TrimSpace(part)
		if _, err := strconv.ParseInt(word, 10, 64); err != nil && word != "" && word != "None" && word != "..." {
			part = strings.Replace(part, word, spec.Show(f.index(f.u.el.errs.ParseTree(word, at), sc)), 1)
		}
		out.WriteString(part)
	}
	for i, c := range s {
		switch {
		case c == '[' || c == '(':
			depth++
		case c == ']' || c == ')':
			depth--
		case depth == 0 && (c == ',' || c == ':'):
			put(i)
			out.WriteRune(c)
			from = i + 1
		}
	}
	put(len(s))
	return out.String()
}

// index is the number of an index or a bound of a slice.
func (f *fn) index(t *spec.Tree, sc *scope) int64 {
	el := f.u.el
	if !f.ofNumbers(t, sc) {
		f.expression(t, sc) // a name that is not known is a mistake of its own
		el.fail(t.At, "an index is a number that is known before the program runs; {index: [x, i]} takes a tensor of indices")
	}
	k, ok := el.errs.EvalTree(t, sc).(int64)
	if !ok {
		el.fail(t.At, "an index must be an integer")
	}
	return k
}

func (f *fn) indexTree(t *spec.Tree, sc *scope) value.Value {
	v := f.expression(t.Args[0], sc)
	k := f.index(t.Args[1], sc)
	if v.Meta.Tensor != nil {
		return f.apply("getitem", t.At, sc, &spec.Value{Span: t.At, Kind: spec.Str, Str: spec.Show(k)}, v)
	}
	return f.item(v, k, t.At)
}

func (f *fn) slice(t *spec.Tree, sc *scope) value.Value {
	el := f.u.el
	v := f.expression(t.Args[0], sc)
	if v.Meta.Tensor != nil {
		_, text := el.errs.Sliced(t, 0, sc)
		return f.apply("getitem", t.At, sc, &spec.Value{Span: t.At, Kind: spec.Str, Str: text}, v)
	}
	if v.Meta.Tuple == nil {
		el.fail(t.At, "%s cannot be sliced", v.Describe())
	}
	items, text := el.errs.Sliced(t, v.Meta.Count(), sc)
	return f.taken(v, &program.Expr{Kind: program.Slice, Path: text, Items: items}, t.At)
}
