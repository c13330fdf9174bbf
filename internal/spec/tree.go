package spec

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"go.starlark.net/syntax"
)

// Tree is an expression over the values of a program, such as x * 0.5 + y or
// [b] + e[1:]. What of it are numbers alone, Eval computes.
type Tree struct {
	Kind TreeKind
	At   Span
	Name string  // of a name with its attributes, a function, a method or an operator
	Args []*Tree // of a slice: what is sliced; of a condition: the condition and both results

	expr syntax.Expr
	from *source
}

// TreeKind is the kind of an expression.
type TreeKind uint8

// The expressions.
const (
	OtherTree  TreeKind = iota // one over numbers, such as a literal or Name(Args...)
	NameTree                   // a name, perhaps with attributes: x, x.shape, wte.weight
	IndexTree                  // Args[0][Args[1]]
	SliceTree                  // Args[0][low:high:step]
	ListTree                   // [Args...]
	TupleTree                  // (Args...)
	StarTree                   // *Args[0], an item of a list or tuple
	UnaryTree                  // Name Args[0]
	BinaryTree                 // Args[0] Name Args[1]
	CondTree                   // Args[1] if Args[0] else Args[2]
	MethodTree                 // Args[0].Name(Args[1:]...)
)

// source is where the text of a tree is.
type source struct {
	text   string
	at     Span
	inline bool // columns inside of it are known
}

// span is the place of an expression of the text.
func (s *source) span(e syntax.Expr) Span {
	from, to := e.Span()
	at := s.at
	if s.inline {
		at.Col, at.Len = at.Col+int(from.Col)-1, 1
		if to.Line == from.Line && to.Col > from.Col {
			at.Len = int(to.Col - from.Col)
		}
	}
	return at
}

var plainReference = regexp.MustCompile(`^[A-Za-z_][\w.]*(\[-?\d+\][\w.]*)*$`)

// IsTree reports whether the text of an input is an expression, not the name of a
// value, of an item of one or of a parameter.
func IsTree(text string) bool { return !plainReference.MatchString(text) }

// ParseTree reads the text of an input at a place; it stops at a mistake.
func (e *Errors) ParseTree(text string, at Span) *Tree {
	src := &source{text: strings.TrimSpace(text), at: at}
	if n := utf8.RuneCountInString(text); at.Len == n || at.Len == n+2 { // in quotes
		src.at.Col += (at.Len - n) / 2
		src.inline = true
	}
	src.at.Col += utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeft(text, " \t"))
	x, d := parseExpr(src.text)
	if d != nil {
		s := at
		if src.inline {
			s.Col, s.Len = src.at.Col+d.Col, d.Len
		}
		e.Failf(s, "%s", d.Msg)
	}
	return src.tree(x)
}

func (s *source) tree(e syntax.Expr) *Tree {
	t := &Tree{At: s.span(e), expr: e, from: s}
	with := func(k TreeKind, name string, args ...syntax.Expr) *Tree {
		t.Kind, t.Name = k, name
		for _, a := range args {
			t.Args = append(t.Args, s.tree(a))
		}
		return t
	}
	switch e := e.(type) {
	case *syntax.ParenExpr:
		return s.tree(e.X)
	case *syntax.Ident:
		return with(NameTree, e.Name)
	case *syntax.DotExpr:
		if inner := s.tree(e.X); inner.Kind == NameTree {
			return with(NameTree, inner.Name+"."+e.Name.Name)
		}
		return with(OtherTree, "", e.X)
	case *syntax.IndexExpr:
		return with(IndexTree, "", e.X, e.Y)
	case *syntax.SliceExpr:
		return with(SliceTree, "", e.X)
	case *syntax.ListExpr:
		return with(ListTree, "", e.List...)
	case *syntax.TupleExpr:
		return with(TupleTree, "", e.List...)
	case *syntax.UnaryExpr:
		if e.Op == syntax.STAR {
			return with(StarTree, "*", e.X)
		}
		return with(UnaryTree, sign(e.Op), e.X)
	case *syntax.BinaryExpr:
		return with(BinaryTree, sign(e.Op), e.X, e.Y)
	case *syntax.CondExpr:
		return with(CondTree, "", e.Cond, e.True, e.False)
	case *syntax.CallExpr:
		if dot, ok := e.Fn.(*syntax.DotExpr); ok {
			return with(MethodTree, dot.Name.Name, append([]syntax.Expr{dot.X}, e.Args...)...)
		}
		if id, ok := e.Fn.(*syntax.Ident); ok {
			return with(OtherTree, id.Name, e.Args...)
		}
	}
	return t
}

