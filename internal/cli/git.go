package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// readGit reads the file at path as of a commit by running the user's git. As
// with all names of files, the path starts at the current folder; git looks for
// its repository from the file's folder on.
func readGit(ctx context.Context, ref, path string) ([]byte, error) {
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
	rel, err := filepath.Rel(dir, full)
	if err != nil {
		return nil, err
	}
	text, err := runGit(ctx, dir, "cat-file", "blob", ref+":./"+filepath.ToSlash(rel))
	said := (*gitError)(nil)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s:%s: no such file, and to read one as of a commit git is needed: %w", ref, path, err)
	case errors.As(err, &said):
		return nil, fmt.Errorf("%s:%s: no such file, and as of a commit neither: %w", ref, path, err)
	}
	return text, err
}

// gitError is what git says when it fails.
type gitError struct{ message string }

func (e *gitError) Error() string { return "git says: " + e.message }

// runGit runs the user's git in a folder and returns what it prints. The error
// is a *gitError, or wraps exec.ErrNotFound if there is no git, or is ctx's.
func runGit(ctx context.Context, dir string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "git", args...)
	var out, said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &out, &said
	for _, v := range os.Environ() { // a hook of git runs with the places of another folder
		if !strings.HasPrefix(v, "GIT_DIR=") && !strings.HasPrefix(v, "GIT_WORK_TREE=") && !strings.HasPrefix(v, "GIT_INDEX_FILE=") {
			c.Env = append(c.Env, v)
		}
	}
	exit := (*exec.ExitError)(nil)
	switch err := c.Run(); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &exit):
		message, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return nil, &gitError{strings.TrimPrefix(message, "fatal: ")}
	case err != nil:
		return nil, err
	}
	return out.Bytes(), nil
}
