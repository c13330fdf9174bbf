package history

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/memplan/memplan/internal/files"
)

// Git's index is read here, and not by go-git: a name of version 4 is written as what
// differs from the one before, so that go-git keeps gigabytes of an index of some
// megabytes; and of a split index, which it cannot read, it says no more than of a
// sparse one, whose entries count.

// skipped is an entry of git's index that the checkout leaves out.
type skipped struct {
	name string // a folder's ends in a slash
	mode filemode.FileMode
	hash plumbing.Hash
}

// The flags of an entry, as git's documentation of the index format (gitformat-index)
// has them.
const (
	flagExtended     = 1 << 14
	flagSkipWorktree = 1 << 14 // of the extended flags
)

// The bounds of what is read: no system has paths as long as maxName, and maxNames
// are the paths of some million files.
const (
	maxIndex = 1 << 30
	maxName  = 64 << 10
	maxNames = 256 << 20 // of all names that are kept
)

var (
	errIndexEnds = errors.New("the file ends too early")
	errIndexName = fmt.Errorf("it has a name of more than %d bytes", maxName)
	errIndexAll  = fmt.Errorf("it leaves out files whose names have more than %d bytes", maxNames)
)

// readIndex reads which entries of an index the checkout leaves out, and of a split
// one the name of the other part. Neither its checksum nor what caches hold behind the
// entries is looked at.
func readIndex(r io.Reader) (out []skipped, shared string, err error) {
	b := bufio.NewReaderSize(r, maxName)
	if out, err = readEntries(b); err == nil {
		shared, err = extensions(b)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errIndexEnds
	case errors.Is(err, bufio.ErrBufferFull):
		err = errIndexName
	}
	if err != nil {
		return nil, "", fmt.Errorf("git's index: %w", err)
	}
	return out, shared, nil
}

func readEntries(r *bufio.Reader) (out []skipped, err error) {
	var head struct {
		Signature        [4]byte
		Version, Entries uint32
	}
	if err := binary.Read(r, binary.BigEndian, &head); err != nil {
		return nil, err
	}
	if string(head.Signature[:]) != "DIRC" || head.Version < 2 || head.Version > 4 {
		return nil, fmt.Errorf("%q of version %d, which memplan cannot read", head.Signature, head.Version)
	}
	const fixed = 62 // bytes of an entry before its extended flags and its name
	entry := make([]byte, fixed)
	var name []byte
	kept := 0 // of all names, in out
	for range head.Entries {
		if _, err := io.ReadFull(r, entry); err != nil {
			return nil, err
		}
		n, skip := fixed, false
		if binary.BigEndian.Uint16(entry[60:])&flagExtended != 0 {
			var more [2]byte
			if _, err := io.ReadFull(r, more[:]); err != nil {
				return nil, err
			}
			n, skip = n+len(more), binary.BigEndian.Uint16(more[:])&flagSkipWorktree != 0
		}
		common := 0 // with the name before
		if head.Version == 4 {
			drop, err := offset(r)
			if err != nil {
				return nil, err
			}
			if drop > len(name) {
				return nil, errors.New("a name drops more than there is of the one before")
			}
			common = len(name) - drop
		}
		own, err := r.ReadSlice(0)
		if err != nil {
			return nil, err
		}
		if name = append(name[:common], own[:len(own)-1]...); len(name) > maxName {
			return nil, errIndexName
		}
		if head.Version < 4 { // one to eight zeros fill up a multiple of eight bytes
			if _, err := r.Discard(7 - (n+len(name))%8); err != nil {
				return nil, err
			}
		}
		if skip {
			if kept += len(name); kept > maxNames {
				return nil, errIndexAll
			}
			out = append(out, skipped{string(name), filemode.FileMode(binary.BigEndian.Uint32(entry[24:])), plumbing.Hash(entry[40:60])})
		}
	}
	return out, nil
}

// offset reads a number of variable width, as git's packs have them, too.
func offset(r io.ByteReader) (int, error) {
	n := -1
	for n <= maxName {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		n = (n+1)<<7 | int(b&0x7f)
		if b&0x80 == 0 {
			return n, nil
		}
	}
	return 0, errIndexName
}

// extensions looks through those behind the entries. It returns the name of the other
// part of a split index, and refuses what it does not know and without which entries
// cannot be understood: what is called in lower case.
func extensions(r *bufio.Reader) (shared string, err error) {
	const checksum = 20
	for {
		head, err := r.Peek(8 + checksum)
		if errors.Is(err, io.EOF) && len(head) == checksum {
			return shared, nil
		}
		if err != nil {
			return "", err
		}
		name, size := head[:4], int64(binary.BigEndian.Uint32(head[4:]))
		switch string(name) {
		case "link":
			shared = "sharedindex." + plumbing.Hash(head[8:]).String()
		case "sdir": // the index is sparse: it has folders, too
		default:
			if name[0] < 'A' || name[0] > 'Z' {
				return "", fmt.Errorf("it has an extension %q, which memplan cannot read", name)
			}
		}
		if _, err := io.CopyN(io.Discard, r, 8+size); err != nil {
			return "", err
		}
	}
}

// A Sparse tells which files of a repository its checkout leaves out.
type Sparse struct {
	repo    *Repo
	names   []string                 // sorted
	folders map[string]plumbing.Hash // those of names that are folders, with all that is in them
}

// index reads a file of git's index.
func (r *Repo) index(name string) (out []skipped, shared string, err error) {
	at := r.git.Storer.(objects).Filesystem()
	info, err := at.Stat(name)
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() { // opening it may wait for ever
		return nil, "", fmt.Errorf("git's index: %w", files.ErrNotRegular)
	}
	f, err := at.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	return readIndex(io.LimitReader(f, maxIndex))
}

// Sparse reads git's index, which tells what a sparse checkout leaves out.
func (r *Repo) Sparse() (*Sparse, error) {
	out := &Sparse{repo: r, folders: map[string]plumbing.Hash{}}
	entries, shared, err := r.index("index")
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if shared != "" {
		// Which entries of the other part count is not read: where neither part leaves
		// anything out, it does not matter.
		others, _, err := r.index(shared)
		if err != nil {
			return nil, err
		}
		if len(entries)+len(others) > 0 {
			return nil, errors.New("git's index is split, and the checkout is sparse, which memplan cannot read: git update-index --no-split-index joins it")
		}
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.name, "/")
		out.names = append(out.names, name)
		if e.mode == filemode.Dir {
			out.folders[name] = e.hash
		}
	}
	slices.Sort(out.names)
	return out, nil
}

// LeavesOut reports whether the checkout leaves out a file, or something in a folder,
// by its path from the top.
func (s *Sparse) LeavesOut(name string) (bool, error) {
	if _, ok := slices.BinarySearch(s.names, name); ok {
		return true, nil
	}
	if i, _ := slices.BinarySearch(s.names, name+"/"); i < len(s.names) && strings.HasPrefix(s.names[i], name+"/") {
		return true, nil
	}
	for dir := path.Dir(name); dir != path.Dir(dir); dir = path.Dir(dir) {
		hash, ok := s.folders[dir]
		if !ok {
			continue
		}
		root, err := s.repo.git.TreeObject(hash)
		if errors.Is(err, ErrMissing) { // this clone cannot tell what is in it
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("git's index: %s: %w", dir, err)
		}
		in, rest := &Tree{repo: s.repo, root: root}, name[len(dir)+1:]
		return in.HasFile(rest) || in.HasFolder(rest), nil
	}
	return false, nil
}
