package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// MaxText bounds what is read of a file that holds text for people: a spec, a
// configuration, a baseline, a table of devices, a config.json.
const MaxText = 16 << 20

// ErrNotRegular is the error where a folder, a device, a pipe or a socket stands
// in place of a file.
var ErrNotRegular = errors.New("not a regular file")

// A SizeError is the error where a file is larger than what is read of it.
type SizeError struct{ Limit int64 }

func (e *SizeError) Error() string {
	return fmt.Sprintf("larger than the limit of %d bytes for files of its kind", e.Limit)
}

// Read reads a regular file of at most limit bytes, with links followed. The
// error is an *fs.PathError, which wraps ErrNotRegular or a *SizeError.
func Read(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name) // before opening, which would wait for a pipe's other end
	if err != nil {
		return nil, named(err, name)
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOpen(f, name, limit)
}

// ReadNamed is Read of a file that the user named on the command line, which may
// also be a pipe, such as a shell's <(command).
func ReadNamed(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		return Read(name, limit)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadStream(f, name, limit)
}

// readOpen reads an open file, if it is a regular one.
func readOpen(f *os.File, name string, limit int64) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	case info.Size() > limit:
		return nil, &fs.PathError{Op: "read", Path: name, Err: &SizeError{limit}}
	}
	return ReadStream(f, name, limit)
}

// ReadStream reads a stream to its end, which must come after at most limit
// bytes; name is what errors call it.
func ReadStream(r io.Reader, name string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: &SizeError{limit}}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Root is the folder that files which a spec or a configuration names must lie
// in. Its zero value lets them lie anywhere.
type Root struct{ dir string } // absolute, links followed; "": anywhere

// An OutsideError says that a file which a spec or a configuration names lies
// outside of the project.
type OutsideError struct {
	Name string
	Link bool // a link leads out
	Git  bool // it is git's own: neither read nor written
}

func (e *OutsideError) Error() string {
	switch {
	case e.Git:
		return fmt.Sprintf("%s belongs to git", e.Name)
	case e.Link:
		return e.Name + " is a link that leads out of the project (--root names another folder)"
	}
	return e.Name + " lies outside of the project (--root names another folder)"
}

// NewRoot returns the root at a folder.
func NewRoot(dir string) (Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Root{}, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return Root{}, err
	}
	info, err := os.Stat(real)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: dir, Err: errors.New("not a folder")}
	}
	if real == filepath.VolumeName(real)+string(filepath.Separator) {
		real = ""
	}
	return Root{real}, err
}

// Read reads a file in the root like the function Read. Neither the name nor a
// link on its way may lead out of the root, or to what is git's: the error is
// then an *OutsideError, whether or not there is such a file.
func (r Root) Read(name string, limit int64) ([]byte, error) {
	real, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	text, err := Read(real, limit)
	return text, named(err, name)
}

// maxLinks bounds the links on the way to a file, as Linux does.
const maxLinks = 40

// Resolve follows the links of a name and returns where it leads, if that is in
// the root. Nothing is asked of the file system about what lies outside.
func (r Root) Resolve(name string) (string, error) {
	if r.dir == "" {
		return name, nil
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	rel, ok := r.within(abs)
	if !ok {
		return "", &OutsideError{Name: name}
	}
	at, rest := r.dir, strings.Split(rel, string(filepath.Separator))
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && at == r.dir:
			return "", &OutsideError{Name: name, Link: true}
		case part == "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		to, err := os.Readlink(next)
		if err != nil { // no link, or nothing at all
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: name, Err: errors.New("too many links")}
		}
		if filepath.IsAbs(to) {
			if to, ok = r.within(filepath.Clean(to)); !ok {
				return "", &OutsideError{Name: name, Link: true}
			}
			at = r.dir
		}
		rest = append(strings.Split(to, string(filepath.Separator)), rest...)
	}
	if rel, err := filepath.Rel(r.dir, at); err != nil || ofGit(rel) {
		return "", &OutsideError{Name: name, Git: true}
	}
	if _, err := os.Lstat(at); err != nil {
		return "", named(err, name)
	}
	return at, nil
}

// named puts the name that the user gave into an error of opening a file.
func named(err error, name string) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Op, at.Path = "open", name
	}
	return err
}

// within is a path from the root, if it is in the root by itself. The root may be
// spelt with its links followed, or as one of the path's own folders that is the
// root by way of a link.
func (r Root) within(abs string) (rel string, ok bool) {
	for _, root := range r.spellings(abs) {
		if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return "", false
}

// spellings are the root as a path may spell it.
func (r Root) spellings(abs string) []string {
	out := []string{r.dir}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil && real == r.dir && dir != r.dir {
			return append(out, dir)
		}
		if dir == filepath.Dir(dir) {
			return out
		}
	}
}

// ofGit reports a path through a folder of git's, whose configuration may hold
// credentials.
func ofGit(rel string) bool {
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

// inside reports whether a folder lies in another one, links followed.
func inside(dir, outer string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if outer, err = filepath.EvalSymlinks(outer); err != nil {
		return false
	}
	rel, err := filepath.Rel(outer, real)
	return err == nil && filepath.IsLocal(rel)
}

// ProjectRoot is the folder of the project that a file belongs to: the nearest
// one above it that holds a .git; without one the current folder, if the file lies
// in it; else its own, and the file belongs to no project.
func ProjectRoot(name string) (dir string, project bool, err error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", false, err
	}
	found := ""
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		// One that a link of an outer project leads to is not the file's.
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil && (found == "" || !inside(found, dir)) {
			found = dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if found != "" {
		return found, true, nil
	}
	cwd, err := os.Getwd()
	if err != nil {
		return "", false, err
	}
	if rel, err := filepath.Rel(cwd, abs); err == nil && filepath.IsLocal(rel) {
		return cwd, true, nil
	}
	return filepath.Dir(abs), false, nil
}

// ThroughLink reports whether a folder below top, on the way to a file, is a link
// or the top of another repository. The file's name has slashes.
func ThroughLink(top, name string) bool {
	for dir := path.Dir(name); dir != "." && dir != "/" && dir != ".."; dir = path.Dir(dir) {
		at := filepath.Join(top, filepath.FromSlash(dir))
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return true
		}
	}
	return false
}
