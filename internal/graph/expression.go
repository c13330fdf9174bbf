package graph

import (
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// text resolves the text of an input: a reference, an expression, or the name of a
// number.
func (f *fn) text(s string, at spec.Span, sc *scope) value.Value {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "*"); ok {
		return f.starred(f.text(rest, at, sc), at)
	}
	if v, ok := f.subscript(s, at, sc); ok {
		return v
	}
	if spec.IsTree(s) || f.namesNumbers(s, sc) {
		return f.expression(f.u.el.errs.ParseTree(s, at), sc)
	}
	return f.reference(s, at)
}

// namesNumbers reports whether a reference is of numbers: of a param or a loop's
// variable, or of the shape of a tensor, as in x.shape[0].
func (f *fn) namesNumbers(s string, sc *scope) bool {
	head, rest := s, ""
	if i := strings.IndexAny(s, ".["); i >= 0 {
		head, rest = s[:i], s[i:]
	}
	if slot, ok := f.slots[head]; ok && f.bound[slot] {
		return f.metas[slot].Tensor != nil && (rest == ".ndim" || strings.HasPrefix(rest, ".shape"))
	}
	if _, own := f.u.attribute(head); own { // a parameter or buffer of the block is nearer than a param
		return false
	}
	x, _ := sc.Lookup(head)
	_, list := x.([]any)
	return isNumber(x) || list
}

func isNumber(x any) bool {
	switch x.(type) {
	case int64, float64, bool:
		return true
	}
	return false
}

// expression evaluates an expression.
func (f *fn) expression(t *spec.Tree, sc *scope) value.Value {
	el := f.u.el
	if f.ofNumbers(t, sc) {
		return f.number(el.errs.EvalTree(t, sc), t.At)
	}
	switch t.Kind {
	case spec.NameTree:
		return f.reference(t.Name, t.At)
	case spec.ListTree:
		return f.literal(program.ListLit, f.items(t, sc), t.At)
	case spec.TupleTree:
		return f.literal(program.TupleLit, f.items(t, sc), t.At)
	case spec.IndexTree:
		return f.indexTree(t, sc)
	case spec.SliceTree:
		return f.slice(t, sc)
	case spec.UnaryTree:
		return f.unary(t, sc)
	case spec.BinaryTree:
		x := f.expression(t.Args[0], sc)
		return f.binary(t, x, f.expression(t.Args[1], sc), sc)
	case spec.CondTree:
		if !f.ofNumbers(t.Args[0], sc) {
			el.fail(t.Args[0].At, "a condition must be of numbers that are known before the program runs, not of tensors; {where: [x > 0, x, y]} chooses by a tensor")
		}
		if spec.Truth(el.errs.EvalTree(t.Args[0], sc)) {
			return f.expression(t.Args[1], sc)
		}
		return f.expression(t.Args[2], sc)
	case spec.MethodTree:
		return f.method(t, sc)
	case spec.StarTree:
		el.fail(t.At, "* stands before an item of a list or tuple")
	}
	if t.Name != "" {
		if entry := f.u.entryOf(t.Name, t.Args); entry != "" {
			el.fail(t.At, "%s is an entry, not a part of an expression: %s", t.Text(), entry)
		}
		el.fail(t.At, "%s takes numbers and lists of numbers; operators on tensors are entries, such as {%s: x}", t.Name, t.Name)
	}
	el.fail(t.At, "this form of expression is not part of the language")
	return value.Value{}
}

// ofNumbers reports whether an expression is of numbers alone, which are known:
// params, loop variables, shapes, lengths of lists.
func (f *fn) ofNumbers(t *spec.Tree, sc *scope) bool {
	switch t.Kind {
	case spec.NameTree:
		head, attr, _ := strings.Cut(t.Name, ".")
		if slot, ok := f.slots[head]; ok && f.bound[slot] {
			f.reads(slot, t.At)
			switch m := f.metas[slot]; {
			case m.Lost:
				panic(spec.Stop{})
			case m.Tensor != nil:
				return attr == "shape" || attr == "ndim" || attr == "dtype"
			default:
				return attr == "" && (m.Number != nil || m.None)
			}
		}
		if _, ok := f.u.attribute(head); ok {
			return false
		}
		x, ok := sc.Lookup(head)
		_, local := x.(value.Meta)
		return ok && !local || head == "None" || head == "True" || head == "False"
	case spec.ListTree, spec.TupleTree:
		return false
	case spec.OtherTree:
		if a := t.Args; t.Name == "len" && len(a) == 1 && a[0].Kind == spec.NameTree && f.isList(a[0].Name) {
			f.reads(f.slots[a[0].Name], t.At)
			f.metas[f.slots[a[0].Name]].Count()
			return true
		}
	}
	for _, a := range t.Args {
		if !f.ofNumbers(a, sc) {
			return false
		}
	}
	return t.Kind != spec.StarTree
}

