package spec

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
	"go.starlark.net/syntax"
)

func suggest(name string, names []string) string {
	names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	sort.Strings(names)
	if n := nearest.To(name, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	if len(names) > 0 && len(names) <= 20 {
		return "; known are " + strings.Join(names, ", ")
	}
	return ""
}

func (ev *evaluator) binary(e *syntax.BinaryExpr) (any, error) {
	x, err := ev.eval(e.X)
	if err != nil {
		return nil, err
	}
	switch { // short circuit, with Python's result
	case e.Op == syntax.AND && !truth(x), e.Op == syntax.OR && truth(x):
		return x, nil
	}
	y, err := ev.eval(e.Y)
	if err != nil {
		return nil, err
	}
	switch e.Op {
	case syntax.AND, syntax.OR:
		return y, nil
	case syntax.EQL, syntax.NEQ:
		same, err := ev.equal(e, x, y)
		return same == (e.Op == syntax.EQL), err
	case syntax.IN, syntax.NOT_IN:
		list, ok := y.([]any)
		if !ok {
			return nil, ev.fail(e.Y, "\"in\" needs a list, not %s", typeName(y))
		}
		found := false
		for _, v := range list {
			if found {
				break
			}
			if found, err = ev.equal(e, x, v); err != nil {
				return nil, err
			}
		}
		return found == (e.Op == syntax.IN), nil
	}
	return ev.operate(e, x, y)
}

// operate is arithmetic, or a comparison of numbers.
func (ev *evaluator) operate(e *syntax.BinaryExpr, x, y any) (any, error) {
	if bx, ok := x.(bool); ok {
		x = int64(0)
		if bx {
			x = int64(1)
		}
	}
	if by, ok := y.(bool); ok {
		y = int64(0)
		if by {
			y = int64(1)
		}
	}
	a, aInt := x.(int64)
	b, bInt := y.(int64)
	if aInt && bInt {
		return ev.ints(e, a, b)
	}
	f, fOK := number(x)
	g, gOK := number(y)
	if fOK && gOK {
		return ev.floats(e, f, g)
	}
	switch l := x.(type) {
	case []any:
		if r, ok := y.([]any); ok && e.Op == syntax.PLUS {
			return ev.repeat(e, [][]any{l, r})
		}
		if bInt && e.Op == syntax.STAR {
			return ev.times(e, l, b)
		}
	case string:
		if r, ok := y.(string); ok && e.Op == syntax.PLUS {
			if len(l)+len(r) > maxString {
				return nil, ev.fail(e, "string is longer than %d bytes", maxString)
			}
			return l + r, nil
		}
	}
	if r, ok := y.([]any); ok && aInt && e.Op == syntax.STAR {
		return ev.times(e, r, a)
	}
	return nil, ev.fail(e, "operator %s does not apply to %s and %s", sign(e.Op), typeName(x), typeName(y))
}

func (ev *evaluator) repeat(e syntax.Expr, lists [][]any) (any, error) {
	var out []any
	for _, l := range lists {
		if len(out)+len(l) > maxList {
			return nil, ev.fail(e, "list is longer than %d", maxList)
		}
		out = append(out, l...)
	}
	return ev.made(e, out)
}

func (ev *evaluator) times(e syntax.Expr, l []any, n int64) (any, error) {
	if len(l) > 0 && n > maxList/int64(len(l)) {
		return nil, ev.fail(e, "list is longer than %d", maxList)
	}
	var out []any
	if len(l) > 0 {
		for range max(n, 0) {
			out = append(out, l...)
		}
	}
	return ev.made(e, out)
}

func number(x any) (float64, bool) {
	switch n := x.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// equal compares values; each pair of them that is looked at is a step.
func (ev *evaluator) equal(e syntax.Expr, x, y any) (bool, error) {
	if err := ev.spend(e, 1); err != nil {
		return false, err
	}
	a, ok := x.([]any)
	b, ok2 := y.([]any)
	if !ok || !ok2 {
		return same(x, y), nil
	}
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if eq, err := ev.equal(e, a[i], b[i]); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// same compares values that are not both lists.
func same(x, y any) bool {
	f, ok := number(x)
	g, ok2 := number(y)
	if ok && ok2 {
		return f == g
	}
	_, ok = x.([]any)
	_, ok2 = y.([]any)
	_, xObject := x.(Object)
	_, yObject := y.(Object)
	if ok || ok2 || xObject || yObject {
		return false
	}
	return x == y
}

// ints computes on integers with Python's floor division; overflow is an
// error.
func (ev *evaluator) ints(e *syntax.BinaryExpr, a, b int64) (any, error) {
	over := func() error { return ev.fail(e, "integer overflow") }
	switch e.Op {
	case syntax.PLUS:
		c := a + b
		if (c > a) != (b > 0) && b != 0 {
			return nil, over()
		}
		return c, nil
	case syntax.MINUS:
		c := a - b
		if (c < a) != (b > 0) && b != 0 {
			return nil, over()
		}
		return c, nil
	case syntax.STAR:
		hi, lo := bits.Mul64(abs(a), abs(b))
		if hi != 0 || lo > math.MaxInt64 {
			return nil, over()
		}
		return a * b, nil
	case syntax.SLASHSLASH, syntax.PERCENT, syntax.SLASH:
		if b == 0 {
			return nil, ev.fail(e, "division by zero")
		}
		if a == math.MinInt64 && b == -1 {
			return nil, over()
		}
		if e.Op == syntax.SLASH {
			return float64(a) / float64(b), nil
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q, r = q-1, r+b
		}
		if e.Op == syntax.PERCENT {
			return r, nil
		}
		return q, nil
	case syntax.STARSTAR:
		if b < 0 {
			return ev.power(e, float64(a), float64(b))
		}
		return ev.integerPower(e, a, b)
	case syntax.LTLT:
		if b < 0 || b > 62 || abs(a) > math.MaxInt64>>uint(b) {
			return nil, over()
		}
		return a << uint(b), nil
	case syntax.GTGT:
		if b < 0 {
			return nil, ev.fail(e, "negative shift")
		}
		return a >> uint(min(b, 63)), nil
	}
	return ev.order(e, float64(a), float64(b), a < b, a == b)
}

// integerPower is a ** b, of b that is not negative.
func (ev *evaluator) integerPower(e *syntax.BinaryExpr, a, b int64) (any, error) {
	switch {
	case a == 0 && b > 0, a == 1:
		return a, nil
	case a == -1:
		return 1 - 2*(b%2), nil
	}
	r := int64(1)
	for range min(b, 64) { // more is too much of all other numbers
		hi, lo := bits.Mul64(abs(r), abs(a))
		if hi != 0 || lo > math.MaxInt64 {
			return nil, ev.fail(e, "integer overflow")
		}
		r *= a
	}
	return r, nil
}

// power is f ** g of numbers that are not both integers, or of a negative exponent.
func (ev *evaluator) power(e *syntax.BinaryExpr, f, g float64) (any, error) {
	if f == 0 && g < 0 {
		return nil, ev.fail(e, "division by zero")
	}
	r := math.Pow(f, g)
	if math.IsInf(r, 0) || math.IsNaN(r) {
		return nil, ev.fail(e, "number out of range")
	}
	return r, nil
}

func abs(n int64) uint64 {
	if n < 0 {
		return uint64(-(n + 1)) + 1
	}
	return uint64(n)
}

func (ev *evaluator) floats(e *syntax.BinaryExpr, f, g float64) (any, error) {
	var r float64
	switch e.Op {
	case syntax.STARSTAR:
		return ev.power(e, f, g)
	case syntax.PLUS:
		r = f + g
	case syntax.MINUS:
		r = f - g
	case syntax.STAR:
		r = f * g
	case syntax.SLASH, syntax.SLASHSLASH, syntax.PERCENT:
		if g == 0 {
			return nil, ev.fail(e, "division by zero")
		}
		switch e.Op {
		case syntax.SLASH:
			r = f / g
		case syntax.SLASHSLASH:
			r = math.Floor(f / g)
		default:
			r = f - g*math.Floor(f/g)
		}
	default:
		return ev.order(e, f, g, f < g, f == g)
	}
	if math.IsInf(r, 0) || math.IsNaN(r) {
		return nil, ev.fail(e, "number out of range")
	}
	return r, nil
}

func (ev *evaluator) order(e *syntax.BinaryExpr, f, g float64, less, same bool) (any, error) {
	switch e.Op {
	case syntax.LT:
		return less, nil
	case syntax.LE:
		return less || same, nil
	case syntax.GT:
		return !less && !same, nil
	case syntax.GE:
		return !less, nil
	}
	return nil, ev.fail(e, "operator %s does not apply to numbers", sign(e.Op))
}

// choose is {key: value, ...}[x]: a table in an expression. Only the value that
// is asked for is computed.
func (ev *evaluator) choose(e *syntax.IndexExpr, d *syntax.DictExpr) (any, error) {
	x, err := ev.eval(e.Y)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, it := range d.List {
		entry, ok := it.(*syntax.DictEntry)
		if !ok {
			return nil, ev.fail(it, "a table holds key: value")
		}
		k, err := ev.eval(entry.Key)
		if err != nil {
			return nil, err
		}
		switch eq, err := ev.equal(entry, k, x); {
		case err != nil:
			return nil, err
		case eq:
			return ev.eval(entry.Value)
		}
		known = append(known, pyStr(k))
	}
	return nil, ev.fail(e.Y, "%s is not in the table%s", Show(x), suggest(pyStr(x), known))
}

// functions lists the functions of the language.
var functions = []string{"abs", "enumerate", "int", "len", "max", "min", "range", "reversed", "round", "sqrt", "sum", "zip"}

// Functions returns the functions that expressions may call.
func Functions() []string { return slices.Clone(functions) }

// insteadOf is what to write for a call as Python has it.
func insteadOf(fn syntax.Expr) string {
	dot, ok := fn.(*syntax.DotExpr)
	if !ok {
		return ""
	}
	of, _ := dot.X.(*syntax.Ident)
	switch name := dot.Name.Name; {
	case name == "size" || name == "dim":
		return "; the size of a tensor is x.shape[0], its number of dimensions x.ndim"
	case of != nil && of.Name == "self":
		return fmt.Sprintf("; modules are called by entries, such as {call: %s, inputs: x}", name)
	default:
		return fmt.Sprintf("; functions and methods of torch are entries, such as {%s: x}", name)
	}
}

func (ev *evaluator) call(e *syntax.CallExpr) (any, error) {
	id, ok := e.Fn.(*syntax.Ident)
	if !ok {
		return nil, ev.fail(e, "only the functions %s can be called%s", strings.Join(functions, ", "), insteadOf(e.Fn))
	}
	var args []any
	for _, a := range e.Args {
		if b, ok := a.(*syntax.BinaryExpr); ok && b.Op == syntax.EQ {
			return nil, ev.fail(a, "functions take no keyword arguments")
		}
		v, err := ev.eval(a)
		if err != nil {
			return nil, err
		}
		args = append(args, v)
	}
	switch id.Name {
	case "len":
		if len(args) == 1 {
			switch l := args[0].(type) {
			case []any:
				return int64(len(l)), nil
			case Sized:
				if n, ok := l.Len(); ok {
					return int64(n), nil
				}
			}
		}
		return nil, ev.fail(e, "len needs one list")
	case "enumerate", "reversed", "zip":
		return ev.lists(e, id.Name, args)
	case "round":
		if len(args) == 1 {
			switch n := args[0].(type) {
			case int64:
				return n, nil
			case float64:
				if math.Abs(n) < 1<<62 {
					return int64(math.RoundToEven(n)), nil
				}
			}
		}
		return nil, ev.fail(e, "round needs one number")
	case "range":
		return ev.rangeOf(e, args)
	case "abs", "int":
		if len(args) == 1 {
			switch n := args[0].(type) {
			case int64:
				if id.Name == "abs" && n < 0 {
					if n == math.MinInt64 {
						return nil, ev.fail(e, "integer overflow")
					}
					return -n, nil
				}
				return n, nil
			case float64:
				if id.Name == "abs" {
					return math.Abs(n), nil
				}
				if math.Abs(n) < 1<<62 {
					return int64(n), nil
				}
			}
		}
		return nil, ev.fail(e, "%s needs one number", id.Name)
	case "sqrt":
		if len(args) == 1 {
			n, isFloat := args[0].(float64)
			if i, ok := args[0].(int64); ok {
				n, isFloat = float64(i), true
			}
			if isFloat && n >= 0 {
				return math.Sqrt(n), nil
			}
		}
		return nil, ev.fail(e, "sqrt needs one number that is not negative")
	case "min", "max", "sum":
		list := args
		if len(args) == 1 {
			if l, ok := args[0].([]any); ok {
				list = l
			}
		}
		return ev.fold(e, id.Name, list)
	}
	return nil, ev.fail(e, "unknown function %q%s", id.Name, suggest(id.Name, append([]string(nil), functions...)))
}

// lists are the functions that make a list of lists.
func (ev *evaluator) lists(e *syntax.CallExpr, name string, args []any) (any, error) {
	var from [][]any
	n := maxList
	for i, a := range args {
		l, ok := a.([]any)
		if !ok {
			return nil, ev.fail(e.Args[i], "%s needs lists, not %s", name, typeName(a))
		}
		from, n = append(from, l), min(n, len(l))
	}
	if len(from) == 0 || len(from) > 1 && name != "zip" {
		return nil, ev.fail(e, "%s needs one list", name)
	}
	if err := ev.spend(e, n*len(from)); err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		switch name {
		case "enumerate":
			out[i] = []any{int64(i), from[0][i]}
		case "reversed":
			out[i] = from[0][n-1-i]
		default:
			item := make([]any, len(from))
			for k := range from {
				item[k] = from[k][i]
			}
			out[i] = item
		}
	}
	return ev.made(e, out)
}

func (ev *evaluator) rangeOf(e *syntax.CallExpr, args []any) (any, error) {
	var n []int64
	for _, a := range args {
		i, ok := a.(int64)
		if !ok {
			return nil, ev.fail(e, "range needs integers")
		}
		n = append(n, i)
	}
	from, to, step := int64(0), int64(0), int64(1)
	switch len(n) {
	case 1:
		to = n[0]
	case 2:
		from, to = n[0], n[1]
	case 3:
		from, to, step = n[0], n[1], n[2]
	default:
		return nil, ev.fail(e, "range needs one to three integers")
	}
	if step == 0 {
		return nil, ev.fail(e, "range needs a step other than 0")
	}
	out := []any{}
	for i := from; (step > 0 && i < to) || (step < 0 && i > to); i += step {
		if len(out) == maxList {
			return nil, ev.fail(e, "list is longer than %d", maxList)
		}
		out = append(out, i)
		if (step > 0 && i > math.MaxInt64-step) || (step < 0 && i < math.MinInt64-step) {
			break
		}
	}
	return ev.made(e, out)
}

func (ev *evaluator) fold(e *syntax.CallExpr, name string, list []any) (any, error) {
	if len(list) == 0 && name != "sum" {
		return nil, ev.fail(e, "%s of nothing", name)
	}
	if err := ev.spend(e, len(list)); err != nil {
		return nil, err
	}
	var acc any = int64(0)
	for i, v := range list {
		f, ok := number(v)
		if !ok {
			return nil, ev.fail(e, "%s needs numbers, not %s", name, typeName(v))
		}
		if i == 0 && name != "sum" {
			acc = v
			continue
		}
		g, _ := number(acc)
		switch {
		case name == "sum":
			a, aInt := acc.(int64)
			b, bInt := v.(int64)
			if aInt && bInt {
				if (a+b > a) != (b > 0) && b != 0 {
					return nil, ev.fail(e, "integer overflow")
				}
				acc = a + b
			} else {
				acc = f + g
			}
		case (name == "min") == (f < g) && f != g:
			acc = v
		}
	}
	return acc, nil
}
