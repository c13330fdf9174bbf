package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/history"
)

// gitName splits REF:PATH, which means the file at PATH as of a commit, as git
// writes it. A file of the whole name comes first, and the drive letters of
// Windows are no REF.
func gitName(name string) (ref, path string, ok bool) {
	ref, path, ok = strings.Cut(name, ":")
	if !ok || ref == "" || path == "" || strings.HasPrefix(ref, "-") || filepath.VolumeName(name) != "" || strings.HasPrefix(name, presetPrefix) {
		return "", "", false
	}
	_, err := os.Lstat(name)
	return ref, path, err != nil
}

// gitConfig is gitName of a configuration. A commit comes before a file of the
// whole name: a change may have brought a folder origin with a file
// main:.memplan.yaml, which must not pass for what the commit has.
func gitConfig(name string) (ref, path string, ok bool) {
	if ref, path, ok = gitName(name); ok {
		return ref, path, ok
	}
	ref, path, ok = strings.Cut(name, ":")
	if !ok || ref == "" || path == "" || strings.HasPrefix(ref, "-") || filepath.VolumeName(name) != "" {
		return "", "", false
	}
	repo, err := history.Open(".")
	if err != nil {
		return "", "", false
	}
	if _, err := repo.Commit(ref); err != nil {
		return "", "", false
	}
	return ref, path, true
}

// fileOf is the file at path as of a commit of the repository that the current
// folder lies in; links of the working tree count for nothing.
func fileOf(ref, name string) (inTree, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return inTree{}, err
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return inTree{}, err
	}
	repo, err := history.Open(cwd)
	if err != nil {
		return inTree{}, err
	}
	tree, err := repo.Commit(ref)
	if err != nil {
		return inTree{}, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	rel, err := filepath.Rel(repo.Top, name)
	if err != nil || !filepath.IsLocal(rel) {
		return inTree{}, fmt.Errorf("%s lies outside of the repository", name)
	}
	return inTree{tree, filepath.ToSlash(rel)}, nil
}

// A noFileError says that there is no file of a name, neither as it stands nor as
// of a commit.
type noFileError struct {
	name string
	err  error
}

func (e *noFileError) Error() string {
	return fmt.Sprintf("%s: no such file, and as of a commit neither: %v", e.name, e.err)
}
func (e *noFileError) Unwrap() error { return e.err }

// readCommit reads the file at path as of a commit. As with all names of files,
// the path starts at the current folder; the repository is looked for from the
// file's folder on.
func readCommit(ref, path string, limit int64) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, &noFileError{ref + ":" + path, err} }
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(full)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir) // the commit may have folders that are gone
	}
	repo, err := history.Open(dir)
	if err != nil {
		return fail(err)
	}
	tree, err := repo.Commit(ref)
	if err != nil {
		return fail(err)
	}
	name, err := inRepo(tree, dir, full)
	if err != nil {
		return fail(err)
	}
	text, err := tree.Read(name, limit)
	if errors.Is(err, os.ErrNotExist) {
		return fail(fmt.Errorf("the commit has no %s", name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%s: %w", ref, path, err)
	}
	return text, nil
}

// inRepo is the path of a file from the top of its repository, with slashes; the
// links of dir, a folder that there is and the file lies in, are followed as git
// does.
func inRepo(tree *history.Tree, dir, full string) (string, error) {
	rest, err := filepath.Rel(dir, full)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(tree.Top(), filepath.Join(real, rest))
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s lies outside of the repository", full)
	}
	return filepath.ToSlash(rel), nil
}
