package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoor: who imports this package needs no other of the module. What it exports
// has a comment, and types of internal packages only by names of its own.
func TestDoor(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	exported := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		internal := map[string]bool{}
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			internal[path[strings.LastIndexByte(path, '/')+1:]] = strings.Contains(path, "/internal/")
		}
		check := func(name string, n ast.Node) {
			exported++
			ast.Inspect(n, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
						t.Errorf("%s has %s.%s, which programs cannot name", name, x.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				if d.Name.Name != "FromRecipe" {
					check(d.Name.Name, d.Type)
				}
				if d.Doc == nil && d.Name.Name != "Error" && d.Name.Name != "Unwrap" {
					t.Errorf("%s has no comment", d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					typ, ok := s.(*ast.TypeSpec)
					if !ok || !typ.Name.IsExported() {
						continue
					}
					if d.Doc == nil {
						t.Errorf("%s has no comment", typ.Name.Name)
					}
					fields, ok := typ.Type.(*ast.StructType)
					if !ok {
						continue // a name for another type
					}
					for _, f := range fields.Fields.List {
						if len(f.Names) == 0 || f.Names[0].IsExported() {
							check(typ.Name.Name, f.Type)
						}
					}
				}
			}
		}
	}
	if exported < 20 {
		t.Errorf("only %d functions and fields are exported", exported)
	}
}