// Text is that of a tree.
func (t *Tree) Text() string {
	r := []rune(t.from.text)
	from, to := t.expr.Span()
	end := min(int(to.Col)-1, len(r))
	if _, ok := t.expr.(*syntax.IndexExpr); ok && end < len(r) { // whose span ends before its bracket
		end++
	}
	return string(r[from.Col-1 : end])
}

// EvalTree computes an expression over numbers; it stops at a mistake.
func (e *Errors) EvalTree(t *Tree, env Env) any {
	ev := &evaluator{env: env}
	x, err := ev.eval(t.expr)
	t.from.stop(e, ev, err)
	return x
}

// arithmetic are the operators on numbers.
var arithmetic = []syntax.Token{
	syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT, syntax.STARSTAR,
	syntax.LT, syntax.LE, syntax.GT, syntax.GE,
}

// Compute is x OPERATOR y of numbers that are known; it stops at a mistake.
func (e *Errors) Compute(operator string, x, y any, at Span, env Env) any {
	if operator == "==" || operator == "!=" {
		return same(x, y) == (operator == "==")
	}
	for _, op := range arithmetic {
		if sign(op) != operator {
			continue
		}
		ev := &evaluator{env: env}
		r, err := ev.operate(&syntax.BinaryExpr{X: &syntax.Literal{}, Op: op, Y: &syntax.Literal{}}, x, y)
		(&source{at: at}).stop(e, ev, err)
		return r
	}
	e.Failf(at, "operator %s does not apply to numbers", operator)
	return nil
}

// Sliced lists which items of a list of n a slice takes, and how its bounds read;
// it stops at a mistake.
func (e *Errors) Sliced(t *Tree, n int, env Env) (items []int, text string) {
	ev := &evaluator{env: env}
	s := t.expr.(*syntax.SliceExpr)
	items, err := ev.sliced(s, n)
	t.from.stop(e, ev, err)
	ev.env.Meter().Work(int64(len(items)))
	bound := func(b syntax.Expr) string {
		if b == nil {
			return ""
		}
		x, _ := ev.eval(b)
		return pyStr(x)
	}
	text = bound(s.Lo) + ":" + bound(s.Hi)
	if s.Step != nil {
		text += ":" + bound(s.Step)
	}
	return items, text
}

// stop reports a mistake in an expression, if there is one, and stops.
func (s *source) stop(e *Errors, ev *evaluator, err error) {
	ev.env.Meter().Work(int64(ev.steps))
	if err == nil {
		return
	}
	at := s.at
	if x, ok := err.(*exprError); ok && s.inline {
		at.Col, at.Len = at.Col+x.col, x.len
	}
	e.AddErr(at, err)
	panic(Stop{})
}

// assignment is a statement of Python: names = value, names += value.
var assignment = regexp.MustCompile(`^([\w\s,()\[\].*]+?)\s*(\*\*|//|[-+*/@%])?=\s*([^=\s].*)$`)

// IsExpression reports whether a text is an operation of Python, such as a + b, and
// no name or call.
func IsExpression(text string) bool {
	e, d := parseExpr(strings.TrimSpace(text))
	if d != nil {
		return false
	}
	switch e.(type) {
	case *syntax.BinaryExpr, *syntax.UnaryExpr, *syntax.CondExpr, *syntax.IndexExpr, *syntax.SliceExpr, *syntax.ParenExpr:
		return true
	}
	return false
}

