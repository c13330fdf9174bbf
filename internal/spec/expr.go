package spec

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/syntax"

	"github.com/memplan/memplan/internal/limit"
)

// Env gives expressions their names. A value is int64, float64, bool, string,
// nil, []any or an Object.
type Env interface {
	Lookup(name string) (any, bool)
	Names() []string // for suggestions
	Meter() *limit.Meter
}

// Object is a value with attributes, such as a tensor with its shape.
type Object interface {
	Attr(name string) (any, bool)
	AttrNames() []string
}

// Sized is a value that may have a length.
type Sized interface{ Len() (n int, ok bool) }

// template is a scalar with ${...} in it.
type template struct {
	parts  []part
	col    int  // column of the scalar's first character
	inline bool // columns inside of the scalar are known
	bad    bool // the scalar's text is wrong
}

// part is literal text or, if expr is set, an expression.
type part struct {
	text string
	expr syntax.Expr
	at   int // characters before it in the scalar
}

// Limits on expressions: they are pure and small. A value counts with the lists in
// it each time that they occur, though they may be one and the same: what prints or
// compares it goes through all of them.
const (
	maxExprBytes = 2000
	maxList      = 4096
	maxString    = 4096
	maxExprDepth = 64
	maxExprSteps = 100_000
	maxParts     = 256     // of a scalar: expressions and what is between them
	maxWeight    = 1 << 19 // bytes of a list, as weight counts
)

// parseTemplate splits a scalar at its ${...} and parses the expressions,
// which are Python's (the subset that Starlark's grammar shares).
func parseTemplate(s string) (*template, *Diag) {
	t := &template{}
	at := 0
	for s != "" {
		if len(t.parts) >= maxParts {
			return nil, &Diag{Span: Span{Pos: Pos{0, at}, Len: 1}, Msg: fmt.Sprintf("a string has at most %d expressions and parts between them", maxParts)}
		}
		i := strings.Index(s, "${")
		if i < 0 {
			t.parts = append(t.parts, part{text: s})
			break
		}
		if i > 0 {
			t.parts = append(t.parts, part{text: s[:i]})
		}
		at += utf8.RuneCountInString(s[:i])
		end := closing(s[i+2:])
		if end < 0 {
			return nil, &Diag{Span: Span{Pos: Pos{0, at}, Len: 2}, Msg: "${ is not closed by }"}
		}
		src := s[i+2 : i+2+end]
		e, d := parseExpr(src)
		if d != nil {
			d.Col += at + 2
			return nil, d
		}
		t.parts = append(t.parts, part{expr: e, at: at + 2})
		at += 3 + utf8.RuneCountInString(src)
		s = s[i+3+end:]
	}
	return t, nil
}

