package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	ref    string
	noFile func(name string) bool // tells names of specs that are no files
	mu     sync.Mutex             // of trees and tops
	sparse map[*history.Tree]*history.Sparse
	trees  map[string]*history.Tree // by folder
	tops   map[string]*history.Tree // by top of the repository
	// renamed tells which spec of the commit a new one was, by the path of the new
	// one as it was named.
	renamed map[string]inTree
	torch   string // --torch, which its specs are estimated with too
}

// errForeign is the error of a folder in another repository, such as a submodule's,
// which has no such commit.
var errForeign = errors.New("it is in another repository, which has no such commit")

// openCommit is the commit that --against-git names.
func (s *Streams) openCommit(ref string) (*commit, error) {
	if ref == "" || strings.HasPrefix(ref, "-") {
		return nil, usagef("--against-git %q: must be a commit, a branch or a tag", ref)
	}
	return &commit{ref: ref, noFile: s.notInFolders, sparse: map[*history.Tree]*history.Sparse{}, trees: map[string]*history.Tree{}, tops: map[string]*history.Tree{}, renamed: map[string]inTree{}}, nil
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
	if s.notInFolders(name) {
		return plainRecipe(ctx, s, at.torch, name, now) // presets are of memplan, not of a commit
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
	r, err := plainRecipe(ctx, s, at.torch, asNamed, text)
	if err != nil { // it could not be read then
		return &estimate.Recipe{Path: asNamed, Text: text}, nil
	}
	own := r.ReadFile
	r.ReadFile = func(file string) ([]byte, error) {
		if filepath.IsAbs(file) || file == asNamed { // a config.json that stands for the spec is read already
			return own(file)
		}
		named, err := was.beside(file)
		if err != nil {
			return nil, err
		}
		text, err := named.tree.Read(named.name, files.MaxText)
		if errors.Is(err, history.ErrMissing) {
			return nil, &gate.LackingError{Err: fmt.Errorf("--against-git %s: %s: %w", at.ref, named.shown(), err)}
		}
		return text, err
	}
	return r, nil
}

// leftOut reports whether the checkout leaves a file out, or something in a folder: it
// is not there, but not gone either.
func (at *commit) leftOut(f inTree) (bool, error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	s := at.sparse[f.tree]
	if s == nil {
		var err error
		if s, err = f.tree.Repo().Sparse(); err != nil {
			return false, fmt.Errorf("--against-git %s: %w", at.ref, err)
		}
		at.sparse[f.tree] = s
	}
	out, err := s.LeavesOut(f.name)
	if err != nil {
		err = fmt.Errorf("--against-git %s: %w", at.ref, err)
	}
	return out, err
}

// moved finds the specs of the commit that are no more. Those that args name, or in
// folders among them, are listed by the names that they would have now; and new
// specs that are like one of them are taken for it.
func (at *commit) moved(conf *gate.Config, args, specs []string) (gone []gate.Gone, err error) {
	added, kept, err := at.compared(specs)
	if err != nil {
		return nil, err
	}
	asked, err := at.asked(args)
	if err != nil || len(added) == 0 && len(asked) == 0 {
		return nil, err
	}
	lost, err := at.lost(conf, asked, kept, len(added) > 0)
	if err != nil {
		return nil, err
	}
	was, now := make([][]byte, len(lost)), make([][]byte, len(added))
	for i := range lost {
		was[i] = lost[i].text
	}
	for i, name := range added {
		if conf.Outside == nil || !conf.Outside(name) {
			now[i], _ = files.Read(name, files.MaxText) // checking it says why
		}
	}
	for i, old := range gate.Renames(was, now) {
		at.renamed[added[i]] = lost[old].inTree
		lost[old].asked = false
	}
	for _, f := range lost {
		if f.asked {
			gone = append(gone, gate.Gone{Spec: f.shown(), Unread: f.unread})
		}
	}
	slices.SortFunc(gone, func(a, b gate.Gone) int { return strings.Compare(a.Spec, b.Spec) })
	return gone, nil
}

// compared tells the specs that the commit does not have from the files that it
// has.
func (at *commit) compared(specs []string) (added []string, kept map[inTree]bool, err error) {
	kept = map[inTree]bool{}
	for _, s := range specs {
		if at.noFile(s) {
			continue
		}
		f, err := at.file(s)
		if errors.Is(err, errForeign) || errors.Is(err, fs.ErrNotExist) { // checking it says that there is none
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		blob, err := f.blob()
		if err != nil {
			return nil, nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, s, err)
		}
		if kept[f] = true; blob == "" {
			added = append(added, s)
		}
	}
	return added, kept, nil
}

// there leaves out what is there no more, but was at the commit.
func (at *commit) there(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		if _, err := os.Lstat(a); at.noFile(a) || err == nil {
			return false
		}
		f, err := at.lexical(a)
		if err != nil {
			return false
		}
		if out, err := at.leftOut(f); out || err != nil {
			return false // it is not there to be checked
		}
		return (f.tree.HasFolder(f.name) || gate.SpecName(a) && f.tree.HasFile(f.name))
	})
}

