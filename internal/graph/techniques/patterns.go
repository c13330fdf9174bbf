package techniques

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// Patterns reads patterns of paths. Each must fit one of the known paths, which
// what names; a pattern that fits none is a mistake of the spec.
func Patterns(errs *spec.Errors, list []spec.String, what string, known []string) program.Patterns {
	var out program.Patterns
	for _, s := range list {
		if err := program.CheckPattern(s.V); err != nil {
			errs.Addf(s.At, "%v", err)
			continue
		}
		p := program.Patterns{s.V}
		used := false
		for _, k := range known {
			if used = p.Fits(k); used {
				break
			}
		}
		if !used {
			errs.Unknown(s.At, what, s.V, slips(s.V, known, false))
		}
		out = append(out, s.V)
	}
	return out
}

// slips lists what a pattern that fits no path may be a slip of: for each path
// the pattern with the words that the path has in the same places, counted from
// the end. A part with a star stays what it is; without one it is a whole path
// that is meant, or, with ends, the end of one.
func slips(pattern string, paths []string, ends bool) []string {
	parts := strings.Split(pattern, ".")
	seen := map[string]bool{}
	var out []string
	for _, p := range paths {
		words := strings.Split(p, ".")
		if len(words) < len(parts) {
			continue
		}
		words = words[len(words)-len(parts):]
		for i, q := range parts {
			if strings.ContainsAny(q, "*?[") {
				words[i] = q
			}
		}
		c := strings.Join(words, ".")
		if c == pattern {
			c = p
		}
		if !ends && !strings.ContainsAny(pattern, "*?[") {
			c = p
		}
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}
