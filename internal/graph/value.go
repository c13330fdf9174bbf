package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// meta is what is known of a value before it is computed: a tensor's shape, a
// tuple, or nothing (None).
type meta struct {
	t     *op.Tensor
	tuple []meta
	list  bool // a list, which grows
	none  bool // None itself
	grown *int // of a list: how much of the array under tuple is in use

	causal bool // a mask that is known to be causal
	lost   bool // unknown, because of a mistake that was reported
}

func tensorMeta(t *op.Tensor) meta { return meta{t: t} }

// appended is a list with one item more. Lists over the same array, such as this
// one before, do not change: where the array goes on behind a list already, the new
// one is a copy.
func (m meta) appended(x meta) meta {
	n := len(m.tuple)
	if m.grown == nil || *m.grown != n {
		m.tuple = slices.Clip(m.tuple)
	}
	if cap(m.tuple) == n { // another array
		m.grown = new(int)
	}
	m.tuple = append(m.tuple, x)
	*m.grown = n + 1
	return m
}

// key describes a meta for comparison: shapes, strides and types.
func (m meta) key() string {
	switch {
	case m.t != nil:
		key := fmt.Sprintf("%v%v%v", m.t.Size, m.t.Stride, m.t.DType) + op.Known(m.t)
		if m.causal {
			key += "causal"
		}
		return key
	case m.tuple != nil:
		parts := make([]string, len(m.tuple))
		for i, x := range m.tuple {
			parts[i] = x.key()
		}
		return "(" + strings.Join(parts, ",") + ")"
	}
	return "None"
}

// describe names a value in messages.
func (m meta) describe() string {
	switch {
	case m.t != nil:
		return fmt.Sprintf("a tensor of shape %v", m.t.Size)
	case m.list:
		return fmt.Sprintf("a list of %d", len(m.tuple))
	case m.tuple != nil:
		return fmt.Sprintf("a tuple of %d", len(m.tuple))
	}
	return "None"
}

// Attr implements spec.Object: expressions see a tensor's shape and type.
func (m meta) Attr(name string) (any, bool) {
	if m.t == nil {
		return nil, false
	}
	switch name {
	case "shape":
		dims := make([]any, m.t.Rank())
		for i, d := range m.t.Size.Slice() {
			dims[i] = d
		}
		return dims, true
	case "dtype":
		return m.t.DType.String(), true
	case "ndim":
		return int64(m.t.Rank()), true
	}
	return nil, false
}

// TypeName is how messages about expressions name a value, which may be a tuple.
func (m meta) TypeName() string {
	if m.t != nil {
		return "a tensor"
	}
	return m.describe()
}

// AttrNames implements spec.Object.
func (m meta) AttrNames() []string {
	if m.t == nil {
		return nil
	}
	return []string{"dtype", "ndim", "shape"}
}

// val is an expression with what is known of its value.
type val struct {
	e *program.Expr
	m meta
}

// describe names a value in messages.
func (v val) describe() string {
	if v.e != nil && v.e.Kind == program.Const && v.e.Value != nil {
		return "the number " + spec.Show(v.e.Value)
	}
	return v.m.describe()
}

func (v val) isNone() bool { return v.e == nil }

// same reports whether two expressions are the same local variable, as
// Python's "is" finds for two loads of one name.
func (v val) same(w val) bool {
	return v.e == w.e || (v.e != nil && w.e != nil && v.e.Kind == program.Local && w.e.Kind == program.Local && v.e.Slot == w.e.Slot)
}
