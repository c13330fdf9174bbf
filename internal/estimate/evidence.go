package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/report"
)

// unrecorded lists the rows of the op table that ran and are executed by no
// recording, or whose derivatives ran and are not.
func unrecorded(p *engine.Played) []report.Unrecorded {
	out := []report.Unrecorded{}
	for _, r := range aten.Rows() {
		e := r.Evidence()
		ran := e.Forward == "" && slices.Contains(p.Rows, r)
		derived := r.Grad != nil && e.Backward == "" && slices.Contains(p.Derived, r)
		if ran || derived {
			out = append(out, report.Unrecorded{Op: r.Name, Derivative: !ran, Basis: string(e.Basis), Source: r.Source})
		}
	}
	return out
}
