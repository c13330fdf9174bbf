package aten

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// source is the package as it is written: its functions and variables.
type source struct {
	funcs map[string]*ast.FuncDecl
	vars  map[string]ast.Expr
	files []*ast.File
}

func parsedSource(t *testing.T) source {
	t.Helper()
	s := source{map[string]*ast.FuncDecl{}, map[string]ast.Expr{}, nil}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.files = append(s.files, f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && !ofCall(d) {
					s.funcs[d.Name.Name] = d
				}
			case *ast.GenDecl:
				for _, v := range d.Specs {
					if v, is := v.(*ast.ValueSpec); is && len(v.Names) == len(v.Values) {
						for i, n := range v.Names {
							if n.Name != "_" {
								s.vars[n.Name] = v.Values[i]
							}
						}
					}
				}
			}
		}
	}
	return s
}

// reads notes what of an operator's inputs and results e reads by a number, as "In 1" and
// "Out 0", and so the functions and values of the package that it is made of; what those
// of package op read, SavedIn and SavedOut refuse when they are called.
func (s source) reads(e ast.Node, seen map[ast.Node]bool, into map[string]bool) {
	if seen[e] {
		return
	}
	seen[e] = true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is && (f.Sel.Name == "SavedIn" || f.Sel.Name == "SavedOut") {
				if i, is := n.Args[0].(*ast.BasicLit); is {
					into[strings.TrimPrefix(f.Sel.Name, "Saved")+" "+i.Value] = true
				}
			}
		case *ast.SelectorExpr:
			s.reads(n.X, seen, into)
			return false
		case *ast.KeyValueExpr:
			s.reads(n.Value, seen, into)
			return false
		case *ast.Ident:
			if f := s.funcs[n.Name]; f != nil {
				s.reads(f.Body, seen, into)
			} else if v := s.vars[n.Name]; v != nil && !isOp(v) {
				s.reads(v, seen, into)
			}
		}
		return true
	})
}

// ofCall reports whether a function is of a call, which knows nothing of what was saved.
func ofCall(d *ast.FuncDecl) bool {
	if len(d.Type.Params.List) == 0 {
		return false
	}
	p, is := d.Type.Params.List[0].Type.(*ast.StarExpr)
	return is && unqualified(p.X) == "Call"
}

// unqualified is a name without that of its package.
func unqualified(e ast.Expr) string {
	if s, is := e.(*ast.SelectorExpr); is {
		return s.Sel.Name
	}
	return types.ExprString(e)
}

// isOp reports whether a variable is an operator, of which others say the name only.
func isOp(v ast.Expr) bool {
	c, is := v.(*ast.CallExpr)
	return is && strings.HasPrefix(types.ExprString(c.Fun), "define")
}

// elsewhere are reads of what only other rows have that are computed in the same way.
var elsewhere = map[string]string{`"_scaled_dot_product_flash_attention"`: "In 3"} // the mask

// TestSavedIsListed goes over the operators as they are written: what a derivative reads
// by a number, Save lists.
func TestSavedIsListed(t *testing.T) {
	s := parsedSource(t)
	rows := 0
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			l, is := n.(*ast.CompositeLit)
			if !is || l.Type == nil || unqualified(l.Type) != "Op" {
				return true
			}
			fields := map[string]ast.Expr{}
			for _, e := range l.Elts {
				if kv, is := e.(*ast.KeyValueExpr); is {
					fields[fmt.Sprint(kv.Key)] = kv.Value
				}
			}
			saves, is := fields["Save"].(*ast.CompositeLit)
			if !is && (fields["Save"] != nil || fields["Grad"] == nil) { // what its caller says; no derivative
				return true
			}
			rows++
			listed := map[string]bool{}
			if saves == nil {
				saves = &ast.CompositeLit{}
			}
			for _, e := range saves.Elts {
				if c, is := e.(*ast.CallExpr); is {
					listed[unqualified(c.Fun)+" "+types.ExprString(c.Args[0])] = true
				}
			}
			read := map[string]bool{}
			for _, name := range []string{"Grad", "Eval"} {
				if e := fields[name]; e != nil {
					s.reads(e, map[ast.Node]bool{}, read)
				}
			}
			name := types.ExprString(fields["Name"])
			for what := range read {
				if !listed[what] && elsewhere[name] != what {
					t.Errorf("%s reads %s, which it does not save", name, what)
				}
			}
			return true
		})
	}
	if rows < 130 {
		t.Errorf("%d operators only", rows)
	}
}
