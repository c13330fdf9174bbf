package history

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/needs"
)

// runGit runs the machine's git, which the package itself does without.
func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "protocol.file.allow=always"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repository has three commits, of which a.yaml is "one", "two" and gone.
func repository(t *testing.T, init ...string) string {
	t.Helper()
	needs.Tool(t, "git")
	dir := t.TempDir()
	runGit(t, dir, append([]string{"init", "-q", "-b", "main"}, init...)...)
	write(t, dir, "a.yaml", "one\n")
	write(t, dir, "deep/er/b.yaml", "b\n")
	write(t, dir, "deep/c.txt", "c\n")
	write(t, dir, ".hidden/d.yaml", "d\n")
	needs.Symlink(t, "a.yaml", filepath.Join(dir, "link.yaml"))
	runGit(t, dir, "add", "-A")
	runGit(t, dir, "commit", "-q", "-m", "one")
	runGit(t, dir, "tag", "light")
	runGit(t, dir, "tag", "-a", "-m", "x", "heavy")
	write(t, dir, "a.yaml", "two\n")
	runGit(t, dir, "commit", "-q", "-a", "-m", "two")
	runGit(t, dir, "branch", "side/branch")
	runGit(t, dir, "rm", "-q", "a.yaml")
	runGit(t, dir, "commit", "-q", "-m", "three")
	return dir
}

func read(t *testing.T, dir, ref, name string) (string, error) {
	t.Helper()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Commit(ref)
	if err != nil {
		return "", err
	}
	text, err := tree.Read(name, files.MaxText)
	return string(text), err
}

// TestRefs holds the names of commits against git's own reading of them.
func TestRefs(t *testing.T) {
	dir := repository(t)
	for _, pack := range []bool{false, true} {
		if pack {
			runGit(t, dir, "gc", "-q", "--aggressive", "--prune=now")
		}
		for _, ref := range []string{"HEAD~1", "HEAD^", "main~2", "light", "heavy", "heavy^{commit}", "side/branch", "refs/heads/side/branch", "heads/side/branch", "@~1",
			runGit(t, dir, "rev-parse", "HEAD~1"), runGit(t, dir, "rev-parse", "--short", "light")} {
			got, err := read(t, dir, ref, "a.yaml")
			if want := runGit(t, dir, "cat-file", "blob", ref+":a.yaml"); err != nil || got != want+"\n" {
				t.Errorf("packed %t: %s: %q, %v, want %q", pack, ref, got, err, want)
			}
		}
		for _, ref := range []string{"nope", "", strings.Repeat("1", 40), "main~9", "-x", "../main", "HEAD:a.yaml", "..", "a..b", "\x00"} {
			if _, err := read(t, dir, ref, "a.yaml"); !errors.As(err, new(*CommitError)) {
				t.Errorf("%q: %v", ref, err)
			}
		}
		if _, err := read(t, dir, "main", "a.yaml"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, name := range []string{"nope/a.yaml", "a.yaml/x", "deep/nope", "../a.yaml", ""} {
			if _, err := read(t, dir, "light", name); err == nil {
				t.Errorf("%q is there", name)
			}
		}
		if got, err := read(t, dir, "light", "link.yaml"); err != nil || got != "one\n" {
			t.Errorf("link.yaml: %q, %v", got, err)
		}
		for name, want := range map[string]string{"deep": "a folder"} {
			if _, err := read(t, dir, "light", name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	r, err := Open(filepath.Join(dir, "deep", "er"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Commit("light")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tree.Blob("a.yaml"); b != runGit(t, dir, "rev-parse", "light:a.yaml") || b != BlobHash([]byte("one\n")) || err != nil {
		t.Error(b, err)
	}
	if b, err := tree.Blob("none/at/all"); b != "" || err != nil {
		t.Error(b, err)
	}
	if _, err := tree.Read("a.yaml", 2); !errors.As(err, new(*files.SizeError)) {
		t.Error(err)
	}
	visible := func(name string) bool { return !strings.HasPrefix(filepath.Base(name), ".") }
	all, err := tree.Files(".", visible, func(name string) bool { return strings.HasSuffix(name, ".yaml") })
	if want := []string{"a.yaml", "deep/er/b.yaml"}; err != nil || !slices.Equal(all, want) {
		t.Error(all, err)
	}
	if in, err := tree.Files("deep", visible, visible); err != nil || !slices.Equal(in, []string{"deep/c.txt", "deep/er/b.yaml"}) {
		t.Error(in, err)
	}
	if none, err := tree.Files("nowhere", visible, visible); err != nil || len(none) > 0 {
		t.Error(none, err)
	}
}

// TestForms reads repositories in the forms that people and services clone them
// in.
func TestForms(t *testing.T) {
	dir := repository(t)
	two := runGit(t, dir, "rev-parse", "main~1")
	for name, clone := range map[string]func(to string){
		"clone":    func(to string) { runGit(t, ".", "clone", "-q", dir, to) },
		"worktree": func(to string) { runGit(t, dir, "worktree", "add", "-q", "--detach", to, "main") },
		"shared":   func(to string) { runGit(t, ".", "clone", "-q", "--shared", dir, to) },
		"shallow, the base fetched later": func(to string) {
			runGit(t, ".", "clone", "-q", "--depth=1", "file://"+dir, to)
			runGit(t, to, "fetch", "-q", "--depth=1", "origin", two)
		},
		"sparse": func(to string) {
			runGit(t, ".", "clone", "-q", "--sparse", dir, to)
			runGit(t, to, "config", "extensions.worktreeConfig", "true")
		},
		"submodule": func(to string) {
			outer := t.TempDir()
			runGit(t, outer, "init", "-q")
			runGit(t, outer, "submodule", "--quiet", "add", dir, "sub")
			if err := os.Symlink(filepath.Join(outer, "sub"), to); err != nil {
				t.Fatal(err)
			}
		},
	} {
		to := filepath.Join(t.TempDir(), "to")
		clone(to)
		if got, err := read(t, to, two, "a.yaml"); got != "two\n" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	runGit(t, dir, "config", "uploadpack.allowFilter", "true")
	partial := filepath.Join(t.TempDir(), "partial")
	runGit(t, ".", "clone", "-q", "--filter=blob:none", "file://"+dir, partial)
	if _, err := read(t, partial, two, "a.yaml"); err == nil || !strings.Contains(err.Error(), "a partial clone has it only once it is fetched") {
		t.Error(err) // what is not there is not fetched
	}
	runGit(t, partial, "cat-file", "blob", two+":a.yaml") // git fetches it
	if got, err := read(t, partial, two, "a.yaml"); got != "two\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNoRepository) {
		t.Error(err)
	}
}

// TestUnreadable refuses forms that cannot be read, in words.
func TestUnreadable(t *testing.T) {
	dir := repository(t, "--object-format=sha256")
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "objectformat = sha256") {
		t.Error(err)
	}
	for name, text := range map[string]string{"nothing": "", "no folder": "gitdir: ", "gone": "gitdir: ../nowhere\n", "itself": "gitdir: .git\n", "words": "hello\n"} {
		dir := t.TempDir()
		write(t, dir, ".git", text)
		if _, err := Open(dir); err == nil {
			t.Errorf("%s is a repository", name)
		}
	}
	bare := t.TempDir() // as a stranger may write one
	write(t, bare, "HEAD", "ref: refs/heads/main\n")
	write(t, bare, "objects/x", "")
	write(t, bare, "refs/heads/main", strings.Repeat("1", 40)+"\n")
	if _, err := Open(bare); !errors.Is(err, ErrNoRepository) {
		t.Error(err)
	}
}
