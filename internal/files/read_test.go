package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// tree makes a folder with a project in it, and links out of it and inside.
func tree(t *testing.T) (dir, project string) {
	t.Helper()
	needs.Symlink(t, "to", filepath.Join(t.TempDir(), "link"))
	dir = t.TempDir()
	project = filepath.Join(dir, "project")
	for name, text := range map[string]string{
		"secret": "s", "project/a": "a", "project/sub/b": "b", "project/.git/config": "c", "project/sub/.GIT/x": "d", "project2/x": "e",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"project/out": "../secret", "project/in": "sub/b", "project/abs": filepath.Join(project, "a"), "project/absout": filepath.Join(dir, "secret"),
		"project/folder": "..", "project/loop": "loop", "project/togit": ".git/config", "project/chain": "sub/../out", "project/gone": "../nowhere", "here": "project",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, project
}

func TestRoot(t *testing.T) {
	dir, project := tree(t)
	for _, at := range []string{project, filepath.Join(dir, "here"), project + "/sub/.."} {
		root, err := NewRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{project, filepath.Join(dir, "here")} { // a project is reached through links, too
			for name, want := range map[string]string{"a": "a", "sub/b": "b", "in": "b", "abs": "a", "sub/../a": "a", "sub/../../project/a": "a"} {
				if text, err := root.Read(filepath.Join(base, name), MaxText); string(text) != want || err != nil {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
			for name, want := range map[string]OutsideError{
				"../secret": {}, "../project2/x": {}, "../nowhere": {}, "out": {Link: true}, "absout": {Link: true}, "folder/secret": {Link: true}, "folder/nowhere": {Link: true}, "gone": {Link: true}, "folder/secret/x": {Link: true}, "chain": {Link: true},
				".git/config": {Git: true}, "togit": {Git: true}, "sub/.GIT/x": {Git: true},
			} {
				text, err := root.Read(filepath.Join(base, name), MaxText)
				outside := (*OutsideError)(nil)
				if !errors.As(err, &outside) || outside.Link != want.Link || outside.Git != want.Git || len(text) > 0 {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
			for _, name := range []string{"nowhere", "loop", "sub", "a/b"} {
				if text, err := root.Read(filepath.Join(base, name), MaxText); err == nil || errors.As(err, new(*OutsideError)) {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
		}
	}
	if root, err := NewRoot("/"); err != nil || root != (Root{}) {
		t.Error(root, err)
	}
	if text, err := (Root{}).Read(filepath.Join(project, "out"), MaxText); string(text) != "s" || err != nil {
		t.Error(text, err)
	}
	if _, err := NewRoot(filepath.Join(project, "a")); err == nil {
		t.Error("a file is no root")
	}
	t.Chdir(project)
	root, err := NewRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := root.Read("sub/b", MaxText); string(text) != "b" || err != nil {
		t.Error(text, err)
	}
	if _, err := root.Read("../secret", MaxText); !errors.As(err, new(*OutsideError)) {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	dir, project := tree(t)
	path := filepath.Join(project, "a")
	if _, err := Read(path, 0); !errors.As(err, new(*SizeError)) || !strings.HasPrefix(err.Error(), "read "+path+": larger than the limit of 0 bytes") {
		t.Error(err)
	}
	if text, err := Read(path, 1); string(text) != "a" || err != nil {
		t.Error(text, err)
	}
	for _, name := range []string{dir, "/dev/zero"} {
		if _, err := Read(name, 10); !errors.Is(err, ErrNotRegular) {
			t.Error(name, err)
		}
		if _, err := ReadNamed(name, 10); !errors.Is(err, ErrNotRegular) {
			t.Error(name, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "nowhere"), 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	large := filepath.Join(dir, "large") // nothing of it is on the disk
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(3 << 30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1, func() {
		if _, err := Read(large, MaxText); !errors.As(err, new(*SizeError)) {
			t.Error(err)
		}
	}); n > 50 {
		t.Errorf("%v allocations", n)
	}
	if _, err := ReadStream(strings.NewReader("abc"), "x", 2); !errors.As(err, new(*SizeError)) {
		t.Error(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("memplan: 1\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if text, err := ReadNamed("/dev/fd/"+strconv.Itoa(int(r.Fd())), MaxText); runtime.GOOS == "linux" && (string(text) != "memplan: 1\n" || err != nil) {
		t.Errorf("%q, %v", text, err)
	}
	r.Close()
}

func TestProjectRoot(t *testing.T) {
	dir, project := tree(t)
	t.Chdir(dir)
	for _, c := range []struct {
		name, want string
		project    bool
	}{
		{filepath.Join(project, "sub", "b"), project, true},
		{filepath.Join("project", "a"), project, true},
		{filepath.Join("project2", "x"), dir, true}, // no .git: the current folder
		{filepath.Join(filepath.Dir(dir), "x", "y"), filepath.Join(filepath.Dir(dir), "x"), false},
	} {
		got, in, err := ProjectRoot(c.name)
		if got != c.want || in != c.project || err != nil {
			t.Errorf("%s: %s, %t, %v", c.name, got, in, err)
		}
	}
}