// closing finds the } that ends an expression, outside of strings and of
// nested braces.
func closing(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

func parseExpr(src string) (e syntax.Expr, d *Diag) {
	span := Span{Pos: Pos{0, 0}, Len: utf8.RuneCountInString(src)}
	if strings.TrimSpace(src) == "" {
		return nil, &Diag{Span: span, Msg: "empty expression"}
	}
	if len(src) > maxExprBytes {
		return nil, &Diag{Span: span, Msg: fmt.Sprintf("expression is longer than %d bytes", maxExprBytes)}
	}
	if depth := bracketDepth(src); depth > maxExprDepth {
		return nil, &Diag{Span: span, Msg: fmt.Sprintf("expression is nested deeper than %d levels", maxExprDepth)}
	}
	if strings.ContainsAny(src, "\n\r") {
		return nil, &Diag{Span: span, Msg: "an expression is one line"}
	}
	defer func() { // the grammar's parser panics on some malformed input
		if r := recover(); r != nil {
			e, d = nil, &Diag{Span: span, Msg: "expression cannot be parsed"}
		}
	}()
	lead := len(src) - len(strings.TrimLeft(src, " \t"))
	x, err := parsePython(strings.TrimSpace(src))
	if err != nil {
		var se syntax.Error
		if errors.As(err, &se) {
			col := min(max(int(se.Pos.Col)-1+lead, 0), span.Len)
			msg := strings.NewReplacer("end of file", "end", "want EOF", "want an operator", "want primary expression", "want a value").Replace(se.Msg)
			if got, ok := strings.CutPrefix(msg, "got "); ok {
				msg = "unexpected " + got
			}
			if strings.HasPrefix(msg, "unexpected ','") {
				msg += "; an index with a comma, such as x[:, 0], stands by itself: y = x[:, 0]"
			}
			n := 1
			if strings.Contains(msg, "after expression") { // the place is the end of the word
				n = lastWord([]rune(src)[:col])
				col -= n
			}
			return nil, &Diag{Span: Span{Pos: Pos{0, col}, Len: n}, Msg: "expression: " + msg}
		}
		return nil, &Diag{Span: span, Msg: "expression: " + err.Error()}
	}
	return x, nil
}

// lastWord is the length of the word or sign at the end of s.
func lastWord(s []rune) int {
	n := 0
	for i := len(s) - 1; i >= 0 && !unicode.IsSpace(s[i]) && wordRune(s[i]) == wordRune(s[len(s)-1]); i-- {
		n++
	}
	return n
}

// wordRune reports whether a character may be part of a name or a number.
func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// bracketDepth bounds the recursion of parser and evaluator: brackets, and
// runs of prefix operators.
func bracketDepth(s string) int {
	depth, most, prefix := 0, 0, 0
	for _, c := range s {
		switch c {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
			prefix = 0
		case ')', ']', '}':
			depth--
			prefix = 0
		case '-', '+', '~', ' ', '\t':
			prefix++
		default:
			prefix = 0
		}
		most = max(most, prefix)
	}
	return max(most, strings.Count(s, "**"), strings.Count(s, "not "), strings.Count(s, " if "), strings.Count(s, "lambda"))
}

// EvalError is a mistake inside an expression. One without a message is the
// consequence of a mistake that was reported before.
type EvalError struct {
	Span Span
	Msg  string
}

func (e *EvalError) Error() string { return e.Msg }

// Eval computes a value: expressions by env, lists item by item. A scalar that
// is one expression has that expression's type; otherwise the parts are
// joined to a string. Errors are *EvalError.
func (v *Value) Eval(env Env) (any, error) {
	switch {
	case v.Kind == List:
		out := make([]any, len(v.Items))
		for i, it := range v.Items {
			x, err := it.Eval(env)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		w := weight(out, maxWeight)
		env.Meter().Work(int64(w))
		if w > maxWeight {
			return nil, &EvalError{v.Span, tooHeavy}
		}
		return out, nil
	case v.Kind == Map:
		return nil, &EvalError{v.Span, "a mapping is not a value; values are numbers, strings, true, false, null and lists"}
	case v.expr == nil:
		return v.plain()
	case v.expr.bad:
		return nil, &EvalError{v.Span, ""}
	}
	var b strings.Builder
	for _, p := range v.expr.parts {
		if p.expr == nil {
			b.WriteString(p.text)
			continue
		}
		x, err := evalExpr(p.expr, env)
		if err != nil {
			return nil, v.locate(p, err)
		}
		if len(v.expr.parts) == 1 {
			return x, nil
		}
		if !writePy(&b, x, maxString) {
			return nil, &EvalError{v.Span, fmt.Sprintf("string is longer than %d bytes", maxString)}
		}
	}
	return b.String(), nil
}

// exprError is a mistake at a column of an expression's source.
type exprError struct {
	col, len int
	msg      string
}

func (e *exprError) Error() string { return e.msg }

func (v *Value) locate(p part, err error) error {
	s := v.Span
	var ee *exprError
	if errors.As(err, &ee) {
		if v.expr.inline {
			s.Col, s.Len = v.expr.col+p.at+ee.col, ee.len
		}
		return &EvalError{s, ee.msg}
	}
	return &EvalError{s, err.Error()}
}

// Invalid stands for a value that expressions cannot use.
type Invalid struct {
	Why string // "": a mistake of its own was reported, so that what uses it fails without a message
}

// evaluator walks one expression.
type evaluator struct {
	env   Env
	steps int
	local map[string]any // variables of comprehensions
}

func evalExpr(e syntax.Expr, env Env) (any, error) {
	ev := &evaluator{env: env}
	x, err := ev.eval(e)
	env.Meter().Work(int64(ev.steps))
	return x, err
}

// spend counts steps that an expression takes beside those of its parts: values
// that are compared, copied or printed.
func (ev *evaluator) spend(e syntax.Expr, n int) error {
	if ev.steps += n; ev.steps > maxExprSteps {
		return ev.fail(e, "expression takes too long")
	}
	return nil
}

const tooHeavy = "list is too large: with the lists in it, it holds more than 512 KiB"

// made checks a list that an expression made.
func (ev *evaluator) made(e syntax.Expr, list []any) (any, error) {
	w := weight(list, maxWeight)
	if w > maxWeight {
		return nil, ev.fail(e, tooHeavy)
	}
	return list, ev.spend(e, w/perStep)
}

// perStep is how many bytes of a list are looked at in the time of a step.
const perStep = 64

// weight is about how many bytes a value has when it is printed. It stops counting
// beyond most.
func weight(x any, most int) int {
	switch x := x.(type) {
	case string:
		return 8 + len(x)
	case []any:
		w := 8
		for _, it := range x {
			if w += weight(it, most-w); w > most {
				break
			}
		}
		return w
	}
	return 8
}

func (ev *evaluator) fail(e syntax.Expr, format string, args ...any) error {
	from, to := e.Span()
	n := 1
	if to.Line == from.Line && to.Col > from.Col {
		n = int(to.Col - from.Col)
	}
	return &exprError{int(from.Col) - 1, n, fmt.Sprintf(format, args...)}
}

func (ev *evaluator) eval(e syntax.Expr) (any, error) {
	if err := ev.spend(e, 1); err != nil {
		return nil, err
	}
	switch e := e.(type) {
	case *syntax.ParenExpr:
		return ev.eval(e.X)
	case *syntax.Literal:
		switch x := e.Value.(type) {
		case int64:
			return x, nil
		case float64, string:
			return x, nil
		}
		return nil, ev.fail(e, "literal %s does not fit 64 bits", e.Raw)
	case *syntax.Ident:
		return ev.name(e)
	case *syntax.UnaryExpr:
		return ev.unary(e)
	case *syntax.BinaryExpr:
		return ev.binary(e)
	case *syntax.CondExpr:
		c, err := ev.eval(e.Cond)
		if err != nil {
			return nil, err
		}
		if truth(c) {
			return ev.eval(e.True)
		}
		return ev.eval(e.False)
	case *syntax.ListExpr:
		return ev.list(e, e.List)
	case *syntax.TupleExpr:
		return ev.list(e, e.List)
	case *syntax.IndexExpr:
		return ev.index(e)
	case *syntax.SliceExpr:
		return ev.slice(e)
	case *syntax.DotExpr:
		x, err := ev.eval(e.X)
		if err != nil {
			return nil, err
		}
		o, ok := x.(Object)
		if !ok || len(o.AttrNames()) == 0 {
			return nil, ev.fail(e, "%s has no attributes", typeName(x))
		}
		v, ok := o.Attr(e.Name.Name)
		if !ok {
			return nil, ev.fail(e, "no attribute %q; allowed are %s", e.Name.Name, strings.Join(o.AttrNames(), ", "))
		}
		return v, nil
	case *syntax.CallExpr:
		return ev.call(e)
	case *syntax.Comprehension:
		return ev.comprehension(e)
	}
	return nil, ev.fail(e, "this form of expression is not part of the language")
}

func (ev *evaluator) name(e *syntax.Ident) (any, error) {
	switch e.Name {
	case "True", "true":
		return true, nil
	case "False", "false":
		return false, nil
	case "None", "null":
		return nil, nil
	}
	if v, ok := ev.local[e.Name]; ok {
		return v, nil
	}
	if v, ok := ev.env.Lookup(e.Name); ok {
		if bad, ok := v.(Invalid); ok {
			return nil, ev.fail(e, "%s", bad.Why)
		}
		return v, nil
	}
	return nil, ev.fail(e, "unknown name %q in an expression%s", e.Name, suggest(e.Name, ev.env.Names()))
}

func (ev *evaluator) list(e syntax.Expr, es []syntax.Expr) (any, error) {
	out := make([]any, 0, len(es))
	for _, x := range es {
		star, ok := x.(*syntax.UnaryExpr)
		if ok = ok && star.Op == syntax.STAR; ok {
			x = star.X
		}
		v, err := ev.eval(x)
		if err != nil {
			return nil, err
		}
		if !ok {
			out = append(out, v)
			continue
		}
		items, ok := v.([]any)
		if !ok {
			return nil, ev.fail(star, "* needs a list, not %s", typeName(v))
		}
		if len(out)+len(items) > maxList {
			return nil, ev.fail(e, "list is longer than %d", maxList)
		}
		out = append(out, items...)
	}
	return ev.made(e, out)
}

func (ev *evaluator) unary(e *syntax.UnaryExpr) (any, error) {
	x, err := ev.eval(e.X)
	if err != nil {
		return nil, err
	}
	switch e.Op {
	case syntax.NOT:
		return !truth(x), nil
	case syntax.PLUS, syntax.MINUS:
		switch n := x.(type) {
		case int64:
			if e.Op == syntax.MINUS {
				if n == math.MinInt64 {
					return nil, ev.fail(e, "integer overflow")
				}
				n = -n
			}
			return n, nil
		case float64:
			if e.Op == syntax.MINUS {
				n = -n
			}
			return n, nil
		}
	}
	return nil, ev.fail(e, "operator %s does not apply to %s", e.Op, typeName(x))
}

func (ev *evaluator) index(e *syntax.IndexExpr) (any, error) {
	if d, ok := e.X.(*syntax.DictExpr); ok {
		return ev.choose(e, d)
	}
	x, err := ev.eval(e.X)
	if err != nil {
		return nil, err
	}
	y, err := ev.eval(e.Y)
	if err != nil {
		return nil, err
	}
	list, ok := x.([]any)
	if !ok {
		return nil, ev.fail(e, "%s cannot be indexed", typeName(x))
	}
	i, ok := y.(int64)
	if !ok {
		return nil, ev.fail(e.Y, "an index must be an integer, not %s", typeName(y))
	}
	if i < 0 {
		i += int64(len(list))
	}
	if i < 0 || i >= int64(len(list)) {
		return nil, ev.fail(e, "index %d is out of range for a list of %d", y, len(list))
	}
	return list[i], nil
}

func (ev *evaluator) slice(e *syntax.SliceExpr) (any, error) {
	x, err := ev.eval(e.X)
	if err != nil {
		return nil, err
	}
	list, ok := x.([]any)
	if !ok {
		return nil, ev.fail(e, "%s cannot be sliced", typeName(x))
	}
	at, err := ev.sliced(e, len(list))
	if err != nil {
		return nil, err
	}
	out := make([]any, len(at))
	for k, i := range at {
		out[k] = list[i]
	}
	return ev.made(e, out)
}

// sliced lists which items of a list of n a slice takes.
func (ev *evaluator) sliced(e *syntax.SliceExpr, n int) ([]int, error) {
	given := func(b syntax.Expr, otherwise int) (int, error) {
		if b == nil {
			return otherwise, nil
		}
		v, err := ev.eval(b)
		if err != nil {
			return 0, err
		}
		if v == nil {
			return otherwise, nil
		}
		i, ok := v.(int64)
		if !ok {
			return 0, ev.fail(b, "a slice bound must be an integer, not %s", typeName(v))
		}
		return int(max(-1<<40, min(i, 1<<40))), nil
	}
	step, err := given(e.Step, 1)
	if err != nil {
		return nil, err
	}
	if step == 0 {
		return nil, ev.fail(e.Step, "the step of a slice must not be 0")
	}
	low, high, first, last := 0, n, 0, n // of bounds, and what they are by default
	if step < 0 {
		low, high, first, last = -1, n-1, n-1, -1
	}
	bound := func(b syntax.Expr, otherwise int) (int, error) {
		i, err := given(b, math.MaxInt)
		switch {
		case err != nil:
			return 0, err
		case i == math.MaxInt:
			return otherwise, nil
		case i < 0:
			i += n
		}
		return max(low, min(i, high)), nil
	}
	from, err := bound(e.Lo, first)
	if err != nil {
		return nil, err
	}
	to, err := bound(e.Hi, last)
	if err != nil {
		return nil, err
	}
	var out []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, i)
	}
	return out, nil
}
