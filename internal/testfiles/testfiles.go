// Package testfiles finds testdata, which is a module of its own so that what
// users fetch is small. Tests of a module that a proxy served have none: what
// needs it skips there, and says so.
package testfiles

import (
	"os"
	"path/filepath"
	"testing"
)

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

// Path returns the path of a file or folder of testdata. It skips the test where
// there is no testdata.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	dir := filepath.Join(root, "testdata")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); root == "" || err != nil {
		t.Skip("needs testdata, which a clone of the repository has, and the module as a proxy serves it has not: git clone https://github.com/memplan/memplan")
	}
	return filepath.Join(append([]string{dir}, elem...)...)
}
