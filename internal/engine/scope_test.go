package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestScopeIsPoppedWhole finds functions that keep a field of the scope in a variable
// and put it back: what is entered is left by pop, all of it, also where the
// recomputation of a checkpoint stops in between.
func TestScopeIsPoppedWhole(t *testing.T) {
	fields := map[string]bool{}
	for i := range reflect.TypeFor[scope]().NumField() {
		fields[reflect.TypeFor[scope]().Field(i).Name] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				seen++
				for _, field := range savedByHand(fn, fields) {
					t.Errorf("%s: %s saves %s and puts it back; push and pop do", name, fn.Name.Name, field)
				}
			}
		}
	}
	if seen < 300 {
		t.Errorf("%d functions were read", seen)
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
		case "*Player", "*interp", "*job", "*reducer":
			for _, n := range p.Names {
				players[n.Name] = true
			}
		}
	}
	ofScope := func(e ast.Expr) bool {
		text := strings.Split(types.ExprString(e), ".")
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
