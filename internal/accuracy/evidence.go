package accuracy

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// Evidence says of each row in which suite it ran, and its derivative did, in a job
// that allocated and freed what was recorded: the first suite in the order of
// Suites.
func (r *Results) Evidence() map[*op.Op]op.Evidence {
	out := map[*op.Op]op.Evidence{}
	for _, s := range r.Suites() {
		if s.Name == releasesSuite {
			continue
		}
		for _, c := range s.Cases {
			name := s.Name
			if s.Name == "fuzz" {
				name += "/" + c.Family
			}
			for _, row := range c.Rows {
				if e := out[row]; e.Forward == "" {
					e.Forward = name
					out[row] = e
				}
			}
			for _, row := range c.Derived {
				if e := out[row]; e.Backward == "" {
					e.Backward = name
					out[row] = e
				}
			}
		}
	}
	for row, releases := range r.later() {
		e := out[row]
		e.Releases = releases
		out[row] = e
	}
	return out
}

// later lists the releases in which rows ran, and their derivatives, in jobs of suite
// releases with equal events.
func (r *Results) later() map[*op.Op][]string {
	ran, derived := map[*op.Op]map[string]bool{}, map[*op.Op]map[string]bool{}
	note := func(in map[*op.Op]map[string]bool, rows []*op.Op, release string) {
		for _, row := range rows {
			if in[row] == nil {
				in[row] = map[string]bool{}
			}
			in[row][release] = true
		}
	}
	for _, c := range r.Releases {
		note(ran, c.Rows, c.Torch)
		note(derived, c.Derived, c.Torch)
	}
	out := map[*op.Op][]string{}
	for row, releases := range ran {
		for _, release := range slices.Sorted(maps.Keys(releases)) {
			if row.Grad == nil || derived[row][release] {
				out[row] = append(out[row], release)
			}
		}
	}
	return out
}