// isList reports whether a name is that of a list or tuple.
func (f *fn) isList(name string) bool {
	slot, ok := f.slots[name]
	return ok && f.bound[slot] && f.metas[slot].Tuple != nil
}

// number is the value of an expression of numbers.
func (f *fn) number(x any, at spec.Span) value.Value {
	switch x := x.(type) {
	case nil:
		return value.None()
	case int64, float64, bool:
		return value.Number(x)
	case []any:
		items := make([]value.Value, len(x))
		for i, it := range x {
			items[i] = f.number(it, at)
		}
		return f.literal(program.ListLit, items, at)
	}
	f.u.el.fail(at, "an input is a value, a number or a list, not %s", spec.Show(x))
	return value.Value{}
}

// literal is a list or tuple of values.
func (f *fn) literal(k program.ExprKind, items []value.Value, at spec.Span) value.Value {
	e := &program.Expr{Kind: k}
	metas := []value.Meta{}
	for _, v := range items {
		e.Args = append(e.Args, v.Expr)
		if v.Expr.Kind == program.Star {
			metas = append(metas, v.Meta.Tuple...)
		} else {
			metas = append(metas, v.Meta)
		}
	}
	m := value.ListOf(metas)
	if k == program.TupleLit {
		m.List = nil
	}
	f.mayHold(nil, m, at)
	return value.Value{Expr: e, Meta: m}
}

// maxHeld bounds the values in a list, counted with the lists in it each time that
// they occur; maxListed those that are appended to it.
const (
	maxHeld   = 1 << 16
	maxListed = 1 << 20
)

// mayHold stops if a list may not hold a value: it is too large, or holds the list.
func (f *fn) mayHold(l *value.List, m value.Meta, at spec.Span) {
	el := f.u.el
	n := 0
	var count func(m value.Meta)
	count = func(m value.Meta) {
		if n++; n > maxHeld {
			el.tooLarge(at, "a list holds more than %d values, counted with those of the lists in it", maxHeld)
		}
		if m.Tuple == nil {
			return
		}
		if m.List != nil && m.List == l {
			el.fail(at, "a list cannot hold itself")
		}
		for _, x := range m.Now().Tuple {
			count(x)
		}
	}
	count(m)
	el.meter.Work(int64(n))
	if l == nil {
		return
	}
	if l.Held += n; l.Held > maxListed {
		el.tooLarge(at, "a list holds more than %d values, counted with those of the lists in it", maxListed)
	}
}

// items evaluates the items of a list or tuple.
func (f *fn) items(t *spec.Tree, sc *scope) []value.Value {
	var out []value.Value
	for _, a := range t.Args {
		if a.Kind != spec.StarTree {
			out = append(out, f.expression(a, sc))
			continue
		}
		out = append(out, f.starred(f.expression(a.Args[0], sc), a.At))
	}
	return out
}

// starred is *v, the items of a list or tuple.
func (f *fn) starred(v value.Value, at spec.Span) value.Value {
	if v.Meta.Tuple == nil {
		f.u.el.fail(at, "* needs a list or a tuple, not %s", v.Describe())
	}
	return value.Value{Expr: &program.Expr{Kind: program.Star, Args: []*program.Expr{v.Expr}}, Meta: v.Meta}
}

