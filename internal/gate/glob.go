package gate

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// globs match paths from a folder: * stands for any text in a name, ** for any
// folders, ? for one character. A glob without a slash is about names in any
// folder, one that begins with a slash about the folder that globs start at. One
// that matches a folder matches what lies in it.
type globs struct {
	root string // absolute
	list []*regexp.Regexp
}

// Limits on globs: each file is held against all of them.
const (
	maxGlobs = 1000
	maxGlob  = 250
)

// globs compiles the globs of a configuration.
func (c *Config) globs(d *spec.Document, list []spec.String) *globs {
	g := &globs{root: c.root}
	if c.globCount += len(list); c.globCount > maxGlobs {
		d.Errs.Addf(list[0].At, "a configuration has at most %d globs", maxGlobs)
		return g
	}
	for _, s := range list {
		switch {
		case s.V == "":
			d.Errs.Addf(s.At, "a glob must not be empty")
			continue
		case len(s.V) > maxGlob:
			d.Errs.Addf(s.At, "a glob of %d bytes is longer than the limit of %d", len(s.V), maxGlob)
			continue
		}
		g.list = append(g.list, compileGlob(s.V))
	}
	return g
}

func compileGlob(glob string) *regexp.Regexp {
	glob = strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(glob), "./"), "/")
	bare := strings.TrimPrefix(glob, "/")
	anywhere := !strings.Contains(glob, "/")
	var b strings.Builder
	b.WriteString("^")
	if anywhere {
		b.WriteString("(?:.*/)?")
	}
	for rest := bare; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString("[^/]")
			rest = rest[1:]
		default:
			n := strings.IndexAny(rest, "*?")
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
		}
	}
	return regexp.MustCompile(b.String() + "(?:/.*)?$")
}

// match reports whether a path, from the working directory, fits one of them.
func (g *globs) match(path string) bool {
	name := path
	if abs, err := filepath.Abs(path); err == nil {
		if rel, err := filepath.Rel(g.root, abs); err == nil {
			name = rel
		}
	}
	name = filepath.ToSlash(name)
	for _, re := range g.list {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}
