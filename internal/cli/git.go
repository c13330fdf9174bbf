package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/history"
)

// gitName splits REF:PATH, which means the file at PATH as of a commit, as git
// writes it. A commit that there is comes before a file of the whole name: a change
// may have brought a folder origin with a file main:.memplan.yaml, which must not
// pass for what the commit has. The drive letters of Windows are no REF.
func gitName(name string) (ref, path string, ok bool) {
	ref, path, ok = strings.Cut(name, ":")
	if !ok || ref == "" || path == "" || strings.HasPrefix(ref, "-") || filepath.VolumeName(name) != "" || strings.HasPrefix(name, presetPrefix) {
		return "", "", false
	}
	if _, err := os.Lstat(name); err == nil {
		if _, err := fileOf(ref, path); err != nil {
			return "", "", false
		}
	}
	return ref, path, true
}

// inTree is a file or a folder of a commit.
type inTree struct {
	tree *history.Tree
	name string // from the top, with slashes
}

// beside is a file that this one names, by its path from this one's folder.
func (f inTree) beside(file string) (inTree, error) {
	name := path.Join(path.Dir(f.name), filepath.ToSlash(file))
	if filepath.IsAbs(file) || !filepath.IsLocal(filepath.FromSlash(name)) {
		return inTree{}, &files.OutsideError{Name: file}
	}
	return inTree{f.tree, name}, nil
}

// read reads the file, which errors call REF:PATH.
func (f inTree) read(called string, limit int64) ([]byte, error) {
	text, err := f.tree.Read(f.name, limit)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &noFileError{called, fmt.Errorf("the commit has no %s", f.name)}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	return text, nil
}

// errElsewhere is the error of a path that lies outside of a repository.
var errElsewhere = errors.New("it lies outside of the repository")

// lexical is the path of a file from the top of a repository, with slashes, whatever
// links stand on its way now.
func lexical(top, name string) (string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return "", err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	rel, err := filepath.Rel(top, name)
	if err != nil || !filepath.IsLocal(rel) {
		return "", errElsewhere
	}
	return filepath.ToSlash(rel), nil
}

// fileOf is the file at a path as of a commit of the repository that the current
// folder lies in; links of the working tree count for nothing. A path that leads out
// of that one is of the repository that its own folder lies in.
func fileOf(ref, name string) (inTree, error) {
	repo, err := history.Open(".")
	if err == nil {
		var rel string
		if rel, err = lexical(repo.Top, name); err == nil {
			tree, err := repo.Commit(ref)
			return inTree{tree, rel}, err
		}
	}
	if !errors.Is(err, history.ErrNoRepository) && !errors.Is(err, errElsewhere) {
		return inTree{}, err
	}
	full, err := filepath.Abs(name)
	if err != nil {
		return inTree{}, err
	}
	dir := filepath.Dir(full)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir) // the commit may have folders that are gone
	}
	if repo, err = history.Open(dir); err != nil {
		return inTree{}, err
	}
	tree, err := repo.Commit(ref)
	if err != nil {
		return inTree{}, err
	}
	rel, err := inRepo(tree, dir, full)
	return inTree{tree, rel}, err
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
// the path starts at the current folder.
func readCommit(ref, path string, limit int64) ([]byte, error) {
	f, err := fileOf(ref, path)
	if err != nil {
		return nil, &noFileError{ref + ":" + path, err}
	}
	return f.read(ref+":"+path, limit)
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
		return "", errElsewhere
	}
	return filepath.ToSlash(rel), nil
}