// spreadStar replaces *xs among the arguments of a call by the items of xs.
func (f *fn) spreadStar(v value.Value, at spec.Span) []value.Value {
	if v.Expr == nil || v.Expr.Kind != program.Star {
		return []value.Value{v}
	}
	list := value.Value{Expr: v.Expr.Args[0], Meta: v.Meta}
	if list.Expr.Kind != program.Local {
		f.u.el.fail(at, "* before an argument needs a name; give the list one in a statement before")
	}
	out := make([]value.Value, v.Meta.Count())
	for i := range out {
		out[i] = f.item(list, int64(i), at)
	}
	return out
}

// noStar refuses *xs where there is no list around it.
func (f *fn) noStar(v value.Value, at spec.Span) {
	if v.Expr != nil && v.Expr.Kind == program.Star {
		f.u.el.fail(at, "* stands before an item of a list or tuple, such as (*xs, y)")
	}
}

// item is v[k] of a list or tuple.
func (f *fn) item(v value.Value, k int64, at spec.Span) value.Value {
	i, n := k, int64(len(v.Meta.Tuple))
	if k < 0 {
		i += n
	}
	if v.Meta.Tuple == nil || i < 0 || i >= n {
		f.u.el.fail(at, "index [%d] is out of range for %s", k, v.Describe())
	}
	m := v.Meta.Tuple[i].Now()
	switch {
	case v.Expr.Kind == program.Local && m.Number != nil:
		return value.Number(m.Number)
	case v.Expr.Kind == program.Local:
		return value.Value{Expr: &program.Expr{Kind: program.Item, Slot: v.Expr.Slot, Index: int(k)}, Meta: m}
	}
	return value.Value{Expr: &program.Expr{Kind: program.Pick, Index: int(i), Args: []*program.Expr{v.Expr}}, Meta: m}
}

// taken completes an expression that takes some items of a list or tuple, as a new
// one.
func (f *fn) taken(v value.Value, e *program.Expr, at spec.Span) value.Value {
	e.Args = []*program.Expr{v.Expr}
	items := make([]value.Meta, len(e.Items))
	for k, i := range e.Items {
		items[k] = v.Meta.Tuple[i]
	}
	return value.Value{Expr: e, Meta: f.collection(items, v.Meta.List != nil, at)}
}

// collection is what is known of a new list or tuple.
func (f *fn) collection(items []value.Meta, list bool, at spec.Span) value.Meta {
	m := value.ListOf(items)
	if !list {
		m.List = nil
	}
	f.mayHold(nil, m, at)
	return m
}

// infix are the operators on tensors.
var infix = map[string]string{
	"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_divide", "%": "remainder", "**": "pow", "@": "matmul",
	"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "&": "bitwise_and", "|": "bitwise_or",
}

// binary is x OPERATOR y: of lists, of numbers that are known only when the program
// runs, or of tensors.
func (f *fn) binary(t *spec.Tree, x, y value.Value, sc *scope) value.Value {
	el := f.u.el
	wrong := func() {
		el.fail(t.At, "operator %s does not apply to %s and %s", t.Name, x.Describe(), y.Describe())
	}
	a, b := x.Meta, y.Meta
	switch {
	case a.Tensor != nil || b.Tensor != nil:
		row := infix[t.Name]
		if row == "" || a.Tensor == nil && a.Number == nil || b.Tensor == nil && b.Number == nil {
			wrong()
		}
		return f.apply(row, t.At, sc, nil, x, y)
	case a.Tuple != nil && b.Tuple != nil:
		if t.Name != "+" || (a.List == nil) != (b.List == nil) {
			wrong()
		}
		items := append(append([]value.Meta{}, a.Tuple...), b.Tuple...)
		return value.Value{
			Expr: &program.Expr{Kind: program.Concat, Args: []*program.Expr{x.Expr, y.Expr}},
			Meta: f.collection(items, a.List != nil, t.At),
		}
	case a.Tuple != nil || b.Tuple != nil:
		if a.Tuple == nil {
			x, a, b = y, b, a
		}
		n, ok := b.Number.(int64)
		if t.Name != "*" || !ok {
			wrong()
		}
		if n > maxHeld {
			el.tooLarge(t.At, "a list holds more than %d values", maxHeld)
		}
		var items []int
		for range max(n, 0) {
			for i := range a.Tuple {
				items = append(items, i)
			}
			if len(items) > maxHeld {
				el.tooLarge(t.At, "a list holds more than %d values", maxHeld)
			}
		}
		return f.taken(x, &program.Expr{Kind: program.Times, Index: int(n), Items: items}, t.At)
	case a.Number != nil && b.Number != nil:
		return value.Number(el.errs.Compute(t.Name, a.Number, b.Number, t.At, sc))
	case (a.Scalar || a.Number != nil) && (b.Scalar || b.Number != nil):
		return scalar(t.Name, x, y)
	}
	wrong()
	return value.Value{}
}

