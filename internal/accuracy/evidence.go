package accuracy

import (
	"github.com/memplan/memplan/internal/op"
)

// Evidence says of each row in which suite it ran, and its derivative did, in a job
// that allocated and freed what was recorded: the first suite in the order of
// Suites.
func (r *Results) Evidence() map[*op.Op]op.Evidence {
	out := map[*op.Op]op.Evidence{}
	for _, s := range r.Suites() {
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
	return out
}
