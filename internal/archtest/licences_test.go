package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

// allowed are the licences under which memplan's dependencies may be: those that
// let it be handed on under its own. MPL-2.0 asks that changes of a dependency's
// own files are published; memplan changes none. FTL, the FreeType License, asks to be
// named, which tools/release does.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "FTL", "ISC", "MIT", "MPL-2.0"}

// chosen are the licences that are taken of modules under several.
var chosen = map[string]string{"github.com/golang/freetype": "licenses/ftl.txt"}

// licenceName finds the files that hold a licence.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)(\.(md|txt))?$`)

// TestLicences reads the licence of every module that is linked into memplan,
// with and without the CUDA backend.
func TestLicences(t *testing.T) {
	modules := map[string]string{} // path → folder
	for _, tags := range []string{"", "cuda"} {
		for _, system := range []string{"linux", "windows", "darwin"} {
			c := exec.Command("go", "list", "-deps", "-tags", tags, "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`, module+"cmd/memplan")
			c.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=1")
			out, err := c.Output()
			if err != nil {
				t.Fatalf("go list for %s: %v", system, err)
			}
			for line := range strings.Lines(string(out)) {
				if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
					modules[path] = dir
				}
			}
		}
	}
	if len(modules) < 10 {
		t.Fatalf("only %d modules are linked: %v", len(modules), modules)
	}
	known, err := assets.DefaultClassifier()
	if err != nil {
		t.Fatal(err)
	}
	for path, dir := range modules {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			if licenceName.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
		if name, ok := chosen[path]; ok {
			names = []string{name}
		}
		found := false
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range known.Match(text).Matches {
				if m.MatchType != "License" {
					continue
				}
				if found = true; !slices.Contains(allowed, m.Name) {
					t.Errorf("%s is under %s; allowed are %s", path, m.Name, strings.Join(allowed, ", "))
				}
			}
		}
		if !found {
			t.Errorf("%s has no licence that is known", path)
		}
	}
}
