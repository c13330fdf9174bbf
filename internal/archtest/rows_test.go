package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// byName are the functions that may ask for the name of an operator's or an
// optimizer's row: they read a spec, a report or a trace, or print one.
var byName = map[string]bool{
	"op.Define": true, "optim.define": true, // which make the table that parsing reads
	"aten.Keepable":          true, // a word of a spec
	"op.WriteEvidence":       true,
	"engine.ran":             true, // sorted for print
	"estimate.operatorNotes": true, // the operators of a trace
	"exporttorch.stmt":       true, // x += y, as Python writes it
	"exporttorch.op":         true,
	"exporttorch.packages":   true, // each is imported once
}

// TestRowsByValue finds comparisons of rows by their names: switches, maps and
// predicates of strings, too. A row is its Go value.
func TestRowsByValue(t *testing.T) {
	names := []string{"op", "aten", "engine", "graph", "nn", "runtime", "optim", "estimate", "advise", "gate", "exporttorch"}
	exports := exportData(t, names)
	for _, name := range names {
		for _, at := range namesCompared(t, name, exports) {
			t.Error(at)
		}
	}
}

// exportData are the files that the compiler made of all packages that these need.
func exportData(t *testing.T, names []string) map[string]string {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, n := range names {
		args = append(args, module+"internal/"+n)
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		path, file, _ := strings.Cut(s.Text(), " ")
		files[path] = file
	}
	return files
}

// namesCompared are the places of a package where the name of a row is compared.
func namesCompared(t *testing.T, name string, exports map[string]string) []string {
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join("..", name, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := conf.Check(module+"internal/"+name, fset, files, info); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		for _, d := range f.Decls {
			in := name + "."
			if fn, is := d.(*ast.FuncDecl); is {
				in += fn.Name.Name
				if in == "op.init" || in == "aten.init" {
					found = append(found, fmt.Sprintf("%s: a row that init makes or changes depends on the names of files", fset.Position(fn.Pos())))
				}
			}
			if byName[in] {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if c, is := n.(*ast.CallExpr); is && lookedUp(c) {
					found = append(found, fmt.Sprintf("%s: %s looks up a row by a name that it knows; use the row", fset.Position(c.Pos()), in))
				}
				for _, e := range compared(n, info) {
					if rowName(e, info) {
						found = append(found, fmt.Sprintf("%s: %s asks for the name of a row; compare the row itself", fset.Position(e.Pos()), in))
					}
				}
				return true
			})
		}
	}
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
