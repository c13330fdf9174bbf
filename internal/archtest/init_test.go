package archtest

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// startsUp are the files with a function that runs at start-up, and what for. Which
// runs first depends on the names of files, so that no table is made in one.
var startsUp = map[string]string{
	"internal/cpu/table.go":                "puts together the tables of its files",
	"internal/cuda/launch.go":              "puts together the tables of its files",
	"internal/cuda/plan_lookup.go":         "adds to a variable of its package",
	"internal/cuda/plan_reduce.go":         "adds to a variable of its package",
	"internal/kernel/kerneltest/random.go": "puts together the tables of its files",
}

// TestInit: what is needed at start-up are values of variables.
func TestInit(t *testing.T) {
	found := map[string]bool{}
	eachSource(t, func(p string, _ *token.FileSet, file *ast.File) {
		if isTest(p) || strings.HasPrefix(p, "tools/") {
			return
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				if found[p] = true; startsUp[p] == "" {
					t.Errorf("%s has an init(): give a variable its value", p)
				}
			}
		}
	})
	for p := range startsUp {
		if !found[p] {
			t.Errorf("%s has no init() any more", p)
		}
	}
}
