package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/memplan/memplan/internal/files"
)

// sparseIndexes are indexes of one repository, as git writes them, whose checkout
// leaves out two files or, as sparse indexes are of cones, two folders.
func sparseIndexes(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for name, set := range map[string][][]string{
		"version 3": {{"update-index", "--index-version=3"}},
		"version 4": {{"update-index", "--index-version=4"}},
		"sparse":    {{"sparse-checkout", "set", "--cone", "--sparse-index", "deep"}},
		"split":     {{"update-index", "--split-index"}},
	} {
		dir := repository(t)
		write(t, dir, strings.Repeat("long/", 40)+"name", "x\n")
		runGit(t, dir, "add", "-A")
		if name != "sparse" {
			runGit(t, dir, "update-index", "--skip-worktree", "deep/er/b.yaml", "link.yaml")
		} else {
			runGit(t, dir, "commit", "-q", "-m", "long")
		}
		for _, args := range set {
			runGit(t, dir, args...)
		}
		text, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = text
	}
	return out
}

// TestIndex reads what is left out from the forms of the index.
func TestIndex(t *testing.T) {
	indexes := sparseIndexes(t)
	for name, want := range map[string][]string{
		"version 3": {"deep/er/b.yaml", "link.yaml"},
		"version 4": {"deep/er/b.yaml", "link.yaml"},
		"sparse":    {".hidden/", "long/"},
	} {
		entries, shared, err := readIndex(bytes.NewReader(indexes[name]))
		var got []string
		for _, e := range entries {
			got = append(got, e.name)
		}
		if err != nil || !slices.Equal(got, want) || shared != "" {
			t.Errorf("%s: %q, %q, %v, want %q", name, got, shared, err, want)
		}
	}
	// Which entries are in its own part depends on when files were written.
	if _, shared, err := readIndex(bytes.NewReader(indexes["split"])); err != nil || !strings.HasPrefix(shared, "sharedindex.") {
		t.Errorf("split: %q, %v", shared, err)
	}
}

