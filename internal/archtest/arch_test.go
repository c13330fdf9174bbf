// Package archtest holds the table of packages in docs/architecture.md against
// the code: each package is in the table and imports what its row says, no more
// and no less. And it holds what else is agreed on all packages: what is told by value and
// not by name, which files may use which, what runs at start-up or reads the clock,
// comments, limits, licences.
package archtest

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/memplan/memplan/"

// rows reads the table: package → names that it may import, sorted.
func rows(t *testing.T) map[string][]string {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		names := strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
		if cells[2] == "–" {
			names = nil
		}
		slices.Sort(names)
		table[strings.Trim(cells[0], "`")] = names
	}
	return table
}

// imports lists what each package of the module imports from outside the
// standard library, tests aside, by the last element of its path; of some
// libraries the name stands for their subpackages too.
func imports(t *testing.T) map[string][]string {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], module)
		got[pkg] = nil
		for _, imp := range words[1:] {
			if !strings.Contains(strings.Split(imp, "/")[0], ".") {
				continue // the standard library
			}
			name := path.Base(imp)
			for _, lib := range []string{"tablewriter", "go-git/v5", "go-billy/v5"} { // with their subpackages
				if strings.Contains(imp+"/", "/"+lib+"/") {
					name = strings.TrimSuffix(lib, "/v5")
				}
			}
			name = strings.TrimPrefix(name, "go-")
			if !slices.Contains(got[pkg], name) {
				got[pkg] = append(got[pkg], name)
			}
		}
		slices.Sort(got[pkg])
	}
	return got
}

func TestImportTable(t *testing.T) {
	table, got := rows(t), imports(t)
	for pkg, names := range got {
		want, ok := table[pkg]
		switch {
		case strings.HasPrefix(pkg, "tools/") || pkg == "internal/archtest":
		case !ok:
			t.Errorf("%s is not in the table of docs/architecture.md", pkg)
		case slices.Contains(want, "anything"):
			for _, n := range names {
				if !slices.Contains(want, n) && !isOurs(got, n) {
					t.Errorf("%s imports %s, which its row does not have", pkg, n)
				}
			}
		case !slices.Equal(names, want):
			t.Errorf("%s imports %v; the table says %v", pkg, names, want)
		}
		for _, n := range names {
			if n == "accuracy" && !strings.HasPrefix(pkg, "tools/") {
				t.Errorf("%s imports accuracy, which is for tests and tools", pkg)
			}
		}
	}
	for pkg := range table {
		if _, ok := got[pkg]; !ok {
			t.Errorf("%s is in the table and not in the code", pkg)
		}
	}
}

// isOurs reports whether a package of the module has that last element.
func isOurs(got map[string][]string, name string) bool {
	for pkg := range got {
		if path.Base(pkg) == name {
			return true
		}
	}
	return false
}
