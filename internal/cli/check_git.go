package cli

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
)

// commit is what specs were at a commit of the repositories that they lie in.
type commit struct {
	ref   string
	roots map[string]string            // folder → top of its repository
	trees map[string]map[string]string // top → path from there → name of the blob
}

// openCommit looks a commit up in the repositories of the specs.
func openCommit(ctx context.Context, ref string, specs []string) (*commit, error) {
	if ref == "" || strings.HasPrefix(ref, "-") {
		return nil, usagef("--against-git %q: must be a commit, a branch or a tag", ref)
	}
	at := &commit{ref: ref, roots: map[string]string{}, trees: map[string]map[string]string{}}
	for _, path := range specs {
		dir, _, err := folderOf(path)
		if notInFolders(path) || err == nil && at.roots[dir] != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		top, err := runGit(ctx, dir, "rev-parse", "--show-toplevel")
		if err != nil {
			return nil, at.wrong(err, "not a git repository")
		}
		root := strings.TrimRight(string(top), "\r\n")
		at.roots[dir] = root
		if at.trees[root] != nil {
			continue
		}
		if _, err := runGit(ctx, root, "rev-parse", "--verify", "--quiet", ref+"^{commit}"); err != nil {
			return nil, at.wrong(err, "")
		}
		list, err := runGit(ctx, root, "ls-tree", "-r", "-z", "--full-tree", ref)
		if err != nil {
			return nil, fmt.Errorf("--against-git %s: %w", ref, err)
		}
		tree := map[string]string{}
		for _, entry := range strings.Split(string(list), "\x00") {
			if about, name, ok := strings.Cut(entry, "\t"); ok { // mode type hash TAB path
				tree[name] = about[strings.LastIndexByte(about, ' ')+1:]
			}
		}
		at.trees[root] = tree
	}
	return at, nil
}

// wrong words an error of git: a mistake of the user if git says so in these
// words, or ("") by its exit code alone.
func (at *commit) wrong(err error, words string) error {
	said := (*gitError)(nil)
	switch {
	case !errors.As(err, &said):
		return fmt.Errorf("--against-git %s: %w", at.ref, err)
	case words == "":
		return usagef("--against-git %s: there is no such commit (a shallow clone has it only once it is fetched)", at.ref)
	case strings.Contains(said.message, words):
		return usagef("--against-git %s: %w", at.ref, err)
	}
	return fmt.Errorf("--against-git %s: %w", at.ref, err)
}

// folderOf is the folder of a file, with links followed as git does, and its
// name there.
func folderOf(path string) (dir, base string, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", "", err
	}
	dir, err = filepath.EvalSymlinks(filepath.Dir(full))
	return dir, filepath.Base(full), err
}

// recipe is that of a spec as it was; nil if there was none.
func (at *commit) recipe(ctx context.Context, s *Streams, path string, now []byte) (*estimate.Recipe, error) {
	if notInFolders(path) {
		return plainRecipe(ctx, s, path, now) // presets are of memplan, not of a commit
	}
	dir, base, err := folderOf(path)
	if err != nil {
		return nil, err
	}
	root := at.roots[dir]
	rel, err := filepath.Rel(root, filepath.Join(dir, base))
	if err != nil {
		return nil, err
	}
	name := filepath.ToSlash(rel)
	blob := at.trees[root][name]
	if blob == "" {
		return nil, nil
	}
	text := now
	if blobName(now, len(blob)) != blob {
		if text, err = runGit(ctx, root, "cat-file", "blob", blob); err != nil {
			return nil, fmt.Errorf("--against-git %s: %s: %w", at.ref, path, err)
		}
	}
	r, err := plainRecipe(ctx, s, path, text)
	if err != nil { // it could not be read then
		return &estimate.Recipe{Path: path, Text: text}, nil
	}
	own := r.ReadFile
	r.ReadFile = func(file string) ([]byte, error) {
		if filepath.IsAbs(file) || file == path { // a config.json that stands for the spec is read already
			return own(file)
		}
		rel, err := filepath.Rel(root, filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		return runGit(ctx, root, "cat-file", "blob", at.ref+":"+filepath.ToSlash(rel))
	}
	return r, nil
}

// blobName is how git calls a file of that text, by the hash whose names have n
// digits.
func blobName(text []byte, n int) string {
	var h hash.Hash = sha1.New()
	if n == hex.EncodedLen(sha256.Size) {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", len(text))
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}
