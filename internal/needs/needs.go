// Package needs says of tests what they need that not every machine, or not every
// run, has: a test without it is skipped, with a message that begins with "needs". Where
// MEMPLAN_NEEDS is "all", as in CI, what a machine lacks is a failure; what is left to
// "make test ALL=1" is skipped with -short alone.
package needs

import (
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Variable names what a machine lacks a failure, if it is "all".
const Variable = "MEMPLAN_NEEDS"

// Lacks skips a test that needs what the machine has not, or fails it.
func Lacks(t testing.TB, what string) {
	t.Helper()
	if all() {
		t.Fatalf("needs %s, and %s is all", what, Variable)
	}
	t.Skip("needs ", what)
}

func all() bool { return os.Getenv(Variable) == "all" }

// Missing reports whether a program is not there, to scripts that are skipped without
// it; where that is a failure it is an error.
func Missing(tool string) (bool, error) {
	_, err := exec.LookPath(tool)
	if err != nil && all() {
		return true, fmt.Errorf("needs %s, and %s is all", tool, Variable)
	}
	return err != nil, nil
}

// Time skips a test with -short, which "make test" gives, as does the race detector's
// run: what takes the time, or why a race cannot be in it.
func Time(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs time (make test ALL=1, not -short): ", why)
	}
}

// Alone says of what takes time that nothing runs in it at the same time as something
// else, so that the race detector finds nothing there.
const Alone = "nothing in it runs at the same time as something else"

// Raced skips a test under the race detector, which would find nothing in it.
func Raced(t testing.TB, why string) {
	t.Helper()
	if Race {
		t.Skip("needs no race detector: ", why)
	}
}

// Tool returns the path of the first of some programs, all of which are needed.
func Tool(t testing.TB, names ...string) string {
	t.Helper()
	first := ""
	for _, name := range names {
		at, err := exec.LookPath(name)
		if err != nil {
			Lacks(t, fmt.Sprintf("%s (%v)", strings.Join(names, ", "), err))
		}
		if first == "" {
			first = at
		}
	}
	return first
}

// System skips a test on systems other than these: it needs what they have.
func System(t testing.TB, what string, systems ...string) {
	t.Helper()
	if !slices.Contains(systems, runtime.GOOS) {
		t.Skipf("needs %s, which is there on %s", what, strings.Join(systems, " and "))
	}
}

// Symlink makes a symbolic link, which takes a privilege on Windows.
func Symlink(t testing.TB, to, link string) {
	t.Helper()
	switch err := os.Symlink(to, link); {
	case err == nil:
	case runtime.GOOS == "windows":
		Lacks(t, fmt.Sprintf("symbolic links (%v)", err))
	default:
		t.Fatal(err)
	}
}

// Clone returns the top of the repository: a module as a proxy serves it is none.
func Clone(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); root == "" || err != nil {
		Lacks(t, "a clone of the repository")
	}
	Tool(t, "git")
	return root
}

// root leads from the folder in which a test starts, that of its package, to the
// module's; "" if there is none.
var root = find()

func find() string {
	for dir := "."; len(dir) < 64; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return ""
}

// File returns the path of a file or folder of testdata, which is a module of its own
// so that what users fetch is small.
func File(t testing.TB, elem ...string) string {
	t.Helper()
	dir := filepath.Join(root, "testdata")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); root == "" || err != nil {
		Lacks(t, "testdata, which a clone of the repository has, and the module as a proxy serves it has not: git clone https://github.com/memplan/memplan")
	}
	return filepath.Join(append([]string{dir}, elem...)...)
}

// Rows reads the rows of a table in CSV of testdata, but its heading.
func Rows(t testing.TB, elem ...string) [][]string {
	t.Helper()
	f, err := os.Open(File(t, elem...))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 2 {
		t.Fatalf("%s has no rows", f.Name())
	}
	return rows[1:]
}
