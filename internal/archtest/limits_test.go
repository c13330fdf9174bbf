package archtest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/limit"
)

// limits are the constants behind docs/limits.md, in the order of its tables.
var limits = []struct{ file, name string }{
	{"spec/read.go", "maxFileBytes"},
	{"spec/read.go", "maxNodes"},
	{"spec/read.go", "maxDepth"},
	{"spec/expr.go", "maxExprBytes"},
	{"spec/expr.go", "maxExprDepth"},
	{"spec/expr.go", "maxExprSteps"},
	{"spec/expr.go", "maxParts"},
	{"spec/expr.go", "maxList"},
	{"spec/expr.go", "maxWeight"},
	{"spec/expr.go", "maxString"},
	{"graph/unroll.go", "maxStatements"},
	{"graph/unroll.go", "maxNesting"},
	{"graph/size.go", "maxSteps"},
	{"aten/tensor_shape.go", "maxPieces"},
	{"spec/diag.go", "maxErrors"},
	{"spec/diag.go", "maxMessage"},
	{"estimate/estimate.go", "maxNotes"},
	{"gate/examine.go", "maxFindings"},
	{"gate/result.go", "maxTold"},
	{"gate/baseline.go", "maxGone"},
	{"gate/glob.go", "maxGlobs"},
	{"oom/parse.go", "maxFailures"},
	{"data/array.go", "maxUnpacked"},
	{"files/read.go", "MaxText"},
	{"data/array.go", "MaxFile"},
	{"cli/simulate.go", "maxTrace"},
	{"cli/simulate.go", "maxLog"},
	{"history/history.go", "maxFiles"},
	{"gate/rename.go", "maxCompared"},
}

// constantOf evaluates a constant of a file.
func constantOf(t *testing.T, file, name string) int64 {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "../"+file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || v.Names[0].Name != name {
				continue
			}
			info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
			if err := types.CheckExpr(fset, nil, token.NoPos, v.Values[0], info); err != nil {
				t.Fatalf("%s: %s: %v", file, name, err)
			}
			n, _ := constant.Int64Val(info.Types[v.Values[0]].Value)
			return n
		}
	}
	t.Fatalf("%s has no constant %s", file, name)
	return 0
}

// grouped writes a number with commas.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The limits that docs/limits.md states are those of the code.
func TestLimits(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([0-9,]+)(?: bytes)? \| `).FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(limits) {
		t.Fatalf("docs/limits.md has %d rows of numbers, and there are %d constants", len(rows), len(limits))
	}
	for i, l := range limits {
		if want := grouped(constantOf(t, l.file, l.name)); rows[i][1] != want {
			t.Errorf("docs/limits.md says %s where %s of %s is %s", rows[i][1], l.name, l.file, want)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("| `--%s` | %dGiB |", limit.MemoryFlag, limit.DefaultMemory>>30), fmt.Sprintf("| `--%s` | %v |", limit.TimeFlag, limit.DefaultTime),
		fmt.Sprintf("may take %dGiB and %s steps of work", limit.CheckMemory>>30, grouped(limit.CheckWork)), grouped(limit.WorkPerSecond) + " steps", grouped(constantOf(t, "gate/run.go", "maxUnits")) + " specs times GPUs",
		fmt.Sprintf("%d times as long", constantOf(t, "cli/check.go", "checkTime")), fmt.Sprintf("of %d bytes each", constantOf(t, "gate/glob.go", "maxGlob")),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/limits.md does not say %q", want)
		}
	}
}