// appending is a call of append.
var appending = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\.append\((.*)\)\s*$`)

// isStatement reports whether the text of an entry is a statement of Python, not a
// name of something that is called.
func isStatement(text string) bool {
	return assignment.MatchString(text) || appending.MatchString(text)
}

// statement reads an entry that is an assignment or a call of append.
func (d *decoder) statement(e *Entry, v *Value) {
	part := func(from, to int) *Value {
		s := v.Span
		if n := utf8.RuneCountInString(v.Str); s.Len == n || s.Len == n+2 {
			s.Col += (s.Len-n)/2 + utf8.RuneCountInString(v.Str[:from])
			s.Len = utf8.RuneCountInString(v.Str[from:to])
		}
		return &Value{Span: s, Kind: Str, Str: v.Str[from:to]}
	}
	e.HasIn, e.Assigns = true, true
	if m := appending.FindStringSubmatchIndex(v.Str); m != nil {
		name := part(m[2], m[3])
		e.Name = []String{{name.Str + "[]", name.Span, true}}
		e.Inputs = []*Operand{{At: part(m[4], m[5]).Span, Value: part(m[4], m[5])}}
		return
	}
	m := assignment.FindStringSubmatchIndex(v.Str)
	names := part(m[2], m[3])
	if m[4] >= 0 {
		e.Augment = v.Str[m[4]:m[5]]
	}
	if !Try(func() {
		e.Tuple = strings.ContainsAny(names.Str, ",([")
		text, at := names.Str, names.Span
		if e.Tuple {
			text = "(" + text + ")" // which allows a comma at its end
			at.Col--
			at.Len += 2
		}
		t := d.errs.ParseTree(text, at)
		e.Unnamed = d.errs.Contained(func() { d.names(e, t.targets()) })
	}) {
		e.Unnamed = true
		return
	}
	if e.Augment != "" && (e.Tuple || len(e.Name) != 1) {
		d.errs.Addf(names.Span, "%s= changes one name", e.Augment)
	}
	right := part(m[6], m[7])
	e.Inputs = []*Operand{{At: right.Span, Value: right}}
	x, bad := parseExpr(strings.TrimSpace(right.Str))
	if t, ok := x.(*syntax.TupleExpr); ok && bad == nil && e.Tuple && e.Nest == nil && len(t.List) == len(e.Name) && len(t.List) > 1 {
		e.Inputs = nil // a, b = b, a: no tuple is made
		r := []rune(right.Str)
		for i, it := range t.List {
			if u, ok := it.(*syntax.UnaryExpr); ok && u.Op == syntax.STAR {
				e.Inputs = []*Operand{{At: right.Span, Value: right}}
				break
			}
			from, _ := it.Span()
			to := len(r)
			if i+1 < len(t.List) {
				next, _ := t.List[i+1].Span()
				to = int(next.Col) - 1
			}
			text := strings.TrimRight(string(r[from.Col-1:to]), ", \t")
			s := right.Span
			s.Col, s.Len = s.Col+int(from.Col)-1, utf8.RuneCountInString(text)
			e.Inputs = append(e.Inputs, &Operand{At: s, Value: &Value{Span: s, Kind: Str, Str: text}})
		}
	}
}

// targets writes what an assignment binds as name: does.
func (t *Tree) targets() *Value {
	switch t.Kind {
	case NameTree:
		return &Value{Span: t.At, Kind: Str, Str: t.Name}
	case ListTree, TupleTree:
		v := &Value{Span: t.At, Kind: List}
		for _, a := range t.Args {
			v.Items = append(v.Items, a.targets())
		}
		return v
	}
	return &Value{Span: t.At, Kind: Str, Str: t.Text()} // which is no name
}
