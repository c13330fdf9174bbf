package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// eachSource calls f with each Go file of the module, whatever its build tags: its path
// from the module's root, and where in it things stand.
func eachSource(t *testing.T, f func(p string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, dir := range []string{"cmd", "docs", "internal", "plan", "specs", "tools"} {
		err := fs.WalkDir(os.DirFS("../.."), dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join("../..", p), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil {
				f(p, set, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func isTest(p string) bool { return strings.HasSuffix(p, "_test.go") }
