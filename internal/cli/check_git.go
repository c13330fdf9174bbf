package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/history"
)

// commit is what files were at a commit of the repositories that they lie in. It
// may be used by several goroutines at once.
type commit struct {
	ref   string
	mu    sync.Mutex               // of trees and tops
	trees map[string]*history.Tree // by folder
	tops  map[string]*history.Tree // by top of the repository
	// renamed tells which spec of the commit a new one was, by the path of the new
	// one as it was named.
	renamed map[string]inTree
}

// inTree is a file of a commit.
type inTree struct {
	tree *history.Tree
	name string // from the top, with slashes
}

// errForeign is the error of a folder in another repository, such as a submodule's,
// which has no such commit.
var errForeign = errors.New("it lies in another repository, which has no such commit")

// openCommit is the commit that --against-git names.
func openCommit(ref string) (*commit, error) {
	if ref == "" || strings.HasPrefix(ref, "-") {
		return nil, usagef("--against-git %q: must be a commit, a branch or a tag", ref)
	}
	return &commit{ref: ref, trees: map[string]*history.Tree{}, tops: map[string]*history.Tree{}, renamed: map[string]inTree{}}, nil
}

// tree is the commit of the repository that a folder lies in.
func (at *commit) tree(dir string) (*history.Tree, error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if t := at.trees[dir]; t != nil {
		return t, nil
	}
	repo, err := history.Open(dir)
	if errors.Is(err, history.ErrNoRepository) {
		return nil, usagef("--against-git %s: %w", at.ref, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--against-git %s: %w", at.ref, err)
	}
	t := at.tops[repo.Top]
	if t == nil {
		if t, err = repo.Commit(at.ref); errors.As(err, new(*history.CommitError)) && len(at.tops) > 0 {
			return nil, errForeign // the one of the current folder comes first
		} else if errors.As(err, new(*history.CommitError)) {
			return nil, usagef("--against-git %s: %w", at.ref, err)
		} else if err != nil {
			return nil, fmt.Errorf("--against-git %s: %w", at.ref, err)
		}
		at.tops[repo.Top] = t
	}
	at.trees[dir] = t
	return t, nil
}

// file finds what a file was; the name may be one that is gone, but its folder
// must be there.
func (at *commit) file(path string) (inTree, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return inTree{}, err
	}
	dir := filepath.Dir(full)
	t, err := at.tree(dir)
	if err != nil {
		return inTree{}, err
	}
	name, err := inRepo(t, dir, full)
	return inTree{t, name}, err
}

// blob is the hash of a file's text; "" if there was none.
func (f inTree) blob() (string, error) { return f.tree.Blob(f.name) }

// shown is how a file of the commit is called now, from the current folder.
func (f inTree) shown() string {
	full := filepath.Join(f.tree.Top(), filepath.FromSlash(f.name))
	cwd, err := os.Getwd()
	if err == nil {
		if cwd, err = filepath.EvalSymlinks(cwd); err == nil {
			if rel, err := filepath.Rel(cwd, full); err == nil {
				return rel
			}
		}
	}
	return full
}

// recipe is that of a spec as it was; nil if there was none.
func (at *commit) recipe(ctx context.Context, s *Streams, name string, now []byte) (*estimate.Recipe, error) {
	if notInFolders(name) {
		return plainRecipe(ctx, s, name, now) // presets are of memplan, not of a commit
	}
	was, err := at.file(name)
	if errors.Is(err, errForeign) {
		return nil, nil // nothing to compare with
	}
	if err != nil {
		return nil, err
	}
	asNamed := name
	if old, ok := at.renamed[name]; ok {
		was, asNamed = old, old.shown()
	}
	blob, err := was.blob()
	if err != nil {
		return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, asNamed, err)
	}
	if blob == "" {
		return nil, nil
	}
	text := now
	if history.BlobHash(now) != blob {
		if text, err = was.tree.Read(was.name, files.MaxText); err != nil {
			return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, asNamed, err)
		}
	}
	r, err := plainRecipe(ctx, s, asNamed, text)
	if err != nil { // it could not be read then
		return &estimate.Recipe{Path: asNamed, Text: text}, nil
	}
	own := r.ReadFile
	r.ReadFile = func(file string) ([]byte, error) {
		if filepath.IsAbs(file) || file == asNamed { // a config.json that stands for the spec is read already
			return own(file)
		}
		inside := path.Join(path.Dir(was.name), filepath.ToSlash(file))
		if !filepath.IsLocal(filepath.FromSlash(inside)) {
			return nil, &files.OutsideError{Name: file}
		}
		return was.tree.Read(inside, files.MaxText)
	}
	return r, nil
}

