package spec

import (
	"fmt"
	"slices"
	"strconv"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Bool
	Int
	Float
	Str
	List
	Map
)

var kindNames = [...]string{"null", "a boolean", "an integer", "a number", "a string", "a list", "a mapping"}

// Value is a node of the YAML tree.
type Value struct {
	Span
	Kind  Kind
	Bool  bool
	Int   int64
	Float float64
	Str   string // the text of any scalar
	Items []*Value
	Pairs []Pair // in the order of the file

	expr *template // of a scalar with ${...}
}

// Pair is one key of a mapping.
type Pair struct {
	Key   *Value // a string
	Value *Value
}

// Get returns the value of a key, or nil.
func (v *Value) Get(key string) *Value {
	if v == nil {
		return nil
	}
	for _, p := range v.Pairs {
		if p.Key.Str == key {
			return p.Value
		}
	}
	return nil
}

// IsExpr reports whether the scalar holds a ${...} expression.
func (v *Value) IsExpr() bool { return v.expr != nil }

// absent reports a null that was written, which takes a key away; an empty value
// asks for the defaults.
func (v *Value) absent() bool { return v.Kind == Null && v.Str != "" }

// Describe names a value in messages.
func (v *Value) Describe() string {
	switch v.Kind {
	case Null:
		return "null"
	case List, Map:
		return kindNames[v.Kind]
	case Str:
		return strconv.Quote(shorten(v.Str))
	}
	return v.Str
}

// maxShown is how many characters of a value messages show.
const maxShown = 40

// shorten cuts a text for messages. It looks at no more than it shows.
func shorten(s string) string {
	n, cut := 0, 0
	for i := range s {
		if n == maxShown-3 {
			cut = i
		}
		if n++; n > maxShown {
			return s[:cut] + "..."
		}
	}
	return s
}

// clone copies a tree.
func (v *Value) clone() *Value {
	c := *v
	if v.expr != nil {
		t := *v.expr
		c.expr = &t
	}
	c.Items, c.Pairs = slices.Clone(v.Items), slices.Clone(v.Pairs)
	for i, it := range c.Items {
		c.Items[i] = it.clone()
	}
	for i, p := range c.Pairs {
		c.Pairs[i] = Pair{p.Key.clone(), p.Value.clone()}
	}
	return &c
}

// upper copies so many levels of mappings of a tree, which share what is below.
func (v *Value) upper(levels int) *Value {
	c := *v
	if c.Pairs = slices.Clone(v.Pairs); levels > 1 {
		for i, p := range c.Pairs {
			c.Pairs[i].Value = p.Value.upper(levels - 1)
		}
	}
	return &c
}

// bad reports whether the value is unknown because of a mistake in its text,
// which was reported.
func (v *Value) bad() bool { return v.expr != nil && v.expr.bad }

// plain converts a value without expressions to int64, float64, bool, string,
// nil or []any.
func (v *Value) plain() (any, error) {
	switch v.Kind {
	case Null:
		return nil, nil
	case Bool:
		return v.Bool, nil
	case Int:
		return v.Int, nil
	case Float:
		return v.Float, nil
	case Str:
		return v.Str, nil
	case List:
		out := make([]any, len(v.Items))
		for i, it := range v.Items {
			x, err := it.plain()
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	}
	return nil, fmt.Errorf("a mapping is not a value; values are numbers, strings, true, false, null and lists")
}

// HasExpr reports whether the value or any part of it is an expression.
func (v *Value) HasExpr() bool {
	if v.expr != nil {
		return true
	}
	for _, it := range v.Items {
		if it.HasExpr() {
			return true
		}
	}
	for _, p := range v.Pairs {
		if p.Value.HasExpr() {
			return true
		}
	}
	return false
}
