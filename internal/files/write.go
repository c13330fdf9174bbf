// Package files reads and writes files of users.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Write writes what f writes to a file, at once: who reads the file sees the old
// text or the new, never a part, and if anything fails the old. A new file gets
// the permissions that the user's umask leaves, one that is replaced keeps its
// own. Links are followed, and a pipe or a device is written to as it is.
func Write(path string, f func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("it is a folder")}
	case err == nil && !info.Mode().IsRegular():
		out, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(out), out.Close())
	case err != nil:
		info = nil
	}
	w, err := begin(path)
	if err != nil {
		return failed(path, err)
	}
	if err := w.fill(f, info); err != nil {
		w.abandon()
		return err
	}
	if err := w.appear(info == nil); err != nil {
		w.abandon()
		return failed(path, err)
	}
	return nil
}

// WriteBytes is Write for a text that is there already.
func WriteBytes(path string, text []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// Try reports why Write could not make a file of that name.
func Try(path string) error {
	w, err := begin(path)
	if err != nil {
		return failed(path, err)
	}
	w.abandon()
	return nil
}

// failed names the file that the user named, not one that he does not know.
func failed(path string, err error) error {
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	if inner := (*os.LinkError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("no file can be made in %s: %w", filepath.Dir(path), err)
}

// writing is a file under way: without a name or, where the system has no such
// files, with that of temporary.
type writing struct {
	file *os.File
	path string
	name string // "": none yet
}

// temporary is the name that a file has before it gets its own. It is always the
// same, so that one that was left behind is replaced by the next.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".memplan-tmp")
}

// begin opens a file that is to appear at path.
func begin(path string) (*writing, error) {
	if f, err := unnamed(filepath.Dir(path)); err == nil {
		return &writing{file: f, path: path}, nil
	}
	w := &writing{path: path, name: temporary(path)}
	pending.add(w.name)
	if err := os.Remove(w.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		pending.drop(w.name)
		return nil, err
	}
	f, err := os.OpenFile(w.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		pending.drop(w.name)
		return nil, err
	}
	w.file = f
	return w, nil
}

// fill writes, with the permissions of the file that is replaced, if there is one.
func (w *writing) fill(f func(io.Writer) error, old fs.FileInfo) error {
	if err := f(w.file); err != nil {
		return err
	}
	if old != nil {
		if err := w.file.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	return w.file.Sync()
}

// appear gives the file its name.
func (w *writing) appear(fresh bool) error {
	if w.name == "" {
		if fresh {
			switch err := link(w.file, w.path); {
			case err == nil:
				return w.done()
			case !errors.Is(err, fs.ErrExist):
				return err
			}
		}
		w.name = temporary(w.path)
		pending.add(w.name)
		err := link(w.file, w.name)
		if errors.Is(err, fs.ErrExist) { // left behind
			if err = os.Remove(w.name); err == nil {
				err = link(w.file, w.name)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := os.Rename(w.name, w.path); err != nil {
		return err
	}
	pending.drop(w.name)
	return w.done()
}

// done closes the file and syncs the folder, where that can be done.
func (w *writing) done() error {
	if err := w.file.Close(); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(w.path)); err == nil {
		dir.Sync() // not all file systems can
		dir.Close()
	}
	return nil
}

// abandon takes away what was written.
func (w *writing) abandon() {
	w.file.Close()
	if w.name != "" {
		os.Remove(w.name)
		pending.drop(w.name)
	}
}

// pending are the temporary names under way.
var pending names

type names struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

func (n *names) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, name)
}

// Abandon takes away what is being written. It is for a process that ends without
// waiting.
func Abandon() {
	pending.mu.Lock() // for good: nothing is renamed to its name any more
	for name := range pending.all {
		os.Remove(name)
	}
}
