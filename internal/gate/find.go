package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/spec"
)

// specKey finds the key that every spec has, at the margin or in braces, in a
// file that is not valid YAML or too large to be read.
var specKey = regexp.MustCompile(`(?m)^(?:\x{feff})?(?:memplan|"memplan"|'memplan')[ \t]*:|\A(?:\x{feff})?\s*\{[^{}\[\]]*\bmemplan["']?[ \t]*:`)

// outputKey finds the key with which what memplan itself writes as JSON begins.
var outputKey = regexp.MustCompile(`\A\s*\{\s*"memplan_\w+"\s*:`)

// IsSpec reports whether a YAML file means to be a spec: read as specs are, it is
// a mapping with the key memplan. What cannot be read is one if the key stands
// where it would be seen.
func IsSpec(text []byte) bool {
	if outputKey.Match(text) || !mayHaveKey(text) {
		return false
	}
	if d := spec.ReadDocument("", text); d.Root != nil {
		return d.Root.Get("memplan") != nil
	}
	return specKey.Match(text)
}

// mayHaveKey spares most files from being read as YAML: the key's letters are in
// a file, unless they are escaped.
func mayHaveKey(text []byte) bool {
	return bytes.Contains(text, []byte("memplan")) || bytes.ContainsRune(text, '\\')
}

// SpecName reports whether a file in a folder is looked at by its name.
func SpecName(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".yaml" || ext == ".yml"
}

// Excluded reports whether the configuration leaves a path out of folders.
func (c *Config) Excluded(path string) bool { return c.exclude.match(path) }

// NoSpecs is the error where a path leads to no spec.
type NoSpecs struct {
	Paths    []string
	Excludes bool // the configuration excludes something
}

func (e *NoSpecs) Error() string {
	s := fmt.Sprintf("no specs in %s; a spec is a file *.yaml or *.yml with the key memplan; other files are named one by one", strings.Join(e.Paths, ", "))
	if e.Excludes {
		s += " which the configuration does not exclude"
	}
	return s
}

// Find lists the specs that paths name: files as they are, of folders what lies
// in them at any depth, is called *.yaml or *.yml and has the key memplan.
// Hidden files and folders, and links to folders, are left out, and what the
// configuration excludes. OnlySpecs leaves out named files that are no specs.
// The list is sorted and free of repetitions. A path of which nothing is left is
// a *NoSpecs, unless onlySpecs asks to be lenient.
func (c *Config) Find(paths []string, onlySpecs bool, isFile func(path string) bool) ([]string, error) {
	var out, empty []string
	for _, p := range paths {
		if info, err := os.Stat(p); isFile(p) || err != nil || !info.IsDir() {
			if !onlySpecs || isFile(p) || FileIsSpec(p) {
				out = append(out, clean(p, isFile))
			}
			continue
		}
		found, err := c.folder(clean(p, isFile))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			empty = append(empty, p)
		}
		out = append(out, found...)
	}
	if len(empty) > 0 && !onlySpecs {
		return nil, &NoSpecs{empty, len(c.Exclude) > 0}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func clean(p string, isFile func(string) bool) string {
	if isFile(p) {
		return p
	}
	return filepath.Clean(p)
}

// folder lists the specs of a folder. What cannot be read is listed, too, so
// that it is said.
func (c *Config) folder(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir+string(filepath.Separator), func(p string, e fs.DirEntry, err error) error {
		p = filepath.Clean(p)
		if err != nil {
			return err
		}
		switch {
		case p != dir && (strings.HasPrefix(e.Name(), ".") || c.Excluded(p)):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir():
		case SpecName(p) && (e.Type()&fs.ModeSymlink != 0 && c.Outside != nil && c.Outside(p) || FileIsSpec(p)):
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// FileIsSpec reports whether a file is a spec, or cannot be read.
func FileIsSpec(p string) bool {
	text, err := files.Read(p, files.MaxText)
	switch {
	case err == nil:
		return IsSpec(text)
	case errors.Is(err, files.ErrNotRegular):
		return false
	case errors.As(err, new(*files.SizeError)): // checking it says so
		f, err := os.Open(p)
		if err != nil {
			return true
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, files.MaxText))
		return err != nil || specKey.Match(text)
	}
	return true
}
