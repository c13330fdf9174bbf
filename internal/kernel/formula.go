package kernel

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Formula says what a kernel of kind Map computes: assignments, one after the
// other, to operands and to variables that they make up, for each element. Devices
// run it or are generated from it, so that there is one place that says what a
// step of an optimizer is.
type Formula []Assignment

// Assignment is one line of a formula: "[when NAME:] TARGET = EXPRESSION". With
// when, it counts only where the optional operand of that name is there, or the
// number is not 0.
type Assignment struct {
	When, To string
	Value    *Term
}

// Term is a part of an expression: an operator or function of others, a name, or
// a number.
type Term struct {
	Op     string // of Functions; "" for a name or a number
	Name   string
	Number float64
	Args   []*Term
}

// Functions are what formulas may call or write as operators, with how many terms
// each takes. choose(x, a, b, c) is a for x > 0, b for x < 0, c otherwise.
var Functions = map[string]int{"+": 2, "-": 2, "*": 2, "/": 2, "sqrt": 1, "abs": 1, "sign": 1, "max": 2, "min": 2, "choose": 4, "tanh": 1, "sigmoid": 1}

// parseFormula reads lines whose expressions are written as in Go.
func parseFormula(lines []string) (Formula, error) {
	var f Formula
	for _, line := range lines {
		var a Assignment
		rest := line
		if when, then, ok := strings.Cut(line, ":"); ok {
			a.When, rest = strings.TrimSpace(strings.TrimPrefix(when, "when")), then
		}
		to, value, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, fmt.Errorf("formula %q has no =", line)
		}
		e, err := parser.ParseExpr(value)
		if err != nil {
			return nil, fmt.Errorf("formula %q: %w", line, err)
		}
		if a.Value, err = term(e); err != nil {
			return nil, fmt.Errorf("formula %q: %w", line, err)
		}
		a.To = strings.TrimSpace(to)
		f = append(f, a)
	}
	return f, nil
}

func term(e ast.Expr) (*Term, error) {
	call := func(op string, args ...ast.Expr) (*Term, error) {
		if n, ok := Functions[op]; !ok || n != len(args) {
			return nil, fmt.Errorf("no function %s of %d terms", op, len(args))
		}
		t := &Term{Op: op}
		for _, a := range args {
			x, err := term(a)
			if err != nil {
				return nil, err
			}
			t.Args = append(t.Args, x)
		}
		return t, nil
	}
	switch x := e.(type) {
	case *ast.ParenExpr:
		return term(x.X)
	case *ast.Ident:
		return &Term{Name: x.Name}, nil
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(x.Value, 64)
		return &Term{Number: v}, err
	case *ast.BinaryExpr:
		return call(x.Op.String(), x.X, x.Y)
	case *ast.UnaryExpr:
		if x.Op == token.SUB {
			return call("-", &ast.BasicLit{Value: "0"}, x.X)
		}
	case *ast.CallExpr:
		if name, ok := x.Fun.(*ast.Ident); ok {
			return call(name.Name, x.Args...)
		}
	}
	return nil, fmt.Errorf("%T is no part of a formula", e)
}

// Variables lists the names that assignments make up, in the order of their first
// appearance.
func (k *Kernel) Variables() []string {
	known := map[string]bool{}
	for _, n := range k.Tensors {
		known[strings.TrimSuffix(n, "?")] = true
	}
	var out []string
	for _, a := range k.Formula {
		if !known[a.To] {
			known[a.To] = true
			out = append(out, a.To)
		}
	}
	return out
}

// Elementwise is a kernel that a formula defines, for whatever needs one: operands, which
// are written, and after them g, which is where a line says so; numbers; and the lines.
// All of them are made where a package starts, so that a device's generated code has
// them.
func Elementwise(name, operands, numbers string, lines ...string) *Kernel {
	return byFormula(name, operands, "g", numbers, lines...)
}

// byFormula is a kernel whose operands are some that it writes, and some that it reads; of
// these, the first is written where a line says so. One that is absent is 0 where it is read.
func byFormula(name, written, read, numbers string, lines ...string) *Kernel {
	f, err := parseFormula(lines)
	writes, reads := strings.Fields(written), strings.Fields(read)
	k := Kernel{Name: name, Tensors: slices.Concat(writes, reads), Outputs: len(writes), Floats: strings.Fields(numbers), Formula: f, index: -1}
	if err == nil {
		err = k.checkNames()
	}
	if slices.ContainsFunc(f, func(a Assignment) bool { return a.To == reads[0] }) {
		k.Outputs++
	}
	if err == nil && byName[name] != nil {
		err = errors.New("there is one of this name")
	}
	if err != nil {
		panic("kernel: " + name + ": " + err.Error())
	}
	formulas, byName[name] = append(formulas, &k), &k
	return &k
}

// checkNames reports a name in a formula that is nothing, and an operand or a number
// that is in none of its lines.
func (k *Kernel) checkNames() error {
	used := map[string]bool{}
	for _, n := range slices.Concat(k.Tensors, k.Floats) {
		used[strings.TrimSuffix(n, "?")] = false
	}
	var unknown string
	use := func(n string) {
		if _, known := used[n]; !known && n != "" && unknown == "" {
			unknown = n
		}
		used[n] = true
	}
	var walk func(t *Term)
	walk = func(t *Term) {
		use(t.Name)
		for _, a := range t.Args {
			walk(a)
		}
	}
	for _, a := range k.Formula {
		use(a.When)
		walk(a.Value)
		used[a.To] = true
	}
	if unknown != "" {
		return fmt.Errorf("%s is no operand, number or variable", unknown)
	}
	for _, n := range slices.Sorted(maps.Keys(used)) {
		if !used[n] {
			return fmt.Errorf("%s is in no line of the formula", n)
		}
	}
	return nil
}

// Lerp is torch.lerp.
var Lerp = Elementwise("lerp", "p", "weight", "p = p + weight*(g-p)")
