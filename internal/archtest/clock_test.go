package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// readsClock are the files of tests that read the clock, and why.
var readsClock = map[string]string{
	"internal/cuda/measure_test.go":  "measures a GPU, and asserts nothing of time",
	"internal/history/index_test.go": "sets the times of files",
}

// TestClock: no test asks for the time, so that none fails only because the machine
// is loaded, and none draws random numbers that another run does not draw.
func TestClock(t *testing.T) {
	found := map[string]bool{}
	root := os.DirFS("../..")
	for _, dir := range []string{"cmd", "internal", "plan", "specs", "tools"} {
		err := fs.WalkDir(root, dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(p, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(root, p)
			if err != nil {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, p, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if !ok {
					return true
				}
				switch name := x.Name + "." + s.Sel.Name; name {
				case "time.Now", "time.Since", "time.Until", "time.After", "time.NewTimer", "time.Tick":
					if found[p] = true; readsClock[p] == "" {
						t.Errorf("%v: %s: count work, events or bytes", set.Position(s.Pos()), name)
					}
				case "rand.Rand", "rand.Source", "rand.New", "rand.NewPCG", "rand.NewSource", "rand.NewChaCha8":
				default:
					if x.Name == "rand" {
						t.Errorf("%v: %s: draw from rand.New with a fixed seed", set.Position(s.Pos()), name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for p := range readsClock {
		if !found[p] {
			t.Errorf("%s does not read the clock any more", p)
		}
	}
}
