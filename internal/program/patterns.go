package program

import (
	"fmt"
	"path"
	"strings"
)

// Patterns name modules and parameters by their paths, as Python's fnmatch
// does: * stands for any text, dots included, ? for any character, [abc] for
// one of several, [!abc] for any other.
type Patterns []string

// fits reports whether a path matches one pattern. Paths hold no slashes, so
// that the stars of package path reach over dots.
func fits(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "?[") {
		return fitsStars(pattern, name)
	}
	ok, _ := path.Match(strings.ReplaceAll(pattern, "[!", "[^"), name)
	return ok
}

// fitsStars is fits of a pattern whose only special characters are stars, as most are: models have
// thousands of paths.
func fitsStars(pattern, name string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	for ok {
		if first, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(name, first)
		}
		_, name, ok = strings.Cut(name, first)
	}
	return false
}

// CheckPattern reports why text is no pattern.
func CheckPattern(text string) error {
	if strings.ContainsAny(text, `/\^`) {
		return fmt.Errorf(`a pattern is made of letters, digits, dots, *, ? and [...], not %q`, text)
	}
	if _, err := path.Match(strings.ReplaceAll(text, "[!", "[^"), ""); err != nil || text == "" {
		return fmt.Errorf("%q is not a pattern; a pattern is a path such as layers.0.attn, in which *, ? and [...] may stand", text)
	}
	return nil
}

// Fits reports whether a path matches one of the patterns.
func (p Patterns) Fits(path string) bool {
	for _, q := range p {
		if fits(q, path) {
			return true
		}
	}
	return false
}

// Cover reports whether a path, or that of a module in which it lies, matches
// one of the patterns: layers.0 covers layers.0.attn.weight, not layers.01.
func (p Patterns) Cover(path string) bool {
	if len(p) == 0 {
		return false
	}
	for i := 0; i <= len(path); i++ {
		if (i == len(path) || path[i] == '.') && p.Fits(path[:i]) {
			return true
		}
	}
	return false
}

// Walk calls f for c and every module below it with its path from c ("" for c),
// in the order of Module.named_modules; modules that are registered twice come
// twice.
func (c *Class) Walk(f func(path string, c *Class)) { c.walk("", f) }

func (c *Class) walk(path string, f func(path string, c *Class)) {
	f(path, c)
	for _, i := range c.Registered() {
		if ch := &c.Children[i]; ch.Class != nil {
			ch.Class.walk(Join(path, ch.Path), f)
		}
	}
}

// Join appends an attribute path to that of a module, which is "" for the model
// itself.
func Join(module, attr string) string {
	if module == "" {
		return attr
	}
	return module + "." + attr
}

// Inside reports whether a path lies in that of a module, other than by being it.
func Inside(path, module string) bool {
	return path != module && (module == "" || strings.HasPrefix(path, module+"."))
}

// ModulePaths lists the paths of all modules below c, the lists that hold some
// of them included, each before what it holds.
func (c *Class) ModulePaths() []string {
	var out []string
	seen := map[string]bool{"": true}
	c.Walk(func(path string, _ *Class) {
		for i := 0; i <= len(path); i++ {
			if (i == len(path) || path[i] == '.') && !seen[path[:i]] {
				seen[path[:i]] = true
				out = append(out, path[:i])
			}
		}
	})
	return out
}

// ParamPaths lists the paths of all parameters below c in the order of
// Module.named_parameters(remove_duplicate=False).
func (c *Class) ParamPaths() []string {
	var out []string
	c.Walk(func(path string, m *Class) {
		for _, p := range m.Params {
			out = append(out, Join(path, p.Name))
		}
	})
	return out
}
