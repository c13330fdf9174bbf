// Package history reads what files were at commits of a git repository. It reads
// git's objects, references and index and nothing else: no process is started, and no
// configuration, hook, filter, attribute or remote of the repository counts, as
// they may be untrusted.
package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"github.com/memplan/memplan/internal/files"
)

// dotGit is what the top folder of a repository holds. Git checks out no file of
// that name, so that it is never another user's; a bare repository, which another user
// may add as a folder like any other, is not looked for.
const dotGit = ".git"

// ErrNoRepository is the error where no folder above holds a .git.
var ErrNoRepository = errors.New("not in a git repository")

// A CommitError says that a repository has no such commit.
type CommitError struct {
	Ref string
	Err error
}

func (e *CommitError) Error() string {
	return "there is no such commit (a shallow clone has it only once it is fetched)"
}
func (e *CommitError) Unwrap() error { return e.Err }

// Repo is a repository. It may be used by several goroutines at once, and so may
// its trees.
type Repo struct {
	Top string // its folder, absolute, with links followed
	git *git.Repository
	mu  sync.Mutex // trees fill as they are read
}

// objects are those of a repository, without its configuration.
type objects struct{ *filesystem.Storage }

func (objects) Config() (*config.Config, error) { return config.NewConfig(), nil }

// Open opens the repository that a folder lies in: the folder, or the nearest
// one above it that holds a .git.
func Open(dir string) (*Repo, error) {
	top, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return nil, err
	}
	for {
		if _, err := os.Lstat(filepath.Join(top, dotGit)); err == nil {
			break
		}
		up := filepath.Dir(top)
		if up == top {
			return nil, ErrNoRepository
		}
		top = up
	}
	store, err := storage(filepath.Join(top, dotGit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(top, dotGit), err)
	}
	r, err := git.Open(objects{store}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(top, dotGit), err)
	}
	return &Repo{Top: top, git: r}, nil
}

// storage opens what a .git is: a folder, or a file that names one, as those of
// linked worktrees and submodules do.
func storage(dot string) (*filesystem.Storage, error) {
	info, err := os.Stat(dot)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if dot, err = named(dot, "gitdir: ", filepath.Dir(dot)); err != nil {
			return nil, err
		}
	}
	if err := readable(dot); err != nil {
		return nil, err
	}
	var at billy.Filesystem = osfs.New(dot)
	common, err := named(filepath.Join(dot, "commondir"), "", dot)
	switch {
	case err == nil:
		if err := readable(common); err != nil {
			return nil, err
		}
		at = dotgit.NewRepositoryFilesystem(at, osfs.New(common))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	everywhere := osfs.New(filepath.VolumeName(dot) + string(filepath.Separator)) // where alternates may be
	return filesystem.NewStorageWithOptions(at, cache.NewObjectLRUDefault(), filesystem.Options{AlternatesFS: everywhere, LargeObjectThreshold: files.MaxText}), nil
}

// maxPointer bounds the files of git that name a folder.
const maxPointer = 64 << 10

// named reads the folder that a file of git names behind a prefix; it is relative
// to dir.
func named(file, prefix, dir string) (string, error) {
	text, err := files.Read(file, maxPointer)
	if err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), prefix)
	if !ok || name == "" {
		return "", fmt.Errorf("%s names no folder", filepath.Base(file))
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return name, nil
}

// readable refuses repositories whose objects or references are kept in a form
// that go-git does not know. Of the configuration only this is read.
func readable(dot string) error {
	text, err := files.Read(filepath.Join(dot, "config"), files.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lower := strings.ToLower(string(text))
	for line := range strings.Lines(lower) {
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		switch {
		case key == "objectformat" && value != "sha1", key == "refstorage" && value != "files":
			return fmt.Errorf("the repository has %s = %s, which memplan cannot read", key, value)
		}
	}
	return nil
}

// ErrMissing is the error where a clone has not all objects of a commit.
var ErrMissing = plumbing.ErrObjectNotFound

// missing says where objects are that a clone has not.
func missing(err error) error {
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("%w (a partial clone has it only once it is fetched)", err)
	}
	return err
}

// Tree is what the files of a repository were at a commit.
type Tree struct {
	repo *Repo
	root *object.Tree
	Hash string // of the commit
}

// Commit looks a commit up: a branch, a tag, a hash or its beginning, HEAD~2. The
// error is a *CommitError, if there is none.
func (r *Repo) Commit(ref string) (*Tree, error) {
	if strings.Contains(ref, ":") { // no commit, but a file of one
		return nil, &CommitError{ref, errors.New("it has a colon")}
	}
	hash, err := r.git.ResolveRevision(plumbing.Revision(ref))
	if err != nil {
		return nil, &CommitError{ref, err}
	}
	c, err := r.git.CommitObject(*hash)
	if err != nil {
		return nil, &CommitError{ref, err}
	}
	t, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", ref, missing(err))
	}
	return &Tree{r, t, hash.String()}, nil
}

// Top is the folder that the paths of the tree start at, absolute, with links
// followed.
func (t *Tree) Top() string { return t.repo.Top }

// Repo is the repository of the commit.
func (t *Tree) Repo() *Repo { return t.repo }

// Blob names the file at a path, which starts at the top of the repository and
// has slashes, by the hash of its text; "" if there was none.
func (t *Tree) Blob(name string) (string, error) {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	e, err := t.entry(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errFolder) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return e.Hash.String(), nil
}

