package torchver

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/releases.md")

// TestChanges: each row says since when, what, why that is known, and which test of this
// repository fails without it.
func TestChanges(t *testing.T) {
	said := map[string]bool{}
	for _, c := range Changes() {
		switch {
		case !c.Since.AtLeast(Oldest) || c.Since == Oldest || !Newest.AtLeast(c.Since):
			t.Errorf("%q: since %v", c.What, c.Since)
		case !slices.Contains(areas, c.Area):
			t.Errorf("%q: area %q", c.What, c.Area)
		case !strings.HasSuffix(c.What, "."), said[c.What]:
			t.Errorf("%q: no sentence, or said twice", c.What)
		case c.Source == "":
			t.Errorf("%q has no source", c.What)
		case c.Held == "" && c.Left == "":
			t.Errorf("%q is held by no test, and nothing says what is left out", c.What)
		case c.Held != "" && !there(t, c.Held):
			t.Errorf("%q: there is no %s", c.What, c.Held)
		}
		said[c.What] = true
	}
}

// there reports whether a test exists: a file of testdata, or "PACKAGE TEST".
func there(t *testing.T, held string) bool {
	pkg, name, ok := strings.Cut(held, " ")
	if !ok {
		_, err := os.Stat(filepath.Join("../..", held))
		return err == nil
	}
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	test := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && test.Match(text)
	})
}

// TestHas compares a row with the releases around its own.
func TestHas(t *testing.T) {
	for _, c := range Changes() {
		before := Version{c.Since.Major, c.Since.Minor - 1}
		if before.Has(c) || !c.Since.Has(c) || Newest.Has(c) != (c.Until == Version{}) || Recorded.Has(c) {
			t.Errorf("%q: since %v", c.What, c.Since)
		}
	}
}

// docText is docs/releases.md.
func docText(t *testing.T) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Releases of PyTorch

memplan models PyTorch %v as it was recorded, and later releases by their differences from it:
`+"`--torch 2.9`"+`, `+"`torch: 2.9`"+` in a spec. Each difference that reaches memory is a row of
`+"`internal/torchver`"+`, with its source and with the test that fails without it. This page is written
from the rows. %v is not released; its rows are of the main branch.

`, Recorded, Newest)
	for v := (Version{Recorded.Major, Recorded.Minor + 1}); Newest.AtLeast(v); v.Minor++ {
		fmt.Fprintf(&b, "## %v\n\n", v)
		n := 0
		for _, c := range Changes() {
			if c.Since != v {
				continue
			}
			if n++; n == 1 {
				b.WriteString("| area | what changed | source | test, or what memplan leaves out |\n|---|---|---|---|\n")
			}
			held := c.Left
			if c.Held != "" {
				held = strings.TrimSpace("`" + c.Held + "` " + c.Left)
			}
			what := c.What
			if c.Until != (Version{}) {
				what += fmt.Sprintf(" Until %v.", c.Until)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Area, what, c.Source, held)
		}
		if n == 0 {
			b.WriteString("No difference that reaches memory was found.\n")
		}
		b.WriteString("\n")
	}
	b.WriteString("## What was read\n\n" + strings.TrimSpace(readText) + "\n\n" + comparedText(t))
	return b.Bytes()
}

func TestDoc(t *testing.T) {
	const path = "../../docs/releases.md"
	want := docText(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/releases.md is stale (%v): run go test ./internal/torchver -run TestDoc -update", err)
	}
}
