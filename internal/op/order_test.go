//go:build !race

package op

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// TestOrder builds the package with its files under other names, in other orders: the
// table is the same, since Go initializes variables by what they depend on. No init()
// may say otherwise.
func TestOrder(t *testing.T) {
	needs.Time(t, "builds the package several times")
	want := rowsUnder(t, nil)
	if n := strings.Count(want, "\n"); n < len(Rows()) {
		t.Fatalf("%d lines for %d rows", n, len(Rows()))
	}
	for seed := range uint64(3) {
		if got := rowsUnder(t, rand.New(rand.NewPCG(seed, 0))); got != want {
			t.Errorf("seed %d: with other names of files the rows are\n%s", seed, firstDifference(got, want))
		}
	}
}

// rowsUnder prints the rows of the package whose files have names in a random order,
// or those that they have.
func rowsUnder(t *testing.T, order *rand.Rand) string {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sources := []string{}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			sources = append(sources, f)
		}
	}
	replace := map[string]string{filepath.Join(dir, "rowlist", "main.go"): filepath.Join(dir, "testdata", "rows", "main.go")}
	copies := t.TempDir()
	if order != nil {
		for i, k := range order.Perm(len(sources)) {
			text, err := os.ReadFile(sources[i])
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(copies, sources[i])
			if err := os.WriteFile(copied, text, 0o666); err != nil {
				t.Fatal(err)
			}
			replace[filepath.Join(dir, sources[i])] = ""
			replace[filepath.Join(dir, fmt.Sprintf("file%03d.go", k))] = copied
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(copies, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", "-overlay", overlay, "./rowlist").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// firstDifference are the first lines in which texts differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return g[i] + "\nnot\n" + strings.Join(w[i:min(i+1, len(w))], "")
		}
	}
	return "fewer"
}