// scalar is arithmetic with numbers that are known only when the program runs.
func scalar(sign string, args ...value.Value) value.Value {
	e := &program.Expr{Kind: program.Arith, Path: sign}
	for _, a := range args {
		e.Args = append(e.Args, a.Expr)
	}
	return value.Value{Expr: e, Meta: value.Meta{Scalar: true}}
}

func (f *fn) unary(t *spec.Tree, sc *scope) value.Value {
	v := f.expression(t.Args[0], sc)
	switch {
	case t.Name == "-" && v.Meta.Tensor != nil:
		return f.apply("neg", t.At, sc, nil, v)
	case t.Name == "~" && v.Meta.Tensor != nil:
		return f.apply("bitwise_not", t.At, sc, nil, v)
	case v.Meta.Number != nil && t.Name == "-":
		return value.Number(f.u.el.errs.Compute("-", int64(0), v.Meta.Number, t.At, sc))
	case v.Meta.Scalar && (t.Name == "-" || t.Name == "+"):
		return scalar(t.Name, v)
	}
	f.u.el.fail(t.At, "operator %s does not apply to %s", t.Name, v.Describe())
	return value.Value{}
}

// apply calls an operator on values that are evaluated; arg is its argument beside
// them, if it has one.
func (f *fn) apply(name string, at spec.Span, sc *scope, arg *spec.Value, xs ...value.Value) value.Value {
	row := aten.Lookup(name)
	if row == nil {
		f.u.el.fail(at, "there is no operator %s", name)
	}
	return f.callOp(f.applied(name, at, arg, xs), sc, row)
}

// applied is the entry that calls an operator on values.
func (f *fn) applied(name string, at spec.Span, arg *spec.Value, xs []value.Value) *spec.Entry {
	e := &spec.Entry{At: at, Head: spec.String{V: name, At: at, Set: true}, Arg: arg, HasIn: true}
	if f.ready == nil {
		f.ready = map[*spec.Operand]value.Value{}
	}
	for _, x := range xs {
		o := &spec.Operand{At: at}
		f.ready[o] = x
		e.Inputs = append(e.Inputs, o)
	}
	return e
}

// augment is name += value: in place of tensors and lists, a new number of numbers.
func (f *fn) augment(e *spec.Entry, sc *scope) {
	el := f.u.el
	n := e.Name[0]
	x := f.reference(n.V, n.At)
	y := f.only(e, sc)
	f.settle(e)
	t := &spec.Tree{Kind: spec.BinaryTree, Name: e.Augment, At: e.At}
	switch {
	case x.Meta.List != nil && e.Augment == "+":
		if y.Meta.Tuple == nil {
			el.fail(e.Inputs[0].At, "a list is extended by a list or a tuple, not by %s", y.Describe())
		}
		f.changesList(x.Expr.Slot, n.At)
		for _, m := range y.Meta.Tuple {
			f.mayHold(x.Meta.List, m, e.At)
		}
		x.Meta.List.Append(y.Meta.Tuple...)
		f.mayHold(nil, x.Meta, e.At)
		f.emit(program.Stmt{Kind: program.Extend, Targets: []int{x.Expr.Slot}, Value: y.Expr, Line: e.At.Line})
	case x.Meta.Tensor != nil && infix[e.Augment] != "":
		call := f.applied(infix[e.Augment], e.At, nil, []value.Value{x, y})
		if e.Augment != "@" { // Tensor has no __imatmul__
			call.InPlace = &spec.Value{Span: e.At, Kind: spec.Bool, Bool: true, Str: "true"}
		}
		f.bind(e, f.callOp(call, sc, aten.Lookup(call.Head.V)))
	default:
		f.bind(e, f.binary(t, x, y, sc))
	}
}
