package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// byName are the functions that may ask for the name of an operator's or an
// optimizer's row: they read a spec, a report or a trace, or print one.
var byName = map[string]string{
	"internal/op: Table.Define":                "makes the table that parsing reads",
	"internal/optim: define":                   "makes the table that parsing reads",
	"internal/op: Table.WriteEvidence":         "prints rows",
	"internal/aten: Keepable":                  "reads a word of a spec",
	"internal/engine/autograd: names.ran":      "sorts for print",
	"internal/estimate: Outcome.operatorNotes": "reads the operators of a trace",
	"internal/exporttorch: printer.stmt":       "prints x += y, as Python writes it",
	"internal/exporttorch: printer.op":         "prints x + y, as Python writes it",
	"internal/exporttorch: script.packages":    "imports each once",
}

// TestRowsByValue finds comparisons of rows by their names: switches, maps and
// predicates of strings, too. A row is its Go value.
func TestRowsByValue(t *testing.T) {
	used := map[string]bool{}
	for _, p := range typed(t, "internal/op", "internal/optim") {
		for _, f := range p.files {
			for _, d := range f.Decls {
				key := p.path
				if fn, is := d.(*ast.FuncDecl); is {
					key += ": " + nameOf(fn)
				}
				for _, at := range namesCompared(d, p.info) {
					if used[key] = true; byName[key] == "" {
						t.Errorf("%s: %s asks for a row by its name; use the row itself", p.fset.Position(at), key)
					}
				}
			}
		}
	}
	for key := range byName {
		if !used[key] {
			t.Errorf("%s asks for no names", key)
		}
	}
}

// namesCompared are the places of a declaration where the name of a row is compared.
func namesCompared(d ast.Decl, info *types.Info) []token.Pos {
	var found []token.Pos
	ast.Inspect(d, func(n ast.Node) bool {
		if c, is := n.(*ast.CallExpr); is && lookedUp(c) {
			found = append(found, c.Pos())
		}
		for _, e := range compared(n, info) {
			if rowName(e, info) {
				found = append(found, e.Pos())
			}
		}
		return true
	})
	return found
}

// lookedUp reports whether a call asks a table for a row by a literal.
func lookedUp(c *ast.CallExpr) bool {
	s, is := c.Fun.(*ast.SelectorExpr)
	if !is || len(c.Args) != 1 {
		return false
	}
	table, is := s.X.(*ast.Ident)
	_, literal := c.Args[0].(*ast.BasicLit)
	return is && literal && (table.Name == "aten" || table.Name == "optim") && (s.Sel.Name == "Lookup" || s.Sel.Name == "Named")
}

// compared are the expressions of which a node asks what they are.
func compared(n ast.Node, info *types.Info) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.SwitchStmt:
		return []ast.Expr{n.Tag}
	case *ast.IndexExpr:
		if _, is := info.Types[n.X].Type.Underlying().(*types.Map); is {
			return []ast.Expr{n.Index}
		}
	case *ast.CallExpr:
		if s, is := n.Fun.(*ast.SelectorExpr); is {
			if o := info.Uses[s.Sel]; o != nil && o.Pkg() != nil && (o.Pkg().Path() == "strings" || o.Pkg().Path() == "slices") {
				return n.Args
			}
		}
	}
	return nil
}

// rowName reports whether an expression is the name of a row, or made of it.
func rowName(e ast.Expr, info *types.Info) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return rowName(e.X, info)
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (rowName(e.X, info) || rowName(e.Y, info))
	case *ast.SelectorExpr:
		s := info.Selections[e]
		if s == nil || e.Sel.Name != "Name" {
			return false
		}
		of := strings.TrimPrefix(s.Recv().String(), "*")
		return of == module+"internal/op.Op" || of == module+"internal/optim.Row"
	}
	return false
}
