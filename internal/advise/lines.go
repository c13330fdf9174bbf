package advise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

// SpecLines says how to make changes in a spec: of each key, the line of the file
// that has it and what stands there then, or where to add it. A spec that is no
// file of its own, such as a preset's, is changed on the command line.
func SpecLines(r *estimate.Recipe, s *spec.Spec, keys []estimate.Key) []string {
	if len(r.Options.Origins) > 0 {
		return fileLines(r, s, keys)
	}
	if strings.HasPrefix(r.Path, "preset:") || r.Options.Label != "" || strings.HasPrefix(r.Path, "<") {
		return Arguments(r, keys)
	}
	var out []string
	for _, k := range keys {
		out = append(out, specLine(r, s, k))
	}
	return out
}

// fileLines says how to make changes in a file of another program, from which the spec
// was made. What the file has no key for is changed on the command line.
func fileLines(r *estimate.Recipe, s *spec.Spec, keys []estimate.Key) []string {
	var out []string
	for _, k := range keys {
		name, from := r.Options.Keys[k.Path], spec.Origin{}
		if v := s.Given(k.Path); v != nil && slices.Contains(r.Options.Said, k.Path) {
			from = s.Errs.Origin(v.Span)
		}
		switch {
		case name == "":
			out = append(out, flagOf(r, k))
		case from.Flag != "":
			out = append(out, "--set "+quoted(name+"="+k.Value)+" in place of what the command line says")
		case from.File != "":
			out = append(out, fmt.Sprintf("%s:%d: %s -> %s: %s", from.File, from.Line, strings.TrimSpace(from.Text), name, k.Value))
		default:
			out = append(out, fmt.Sprintf("%s: add %s: %s", r.Path, name, k.Value))
		}
	}
	return out
}

func specLine(r *estimate.Recipe, s *spec.Spec, k estimate.Key) string {
	path := strings.Split(k.Path, ".")
	last := path[len(path)-1]
	if v := s.Given(k.Path); v != nil {
		if v.Line < 1 { // a flag of the command line says so
			return flagOf(r, k) + " in place of what the command line says"
		}
		return fmt.Sprintf("%s:%d: %s: %s -> %s: %s", r.Path, v.Line, last, v.Flow(), last, k.Value)
	}
	for n := len(path) - 1; n > 0; n-- {
		if v := s.Given(strings.Join(path[:n], ".")); v != nil && v.Line > 0 && v.Kind == spec.Map {
			return fmt.Sprintf("%s:%d: under %s, add %s", r.Path, v.Line, strings.Join(path[:n], "."), nested(path[n:], k.Value))
		}
	}
	return fmt.Sprintf("%s: add %s", r.Path, nested(path, k.Value))
}

// nested writes keys that lie in one another in one line.
func nested(path []string, value string) string {
	if len(path) == 1 {
		return path[0] + ": " + value
	}
	return path[0] + ": {" + nested(path[1:], value) + "}"
}

// Arguments are what to append to the command line to make changes: --set, or
// the flag of its own by which a key is given already, which goes before --set.
func Arguments(r *estimate.Recipe, keys []estimate.Key) []string {
	var out []string
	for _, k := range keys {
		out = append(out, flagOf(r, k))
	}
	return out
}

func flagOf(r *estimate.Recipe, k estimate.Key) string {
	for _, f := range r.Options.Flags {
		if f.Path == k.Path && !f.Drop {
			name, _, _ := strings.Cut(f.Flag, " ")
			return name + " " + quoted(k.Value)
		}
	}
	return "--set " + quoted(k.String())
}

// quoted writes a word as shells take it.
func quoted(s string) string {
	if strings.ContainsAny(s, " {}[]*?$\"\\|&;<>()'#~`!") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