// moved finds the specs of the commit that are no more. Those in the folders
// among args are listed, by the names that they would have now; and new specs
// that are like one of them are taken for it.
func (at *commit) moved(conf *gate.Config, args, specs []string) (gone []string, err error) {
	var added []string
	for _, s := range specs {
		if notInFolders(s) {
			continue
		}
		f, err := at.file(s)
		if errors.Is(err, errForeign) {
			continue
		}
		if err != nil {
			return nil, err
		}
		blob, err := f.blob()
		if err != nil {
			return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, s, err)
		}
		if blob == "" {
			added = append(added, s)
		}
	}
	found := map[inTree]bool{} // what is checked
	for _, name := range specs {
		if f, err := at.file(name); !notInFolders(name) && err == nil {
			found[f] = true
		}
	}
	var folders []inTree
	for _, a := range args {
		if info, err := os.Stat(a); notInFolders(a) || err != nil || !info.IsDir() {
			continue
		}
		full, err := filepath.Abs(a)
		if err != nil {
			return nil, err
		}
		t, err := at.tree(full)
		if errors.Is(err, errForeign) {
			if f, err := at.lexical(a); err == nil {
				folders = append(folders, f)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		name, err := inRepo(t, full, full)
		if err != nil {
			return nil, err
		}
		folders = append(folders, inTree{t, name})
		// The commit's own folder of that name, too, where a link or a repository
		// stands in its place now.
		if f, err := at.lexical(a); err == nil && f != folders[len(folders)-1] {
			folders = append(folders, f)
		}
	}
	if len(added) == 0 && len(folders) == 0 {
		return nil, nil
	}
	var (
		lost  []inTree
		was   [][]byte
		asked []bool
	)
	for _, t := range at.tops {
		inside := func(name, dir string) bool { return dir == "." || name == dir || strings.HasPrefix(name, dir+"/") }
		visible := func(name string) bool { // a hidden folder may be asked for
			return !strings.HasPrefix(path.Base(name), ".") || slices.ContainsFunc(folders, func(dir inTree) bool { return dir.tree == t && inside(dir.name, name) })
		}
		names, err := t.Files(".", visible, func(name string) bool {
			return visible(name) && gate.SpecName(name) && !conf.Excluded(inTree{t, name}.shown())
		})
		if err != nil {
			return nil, fmt.Errorf("--against-git %s: %w", at.ref, err)
		}
		for _, name := range names {
			f := inTree{t, name}
			inFolder := slices.ContainsFunc(folders, func(dir inTree) bool {
				return dir.tree == t && inside(name, dir.name)
			})
			if found[f] || !inFolder && len(added) == 0 {
				continue
			}
			// Where folders are checked, what is there but was not found is reached
			// through a link to a folder, and is not checked: it is gone.
			if _, err := os.Lstat(f.shown()); err == nil && !(inFolder && files.ThroughLink(t.Top(), name)) && gate.FileIsSpec(f.shown()) {
				continue
			}
			text, err := t.Read(name, files.MaxText)
			if err != nil && !errors.As(err, new(*files.SizeError)) && !errors.Is(err, history.ErrMissing) { // a sparse clone lacks what it does not check out
				return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, f.shown(), err)
			}
			if err != nil || !gate.IsSpec(text) {
				continue
			}
			lost, was = append(lost, f), append(was, text)
			asked = append(asked, inFolder)
		}
	}
	now := make([][]byte, len(added))
	for i, name := range added {
		now[i], _ = files.Read(name, files.MaxText) // checking it says why
	}
	for i, old := range gate.Renames(was, now) {
		at.renamed[added[i]] = lost[old]
		asked[old] = false
	}
	for i, f := range lost {
		if asked[i] {
			gone = append(gone, f.shown())
		}
	}
	slices.Sort(gone)
	return gone, nil
}

// lexical is a path of the commit that holds the configuration, whatever links
// stand on its way now.
func (at *commit) lexical(name string) (inTree, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return inTree{}, err
	}
	t, err := at.tree(cwd)
	if err != nil {
		return inTree{}, err
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return inTree{}, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	rel, err := filepath.Rel(t.Top(), name)
	if err != nil || !filepath.IsLocal(rel) {
		return inTree{}, fmt.Errorf("%s lies outside of the repository", name)
	}
	return inTree{t, filepath.ToSlash(rel)}, nil
}
