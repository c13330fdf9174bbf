package archtest

import (
	"go/ast"
	"go/token"
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
	eachSource(t, func(p string, set *token.FileSet, file *ast.File) {
		if !isTest(p) {
			return
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
	})
	for p := range readsClock {
		if !found[p] {
			t.Errorf("%s does not read the clock any more", p)
		}
	}
}