// HasFile reports whether there was a file at a path, as Blob takes it.
func (t *Tree) HasFile(name string) bool {
	blob, err := t.Blob(name)
	return err == nil && blob != ""
}

// HasFolder reports whether there was a folder at a path from the top.
func (t *Tree) HasFolder(name string) bool {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	dir, err := t.folder(path.Clean(name))
	return err == nil && dir != nil
}

// folder finds a folder, without links; nil if there was none.
func (t *Tree) folder(name string) (dir *object.Tree, err error) {
	dir = t.root
	if name == "." {
		return dir, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		at := slices.IndexFunc(dir.Entries, func(e object.TreeEntry) bool { return e.Name == part && e.Mode == filemode.Dir })
		if at < 0 {
			return nil, nil
		}
		if dir, err = t.repo.git.TreeObject(dir.Entries[at].Hash); err != nil {
			return nil, missing(err)
		}
	}
	return dir, nil
}

// maxLinks bounds the links that are followed on the way to a file.
const maxLinks = 40

var errFolder = errors.New("it is no regular file, but a folder")

// entry finds a regular file. Links of the commit are followed, as they are in the
// working tree, if they stay in it.
func (t *Tree) entry(name string) (*object.TreeEntry, error) {
	for range maxLinks {
		e, link, err := t.walk(path.Clean(name))
		if err != nil || link == "" {
			return e, err
		}
		if path.IsAbs(link) || !filepath.IsLocal(filepath.FromSlash(link)) {
			return nil, errors.New("it is a link that leads out of the repository")
		}
		name = link
	}
	return nil, errors.New("too many links")
}

// walk finds a regular file, or the name that a link on the way leads to.
func (t *Tree) walk(name string) (e *object.TreeEntry, link string, err error) {
	dir, parts := t.root, strings.Split(name, "/")
	for i, part := range parts {
		at := slices.IndexFunc(dir.Entries, func(e object.TreeEntry) bool { return e.Name == part })
		if at < 0 {
			return nil, "", fs.ErrNotExist
		}
		e := &dir.Entries[at]
		last := i == len(parts)-1
		switch {
		case e.Mode == filemode.Symlink:
			to, err := t.target(e)
			if err != nil || path.IsAbs(to) {
				return nil, to, err
			}
			return nil, path.Join(append([]string{path.Join(parts[:i]...), to}, parts[i+1:]...)...), nil
		case last && (e.Mode.IsRegular() || e.Mode == filemode.Executable || e.Mode == filemode.Deprecated):
			return e, "", nil
		case last && e.Mode == filemode.Dir:
			return nil, "", errFolder
		case last:
			return nil, "", fmt.Errorf("it is no regular file, but %s", kind(e.Mode))
		case e.Mode != filemode.Dir:
			return nil, "", fs.ErrNotExist
		}
		if dir, err = t.repo.git.TreeObject(e.Hash); err != nil {
			return nil, "", missing(err)
		}
	}
	return nil, "", fs.ErrNotExist
}

// target is where a link leads.
func (t *Tree) target(e *object.TreeEntry) (string, error) {
	b, err := t.repo.git.BlobObject(e.Hash)
	if err != nil {
		return "", missing(err)
	}
	r, err := b.Reader()
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := files.ReadStream(r, "link", maxPointer)
	return string(text), err
}

// kind says what an entry is that is no regular file.
func kind(m filemode.FileMode) string {
	switch m {
	case filemode.Symlink:
		return "a link"
	case filemode.Submodule:
		return "a submodule"
	}
	return m.String()
}

// Read reads the file at a path, which starts at the top of the repository and has
// slashes. The error is fs.ErrNotExist if there was none, and a *files.SizeError
// if it is larger than limit.
func (t *Tree) Read(name string, limit int64) ([]byte, error) {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	e, err := t.entry(name)
	if err != nil {
		return nil, err
	}
	b, err := t.repo.git.BlobObject(e.Hash) // a large one stays where it is
	if err != nil {
		return nil, missing(err)
	}
	if b.Size > limit {
		return nil, &files.SizeError{Limit: limit}
	}
	r, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return files.ReadStream(r, name, limit)
}

// maxFiles bounds how many files and folders of a commit are looked through.
const maxFiles = 1_000_000

// Files lists the regular files in a folder of the commit, at any depth, whose
// paths from the top of the repository match; "." is the top. Folders for which
// enter is false are left out. There may be no such folder.
func (t *Tree) Files(dir string, enter, match func(name string) bool) ([]string, error) {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	dir = path.Clean(dir)
	root, err := t.folder(dir)
	if root == nil || err != nil {
		return nil, err
	}
	var out []string
	seen := 0
	var walk func(root *object.Tree, at string) error
	walk = func(root *object.Tree, at string) error {
		for _, e := range root.Entries {
			if seen++; seen > maxFiles {
				return fmt.Errorf("more than %d files and folders in the commit", maxFiles)
			}
			name := path.Join(at, e.Name)
			switch {
			case e.Mode == filemode.Dir:
				if !enter(name) {
					continue
				}
				sub, err := t.repo.git.TreeObject(e.Hash)
				if err != nil {
					return missing(err)
				}
				if err := walk(sub, name); err != nil {
					return err
				}
			case (e.Mode.IsRegular() || e.Mode == filemode.Executable) && match(name):
				out = append(out, name)
			}
		}
		return nil
	}
	return out, walk(root, dir)
}

// BlobHash is how git calls a file of that text.
func BlobHash(text []byte) string {
	return plumbing.ComputeHash(plumbing.BlobObject, text).String()
}
