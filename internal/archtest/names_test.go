package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// TestNamesOfDocs: the files that docs/architecture.md names are there, as are the
// targets of the Makefile that any page or text of the repository calls.
func TestNamesOfDocs(t *testing.T) {
	needs.File(t) // is named, too
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var sources []string
	root := os.DirFS("../..")
	for _, dir := range []string{"cmd", "docs", "internal", "plan", "specs", "testdata", "tools"} {
		err := fs.WalkDir(root, dir, func(p string, e fs.DirEntry, err error) error {
			sources = append(sources, p)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile("`([\\w./*-]+\\.(?:go|yaml|md|gz))`").FindAllStringSubmatch(read("docs/architecture.md"), -1)
	if len(named) < 20 {
		t.Errorf("only %d files are named", len(named))
	}
	for _, m := range named {
		found := false
		for _, s := range sources { // named from the root, from internal, or in the package that the sentence is about
			for tail := s; !found && tail != ""; _, tail, _ = strings.Cut(tail, "/") {
				found, _ = path.Match(m[1], tail)
			}
		}
		if !found {
			t.Errorf("docs/architecture.md names %s, which is not there", m[1])
		}
	}

	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"README.md", "SECURITY.md", "CHANGELOG.md", ".ci/run"}
	for _, p := range pages {
		files = append(files, "docs/"+filepath.Base(p))
	}
	makefile := read("Makefile")
	for _, f := range files {
		call := regexp.MustCompile("`make ([\\w -]+)`")
		if f == ".ci/run" {
			call = regexp.MustCompile(`(?m)^make ([\w -]+?)(?: [A-Z]|$)`)
		}
		for _, m := range call.FindAllStringSubmatch(read(f), -1) {
			for _, target := range strings.Fields(m[1]) {
				if !strings.HasPrefix(target, "-") && !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s calls make %s, which the Makefile does not have", f, target)
				}
			}
		}
	}
}