// asked are the folders among args, and what is there no more, as of the commit.
func (at *commit) asked(args []string) (out []inTree, err error) {
	for _, a := range args {
		info, err := os.Stat(a)
		if at.noFile(a) || err == nil && !info.IsDir() {
			continue
		}
		// The commit's own file or folder of that name, too, where a link or another
		// repository stands in its place now.
		if f, err := at.lexical(a); err == nil {
			out = append(out, f)
		}
		if err != nil {
			continue
		}
		full, err := filepath.Abs(a)
		if err != nil {
			return nil, err
		}
		t, err := at.tree(full)
		if errors.Is(err, errForeign) {
			continue
		}
		if err != nil {
			return nil, err
		}
		name, err := inRepo(t, full, full)
		if err != nil {
			return nil, err
		}
		out = append(out, inTree{t, name})
	}
	return out, nil
}

// lostSpec is a spec of the commit that is no more.
type lostSpec struct {
	inTree
	text   []byte
	asked  bool  // it is in what was asked for
	unread error // it is not known whether it was a spec, as the clone has not its text
}

// lost are the specs of the commit that are no more: those that were asked for, or
// all.
func (at *commit) lost(conf *gate.Config, asked []inTree, kept map[inTree]bool, all bool) (out []lostSpec, err error) {
	inside := func(name, dir string) bool { return dir == "." || name == dir || strings.HasPrefix(name, dir+"/") }
	for _, t := range at.tops {
		visible := func(name string) bool { // a hidden folder may be asked for
			return !strings.HasPrefix(path.Base(name), ".") || slices.ContainsFunc(asked, func(f inTree) bool { return f.tree == t && inside(f.name, name) })
		}
		names, err := t.Files(".", visible, func(name string) bool {
			return visible(name) && gate.SpecName(name) && !conf.Excluded(inTree{t, name}.shown())
		})
		if err != nil {
			return nil, fmt.Errorf("--against-git %s: %w", at.ref, err)
		}
		for _, name := range names {
			f := lostSpec{inTree: inTree{t, name}}
			f.asked = slices.ContainsFunc(asked, func(a inTree) bool { return a.tree == t && inside(name, a.name) })
			if kept[f.inTree] || !f.asked && !all {
				continue
			}
			// Where folders are checked, what is there but was not found is reached
			// through a link to a folder, and is not checked: it is gone.
			if _, err := os.Lstat(f.shown()); err == nil && !(f.asked && files.ThroughLink(t.Top(), name)) && gate.FileIsSpec(f.shown()) {
				continue
			}
			if left, err := at.leftOut(f.inTree); err != nil {
				return nil, err
			} else if left {
				continue
			}
			f.text, err = t.Read(name, files.MaxText)
			switch {
			case errors.Is(err, history.ErrMissing): // asked for or not, a new spec may be what it was
				f.asked, f.unread = true, err
				out = append(out, f)
			case err != nil && !errors.As(err, new(*files.SizeError)):
				return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, f.shown(), err)
			case err == nil && gate.IsSpec(f.text):
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// lexical is a path of the commit that holds the configuration, whatever links
// stand on its way now.
func (at *commit) lexical(name string) (inTree, error) {
	t, err := at.tree(".")
	if err != nil {
		return inTree{}, err
	}
	rel, err := lexical(t.Top(), name)
	return inTree{t, rel}, err
}
