package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestScopeIsPoppedWhole finds functions that keep a field of autograd.Scope in a variable
// and put it back: what is entered is left by Pop, all of it, also where the
// recomputation of a checkpoint stops in between.
func TestScopeIsPoppedWhole(t *testing.T) {
	fields := map[string]bool{}
	var functions []*ast.FuncDecl
	files := token.NewFileSet()
	err := filepath.WalkDir("../engine", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				functions = append(functions, n)
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && (n.Name.Name == "Scope" || n.Name.Name == "around") {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							fields[name.Name] = true
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fields["Env"] = true // as others call it
	for _, fn := range functions {
		for _, field := range savedByHand(fn, fields) {
			t.Errorf("%s: %s saves %s and puts it back; Push and Pop do", files.Position(fn.Pos()), fn.Name.Name, field)
		}
	}
	if len(functions) < 400 || len(fields) < 18 {
		t.Errorf("%d functions and %d fields were read", len(functions), len(fields))
	}
}

// savedByHand lists the fields that fn assigns to a variable, and from it again.
func savedByHand(fn *ast.FuncDecl, fields map[string]bool) []string {
	players := map[string]bool{}
	params := fn.Type.Params.List
	if fn.Recv != nil {
		params = append(params[:len(params):len(params)], fn.Recv.List...)
	}
	for _, p := range params {
		switch types.ExprString(p.Type) {
		case "*Player", "*autograd.Player", "*Interp", "*python.Interp", "*job", "*Reducer":
			for _, n := range p.Names {
				players[n.Name] = true
			}
		}
	}
	ofScope := func(e ast.Expr) bool {
		text := strings.Split(strings.ReplaceAll(types.ExprString(e), "()", ""), ".")
		for i, part := range text {
			if i > 0 && fields[part] {
				return players[text[0]]
			}
		}
		return false
	}
	var out []string
	saved := map[string]string{} // by variable
	ast.Inspect(fn, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != len(a.Rhs) {
			return true
		}
		for i, l := range a.Lhs {
			r := a.Rhs[i]
			if v, ok := l.(*ast.Ident); ok && ofScope(r) {
				saved[v.Name] = types.ExprString(r)
			}
			if v, ok := r.(*ast.Ident); ok && ofScope(l) && saved[v.Name] == types.ExprString(l) {
				out = append(out, saved[v.Name])
			}
		}
		return true
	})
	return out
}
