package value

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Meta is what is known of a value before it is computed: a tensor's shape, a
// tuple, a number, or nothing (None).
type Meta struct {
	Tensor *op.Tensor
	Tuple  []Meta // of a list: what it held when this was written down; Now says what it holds
	List   *List  // of a list: the object that all its names share
	None   bool   // None itself
	Number any    // int64, float64 or bool
	Scalar bool   // a number that is known only when the program runs

	Spread *Spread // of a DTensor; nil: it is none

	Causal bool // a mask that is known to be causal
	Lost   bool // unknown, because of a mistake that was reported
}

// Spread is how a DTensor lies on the ranks; its tensor is a rank's part.
type Spread struct {
	program.Placement
	Ranks          int64
	Summand, Whole bool // modules that read it give such gradients
}

// List is a list of Python while a function is elaborated.
type List struct {
	Items   []Meta
	Changed bool // since it was made, or since the function began that has it as an argument
	Held    int  // values that were appended, counted with those of the lists in them
	Counted bool // the program depends on how many items it has: a loop, a slice, len
}

// Tensor is what is known of a tensor.
func Tensor(t *op.Tensor) Meta { return Meta{Tensor: t} }

// ListOf is a new list.
func ListOf(items []Meta) Meta { return Meta{Tuple: items, List: &List{Items: items}} }

// Now is m with what its list holds by now.
func (m Meta) Now() Meta {
	if m.List != nil {
		m.Tuple = m.List.Items
	}
	return m
}

// Count is the number of items, on which the program depends then.
func (m Meta) Count() int {
	if m.List != nil {
		m.List.Counted = true
	}
	return len(m.Now().Tuple)
}

// Append appends to a list.
func (l *List) Append(x ...Meta) { l.Items, l.Changed = append(l.Items, x...), true }

// Pop takes the last item from a list.
func (l *List) Pop() Meta {
	last := len(l.Items) - 1
	x := l.Items[last]
	l.Items, l.Changed = slices.Clip(l.Items[:last]), true
	return x.Now()
}

// Len implements spec.Sized.
func (m Meta) Len() (n int, ok bool) { return len(m.Now().Tuple), m.Tuple != nil }

// Key describes it for comparison: shapes, strides and types.
func (m Meta) Key() string { return string(m.AppendKey(nil)) }

// AppendKey appends what Key describes.
func (m Meta) AppendKey(b []byte) []byte {
	switch {
	case m.Tensor != nil:
		b = append(m.Tensor.AppendKey(b), m.Tensor.DType.String()...)
		b = append(b, op.Known(m.Tensor)...)
		if m.Causal {
			b = append(b, "causal"...)
		}
		if m.Spread != nil {
			b = append(b, m.Spread.Python()...)
		}
		return b
	case m.Tuple != nil:
		m = m.Now()
		open, end := byte('('), byte(')')
		if m.List != nil {
			open, end = '[', ']'
		}
		b = append(b, open)
		for i, x := range m.Tuple {
			if i > 0 {
				b = append(b, ',')
			}
			b = x.AppendKey(b)
		}
		return append(b, end)
	case m.Number != nil:
		return fmt.Appendf(b, "%T %v", m.Number, m.Number)
	case m.Scalar:
		return append(b, "number"...)
	}
	return append(b, "None"...)
}

// Describe names a value in messages.
func (m Meta) Describe() string {
	switch {
	case m.Tensor != nil:
		return fmt.Sprintf("a tensor of shape %v", m.Tensor.Size)
	case m.List != nil:
		return fmt.Sprintf("a list of %d", len(m.List.Items))
	case m.Tuple != nil:
		return fmt.Sprintf("a tuple of %d", len(m.Tuple))
	case m.Number != nil:
		return "the number " + spec.Show(m.Number)
	case m.Scalar:
		return "a number that is known only when the program runs"
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
		dims, size := make([]any, m.Tensor.Rank()), m.Tensor.Size
		if s := m.Spread; s != nil {
			size = program.Redistributed(size, s.Placement, program.Placement{}, s.Ranks)
		}
		for i, d := range size.Slice() {
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
		tuple := make([]Meta, len(m.Now().Tuple))
		for i, x := range m.Now().Tuple {
			tuple[i] = x.As(d)
		}
		m.Tuple = tuple
		if m.List != nil {
			m = ListOf(tuple)
		}
	}
	return m
}

// None is the literal None.
func None() Value { return Value{&program.Expr{Kind: program.Const}, Meta{None: true}} }

// Number is a number of Python.
func Number(x any) Value { return Value{&program.Expr{Kind: program.Const, Value: x}, Meta{Number: x}} }
