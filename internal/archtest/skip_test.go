package archtest

import (
	"bufio"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// skips are the files beside package needs in which tests are skipped, and why.
var skips = map[string]string{
	"internal/runtime/numbers_test.go":   "a test that records, and is asked for by a flag",
	"internal/record/start_test.go":      "a test that records, and is asked for by a flag",
	"internal/accuracy/accuracy_test.go": "the gate, which make accuracy asks for by a flag",
}

// scriptSkips is a line of a script that ends it: for what package needs decides of, or
// for what a system has not.
var scriptSkips = regexp.MustCompile(`^\[(lacks:\w+|windows)\] skip '(needs .+)'$`)

// TestSkips: a test is skipped by package needs alone, which says what it needs, and
// fails in its place where a machine is to have all.
func TestSkips(t *testing.T) {
	found := map[string]bool{}
	eachSource(t, func(p string, set *token.FileSet, file *ast.File) {
		if strings.HasPrefix(p, "internal/needs/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			s, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			if name := s.Sel.Name; name != "SkipNow" && !(isTest(p) && (name == "Skip" || name == "Skipf")) {
				return true
			}
			if found[p] = true; skips[p] == "" {
				t.Errorf("%v: %s: a test says what it lacks by package needs", set.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
	})
	for p := range skips {
		if !found[p] {
			t.Errorf("%s skips no test any more", p)
		}
	}
	scripts, err := filepath.Glob(needs.File(t, "script", "*.txtar"))
	if err != nil || len(scripts) < 20 {
		t.Fatal(len(scripts), "scripts", err)
	}
	for _, path := range scripts {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan() && !strings.HasPrefix(s.Text(), "-- "); {
			line := s.Text()
			if _, command, _ := strings.Cut(line, "] "); strings.HasPrefix(line, "skip") || strings.HasPrefix(command, "skip") || strings.HasPrefix(command, "stop") {
				if !scriptSkips.MatchString(line) {
					t.Errorf("%s: %s: what it needs is asked by [lacks:TOOL]", filepath.Base(path), line)
				}
			}
		}
	}
}
