package graph

import (
	"regexp"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// attribute refuses a name for what becomes an attribute of a module; path is
// the name, or a path that begins with it.
func (el *elaborator) attribute(what, path string, at spec.Span) {
	name, _, _ := strings.Cut(path, ".")
	name, _, _ = strings.Cut(name, "[")
	if program.ModuleAttributes[name] {
		el.errs.Addf(at, "%s cannot be named %q, which is an attribute of torch.nn.Module", what, name)
	}
}

// numbered are the items of lists in a path.
var numbered = regexp.MustCompile(`\.[0-9]+`)
