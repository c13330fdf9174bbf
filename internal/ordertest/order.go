// Package ordertest builds a package with its files under other names, in other
// orders; for tests of tables that must not depend on them.
package ordertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Rows holds what testdata/rows/main.go prints of the package in the working folder
// against what it prints where the files have other names: the same, since Go
// initializes variables by what they depend on. It returns what is printed.
func Rows(t *testing.T) string {
	want := under(t, nil)
	for seed := range uint64(3) {
		if got := under(t, rand.New(rand.NewPCG(seed, 0))); got != want {
			t.Errorf("seed %d: with other names of files the rows are\n%s", seed, firstDifference(got, want))
		}
	}
	return want
}

// under prints the rows of the package whose files have names in a random order, or
// those that they have.
func under(t *testing.T, order *rand.Rand) string {
	t.Helper()
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