// TestSplitIndex asks repositories with a split index: where nothing is left out that
// does not matter, else it is said.
func TestSplitIndex(t *testing.T) {
	for _, sparse := range []string{"", "before", "after"} {
		dir := repository(t)
		// Git writes anew what was changed just before.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "deep/er/b.yaml"), old, old); err != nil {
			t.Fatal(err)
		}
		runGit(t, dir, "update-index", "--refresh")
		skip := func(when string) {
			if sparse == when {
				runGit(t, dir, "update-index", "--skip-worktree", "deep/er/b.yaml")
			}
		}
		skip("before")
		runGit(t, dir, "update-index", "--split-index")
		write(t, dir, "new.yaml", "x\n")
		runGit(t, dir, "add", "-A")
		skip("after")
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Sparse()
		if sparse != "" {
			if err == nil || !strings.Contains(err.Error(), "git update-index --no-split-index joins it") {
				t.Errorf("%s: %v", sparse, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.LeavesOut("deep/er/b.yaml"); out || err != nil {
			t.Error(out, err)
		}
	}
}

// TestLeavesOut asks for files and folders, those that are in none of the entries
// themselves, too.
func TestLeavesOut(t *testing.T) {
	for _, form := range []string{"--no-sparse-index", "--sparse-index"} {
		dir := repository(t)
		write(t, dir, "deeper.yaml", "x\n")
		write(t, dir, "deep-er/a.yaml", "x\n") // git sorts it before deep/
		write(t, dir, "kept/a.yaml", "x\n")
		runGit(t, dir, "add", "-A")
		runGit(t, dir, "commit", "-q", "-m", "more")
		runGit(t, dir, "sparse-checkout", "set", "--cone", form, "kept")
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Sparse()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"deep": true, "deep/er": true, "deep/er/b.yaml": true, "deep/c.txt": true, ".hidden": true, "deep-er": true, "deep-er/a.yaml": true,
			"dee": false, "deep/nope": false, "deep/er/nope.yaml": false, "deeper.yaml": false, "kept": false, "kept/a.yaml": false, "nope": false, ".": false,
		} {
			if got, err := s.LeavesOut(name); got != want || err != nil {
				t.Errorf("%s: %s: %t, %v", form, name, got, err)
			}
		}
		s.folders["lacking"] = plumbing.Hash{1} // of a partial clone
		if got, err := s.LeavesOut("lacking/a.yaml"); !got || err != nil {
			t.Error(got, err)
		}
	}
}

// prefixed is an index of version 4 with n names that the checkout leaves out, each of
// which is the one before and one letter more. The first has a number of letters.
func prefixed(first, n int) []byte {
	b := []byte("DIRC\x00\x00\x00\x04")
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for i := range n {
		b = append(b, make([]byte, 60)...)
		b = append(b, "\x40\x00\x40\x00\x00"...) // flags, extended flags, nothing is dropped
		if i == 0 {
			b = append(b, bytes.Repeat([]byte{'a'}, first)...)
		}
		b = append(b, "b\x00"...)
	}
	return append(b, make([]byte, 20)...)
}

// TestHugeNames reads indexes of some hundred kilobytes whose names are gigabytes: go-git
// keeps all of them.
func TestHugeNames(t *testing.T) {
	for _, c := range []struct {
		first, n int
		want     error
	}{{1000, 1000, nil}, {maxName, 1, errIndexName}, {maxName - 10, 100, errIndexName}, {maxName / 2, 10_000, errIndexAll}} {
		got, _, err := readIndex(bytes.NewReader(prefixed(c.first, c.n)))
		if !errors.Is(err, c.want) || c.want == nil && len(got) != c.n {
			t.Errorf("%d names from %d letters on: %d, %v", c.n, c.first, len(got), err)
		}
	}
}

// TestDamagedIndex cuts indexes off at each byte, and flips each: nothing crashes, and
// no entry is lost without an error. Behind the entries a cut is not always seen.
func TestDamagedIndex(t *testing.T) {
	for name, text := range sparseIndexes(t) {
		whole, _, _ := readIndex(bytes.NewReader(text))
		for n := range text {
			got, _, err := readIndex(bytes.NewReader(text[:n]))
			if !errors.Is(err, errIndexEnds) && !(err == nil && slices.Equal(got, whole)) {
				t.Errorf("%s: %d of %d bytes: %v, %v", name, n, len(text), got, err)
			}
			for _, flip := range []byte{1, 0x80, 0xff} {
				bad := slices.Clone(text)
				bad[n] ^= flip
				_, _, _ = readIndex(bytes.NewReader(bad)) // most bytes are of times and hashes
			}
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"", "the file ends too early"},
		"another file":     {"memplan: 1\n# ", "which memplan cannot read"},
		"another version":  {"DIRC\x00\x00\x00\x05\x00\x00\x00\x00", "of version 5"},
		"too many":         {"DIRC\x00\x00\x00\x02\xff\xff\xff\xff", "the file ends too early"},
		"a name too short": {"DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\x00", 62) + "\x01a\x00", "drops more than there is"},
		"a huge number":    {"DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\x00", 62) + strings.Repeat("\xff", 9) + "\x01a\x00", "it has a name of more than 65536 bytes"},
		"an extension":     {"DIRC\x00\x00\x00\x02\x00\x00\x00\x00what\x00\x00\x00\x00" + strings.Repeat("\x00", 20), `an extension "what"`},
		"a huge extension": {"DIRC\x00\x00\x00\x02\x00\x00\x00\x00WHAT\xff\xff\xff\xff" + strings.Repeat("\x00", 20), "the file ends too early"},
	} {
		if _, _, err := readIndex(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoIndex opens repositories where there is none, as in bare ones, and where
// something else stands in its place.
func TestNoIndex(t *testing.T) {
	dir := repository(t)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, ".git", "index")
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Sparse(); err != nil || len(s.names) > 0 {
		t.Error(s, err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sparse(); !errors.Is(err, files.ErrNotRegular) {
		t.Error(err)
	}
}
