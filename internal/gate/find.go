package gate

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxSpec is more than the language allows a file to hold.
const maxSpec = 8 << 20

// specKey finds the key that every spec has, at the margin or in braces.
var specKey = regexp.MustCompile(`(?m)^(?:\x{feff})?(?:memplan|"memplan"|'memplan')[ \t]*:|\A(?:\x{feff})?\s*\{[^{}\[\]]*\bmemplan["']?[ \t]*:`)

// outputKey finds the key with which what memplan itself writes as JSON begins.
var outputKey = regexp.MustCompile(`\A\s*\{\s*"memplan_\w+"\s*:`)

// IsSpec reports whether a YAML file means to be a spec.
func IsSpec(text []byte) bool { return specKey.Match(text) && !outputKey.Match(text) }

// NoSpecs is the error where a path leads to no spec.
type NoSpecs struct {
	Paths    []string
	Excludes bool // the configuration excludes something
}

func (e *NoSpecs) Error() string {
	s := fmt.Sprintf("no specs in %s; a spec is a file *.yaml or *.yml with the key memplan", strings.Join(e.Paths, ", "))
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
			if !onlySpecs || isFile(p) || fileIsSpec(p) {
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
		case p != dir && (strings.HasPrefix(e.Name(), ".") || c.exclude.match(p)):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir():
		case (strings.HasSuffix(p, ".yaml") || strings.HasSuffix(p, ".yml")) && fileIsSpec(p):
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// fileIsSpec reports whether a file is a spec, or cannot be read.
func fileIsSpec(p string) bool {
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return true
	case !info.Mode().IsRegular() || info.Size() > maxSpec:
		return false
	}
	text, err := os.ReadFile(p)
	return err != nil || IsSpec(text)
}
