package spec

import (
	"strings"

	"go.starlark.net/syntax"
)

// matrixProduct is the operator @, for which Starlark has no token.
const matrixProduct = syntax.NEWLINE

// parsePython parses an expression of Python. Starlark's grammar lacks **, @ and
// items with a star in lists and tuples. They are replaced, before it reads the
// text, by signs that it has in their places and that are as wide, and the tree is
// mended then.
func parsePython(src string) (syntax.Expr, error) {
	text, m := standIns(src)
	e, err := (&syntax.FileOptions{}).ParseExpr("", text, 0)
	if err != nil || len(m) == 0 {
		return e, err
	}
	return m.mend(e), nil
}

// standInSigns are the signs that others stand for, by their columns.
type standInSigns map[int32]syntax.Token

// standIns replaces the signs that Starlark lacks: ** and @ by *, the star of an
// item by +.
func standIns(src string) (string, standInSigns) {
	if !strings.ContainsAny(src, "*@") {
		return src, nil
	}
	m := standInSigns{}
	out := []rune(src)
	quote := rune(0)
	before := '['   // the last character that is no space: at the start, an item may begin
	var call []bool // of each bracket: that of a call, whose stars Starlark knows
	for i := 0; i < len(out); i++ {
		c, col := out[i], int32(i+1)
		switch {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			call = append(call, c == '(' && (before == ')' || before == ']' || wordRune(before)))
		case c == ')' || c == ']' || c == '}':
			call = call[:max(len(call)-1, 0)]
		case c == '*' && i+1 < len(out) && out[i+1] == '*' && !strings.ContainsRune("([,", before):
			m[col], out[i+1] = syntax.STARSTAR, ' '
			c = '+'
			i++
		case c == '*' && strings.ContainsRune("([,", before) && (len(call) == 0 || !call[len(call)-1]):
			m[col], out[i] = syntax.STAR, '+'
		case c == '@':
			m[col], out[i] = matrixProduct, '*'
		}
		if c != ' ' && c != '\t' {
			before = c
		}
	}
	return string(out), m
}

// mend puts the signs back that others stand for.
func (m standInSigns) mend(e syntax.Expr) syntax.Expr {
	each := func(es []syntax.Expr) {
		for i := range es {
			es[i] = m.mend(es[i])
		}
	}
	switch e := e.(type) {
	case *syntax.ParenExpr:
		e.X = m.mend(e.X)
	case *syntax.UnaryExpr:
		if e.X != nil {
			e.X = m.mend(e.X)
		}
	case *syntax.BinaryExpr:
		e.X, e.Y = m.mend(e.X), m.mend(e.Y)
		switch m[e.OpPos.Col] {
		case syntax.STARSTAR:
			return raised(e.X, e)
		case matrixProduct:
			e.Op = matrixProduct
		}
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = m.mend(e.Cond), m.mend(e.True), m.mend(e.False)
	case *syntax.ListExpr:
		each(e.List)
		m.stars(e.List)
	case *syntax.TupleExpr:
		each(e.List)
		m.stars(e.List)
	case *syntax.IndexExpr:
		e.X, e.Y = m.mend(e.X), m.mend(e.Y)
	case *syntax.SliceExpr:
		e.X = m.mend(e.X)
		for _, b := range []*syntax.Expr{&e.Lo, &e.Hi, &e.Step} {
			if *b != nil {
				*b = m.mend(*b)
			}
		}
	case *syntax.DotExpr:
		e.X = m.mend(e.X)
	case *syntax.CallExpr:
		e.Fn = m.mend(e.Fn)
		each(e.Args)
	case *syntax.DictExpr:
		each(e.List)
	case *syntax.DictEntry:
		e.Key, e.Value = m.mend(e.Key), m.mend(e.Value)
	case *syntax.Comprehension:
		e.Body = m.mend(e.Body)
		for _, c := range e.Clauses {
			switch c := c.(type) {
			case *syntax.ForClause:
				c.X = m.mend(c.X)
			case *syntax.IfClause:
				c.Cond = m.mend(c.Cond)
			}
		}
	}
	return e
}

// raised is x ** y, where power was read as a product of x and y. The operator
// binds tighter than those in x and is right-associative: of -a * b ** c only b is
// raised.
func raised(x syntax.Expr, power *syntax.BinaryExpr) syntax.Expr {
	switch x := x.(type) {
	case *syntax.BinaryExpr:
		x.Y = raised(x.Y, power)
		return x
	case *syntax.UnaryExpr:
		x.X = raised(x.X, power)
		return x
	}
	return &syntax.BinaryExpr{X: x, OpPos: power.OpPos, Op: syntax.STARSTAR, Y: power.Y}
}

// stars makes items with a star of those that begin with the plus in its place.
func (m standInSigns) stars(items []syntax.Expr) {
	for i := range items {
		at := &items[i]
		for {
			switch e := (*at).(type) {
			case *syntax.BinaryExpr:
				at = &e.X
				continue
			case *syntax.CondExpr:
				at = &e.True
				continue
			case *syntax.UnaryExpr:
				if e.Op == syntax.PLUS && m[e.OpPos.Col] == syntax.STAR {
					*at = e.X
					items[i] = &syntax.UnaryExpr{OpPos: e.OpPos, Op: syntax.STAR, X: items[i]}
				}
			}
			break
		}
	}
}

// sign is how an operator is written.
func sign(op syntax.Token) string {
	if op == matrixProduct {
		return "@"
	}
	return op.String()
}
