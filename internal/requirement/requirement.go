// Package requirement reads which release of PyTorch the files of a Python project ask for:
// lock files, requirements and pyproject.toml.
package requirement

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/memplan/memplan/internal/torchver"
)

// Found is a release and what asks for it.
type Found struct {
	Torch torchver.Version
	Place
}

// Place is what a line says of torch.
type Place struct {
	File string // from the folder where the search begins
	Line int
	Text string // such as "torch>=2.6,<2.9"
}

func (p Place) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }

// Error is a line of which no release follows.
type Error struct {
	Place
	Why string
}

func (e *Error) Error() string { return e.Place.String() + ": " + e.Why }

// sources are the files that are read, those before the others that say exactly what is
// installed. Files of one row are read together.
var sources = []struct {
	names []string
	read  func(f *file) error
}{
	{[]string{"uv.lock"}, lock}, {[]string{"poetry.lock"}, lock}, {[]string{"pdm.lock"}, lock}, {[]string{"pylock.toml"}, lock}, {[]string{"Pipfile.lock"}, pipfile},
	{[]string{"requirements.txt", "constraints.txt"}, requirements}, {[]string{"pyproject.toml"}, pyproject},
}

// maxUp is how many folders above the first are searched, and maxFiles how many files the
// requirements of one include.
const (
	maxUp    = 8
	maxFiles = 32
)

// Torch searches the folder where names begin, then those above it, until read refuses. The
// first file that names torch decides.
func Torch(read func(name string) ([]byte, error)) (*Found, error) {
	for dir, up := "", 0; up <= maxUp; dir, up = path.Join(dir, ".."), up+1 {
		for _, s := range sources {
			f := &file{open: read}
			for _, name := range s.names {
				text, err := read(path.Join(dir, name))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil && up > 0 { // outside of the project
					return nil, none()
				}
				if err != nil {
					return nil, err
				}
				f.name, f.lines = path.Join(dir, name), strings.Split(string(text), "\n")
				if err := s.read(f); err != nil {
					return nil, err
				}
			}
			if len(f.asked) > 0 {
				return newest(f.asked)
			}
		}
	}
	return nil, none()
}

func none() error {
	var names []string
	for _, s := range sources {
		names = append(names, s.names...)
	}
	last := len(names) - 1
	return fmt.Errorf("neither %s nor %s names torch, beside the spec or above it in its project; write the release, such as torch: %v",
		strings.Join(names[:last], ", "), names[last], torchver.Released)
}

// file is one that is read, and what it asks for so far.
type file struct {
	open  func(name string) ([]byte, error)
	name  string
	lines []string
	asked []asked
	read  int // files that it includes
}

// asked are conditions of one line.
type asked struct {
	Place
	conditions []condition
}

// ask notes what line i says; a place without conditions allows all releases.
func (f *file) ask(i int, text, version string) error {
	place := Place{f.name, i + 1, text}
	conditions, err := parseConditions(version)
	if err != nil {
		return &Error{place, err.Error()}
	}
	f.asked = append(f.asked, asked{place, conditions})
	return nil
}

// newest is the newest release that all lines allow, of those that are out; main is not asked
// for by a version.
func newest(all []asked) (*Found, error) {
	for v := torchver.Released; v.AtLeast(torchver.Oldest); v.Minor-- {
		fits := true
		for _, a := range all {
			for _, c := range a.conditions {
				fits = fits && c.allows(v)
			}
		}
		if fits {
			return &Found{v, all[0].Place}, nil
		}
	}
	last := all[len(all)-1]
	for _, a := range all {
		if alone := []asked{a}; len(all) > 1 {
			if _, err := newest(alone); err != nil {
				return nil, err
			}
		}
	}
	why := fmt.Sprintf("no release that is modelled fits; there are %v to %v", torchver.Oldest, torchver.Released)
	if len(all) > 1 {
		why = fmt.Sprintf("no release from %v to %v fits this and %v", torchver.Oldest, torchver.Released, all[0].Place)
	}
	return nil, &Error{last.Place, why}
}
