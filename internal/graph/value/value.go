package value

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Meta is what is known of a value before it is computed: a tensor's shape, a
// tuple, or nothing (None).
type Meta struct {
	Tensor *op.Tensor
	Tuple  []Meta
	List   bool // a list, which grows
	None   bool // None itself
	grown  *int // of a list: how much of the array under tuple is in use

	Causal bool // a mask that is known to be causal
	Lost   bool // unknown, because of a mistake that was reported
}

// Tensor is what is known of a tensor.
func Tensor(t *op.Tensor) Meta { return Meta{Tensor: t} }

// Appended is a list with one item more. Lists over the same array, such as this
// one before, do not change: where the array goes on behind a list already, the new
// one is a copy.
func (m Meta) Appended(x Meta) Meta {
	n := len(m.Tuple)
	if m.Copies() {
		m.Tuple = slices.Clip(m.Tuple)
	}
	if cap(m.Tuple) == n { // another array
		m.grown = new(int)
	}
	m.Tuple = append(m.Tuple, x)
	*m.grown = n + 1
	return m
}

// Copies reports whether a list with one item more is a copy.
func (m Meta) Copies() bool { return m.grown == nil || *m.grown != len(m.Tuple) }

// Key describes it for comparison: shapes, strides and types.
func (m Meta) Key() string {
	switch {
	case m.Tensor != nil:
		key := fmt.Sprintf("%v%v%v", m.Tensor.Size, m.Tensor.Stride, m.Tensor.DType) + op.Known(m.Tensor)
		if m.Causal {
			key += "causal"
		}
		return key
	case m.Tuple != nil:
		parts := make([]string, len(m.Tuple))
		for i, x := range m.Tuple {
			parts[i] = x.Key()
		}
		return "(" + strings.Join(parts, ",") + ")"
	}
	return "None"
}

// Describe names a value in messages.
func (m Meta) Describe() string {
	switch {
	case m.Tensor != nil:
		return fmt.Sprintf("a tensor of shape %v", m.Tensor.Size)
	case m.List:
		return fmt.Sprintf("a list of %d", len(m.Tuple))
	case m.Tuple != nil:
		return fmt.Sprintf("a tuple of %d", len(m.Tuple))
	}
	return "None"
}

// Attr implements spec.Object: expressions see a tensor's shape and type.
func (m Meta) Attr(name string) (any, bool) {
	if m.Tensor == nil {
		return nil, false
	}
	switch name {
	case "shape":
		dims := make([]any, m.Tensor.Rank())
		for i, d := range m.Tensor.Size.Slice() {
			dims[i] = d
		}
		return dims, true
	case "dtype":
		return m.Tensor.DType.String(), true
	case "ndim":
		return int64(m.Tensor.Rank()), true
	}
	return nil, false
}

// TypeName is how messages about expressions name a value, which may be a tuple.
func (m Meta) TypeName() string {
	if m.Tensor != nil {
		return "a tensor"
	}
	return m.Describe()
}

// AttrNames implements spec.Object.
func (m Meta) AttrNames() []string {
	if m.Tensor == nil {
		return nil
	}
	return []string{"dtype", "ndim", "shape"}
}

// Value is an expression with what is known of its value.
type Value struct {
	Expr *program.Expr
	Meta Meta
}

// Describe names a value in messages.
func (v Value) Describe() string {
	if v.Expr != nil && v.Expr.Kind == program.Const && v.Expr.Value != nil {
		return "the number " + spec.Show(v.Expr.Value)
	}
	return v.Meta.Describe()
}

// Absent reports an argument that is not given.
func (v Value) Absent() bool { return v.Expr == nil }

// Same reports whether two expressions are the same local variable, as
// Python's "is" finds for two loads of one name.
func (v Value) Same(w Value) bool {
	return v.Expr == w.Expr || (v.Expr != nil && w.Expr != nil && v.Expr.Kind == program.Local && w.Expr.Kind == program.Local && v.Expr.Slot == w.Expr.Slot)
}

// Results describes what a call of an operator gives.
func Results(row *op.Op, outs []*op.Tensor) Meta {
	if len(outs) == 1 && !row.List {
		return Tensor(outs[0])
	}
	m := Meta{Tuple: []Meta{}}
	for _, o := range outs {
		m.Tuple = append(m.Tuple, Tensor(o))
	}
	return m
}

// Returned describes what a call with these results returns.
func Returned(rets []Value) Meta {
	if len(rets) == 1 {
		return rets[0].Meta
	}
	m := Meta{Tuple: []Meta{}}
	for _, r := range rets {
		m.Tuple = append(m.Tuple, r.Meta)
	}
	return m
}

// As is m with its tensors of floating-point numbers in another type.
func (m Meta) As(d tensor.DType) Meta {
	if m.Tensor != nil && m.Tensor.DType.IsFloating() {
		m.Tensor = &op.Tensor{Layout: m.Tensor.Layout, DType: d}
	}
	if m.Tuple != nil {
		tuple := make([]Meta, len(m.Tuple))
		for i, x := range m.Tuple {
			tuple[i] = x.As(d)
		}
		m.Tuple = tuple
	}
	return m
}

// None is the literal None.
func None() Value { return Value{&program.Expr{Kind: program.Const}, Meta{None: true}} }
