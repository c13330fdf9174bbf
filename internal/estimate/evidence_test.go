package estimate

import (
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/report"
)

// TestUnrecorded checks that a report names the operators that ran and are not
// recorded, the derivative alone where the rest is recorded, and no others.
func TestUnrecorded(t *testing.T) {
	for _, r := range aten.Rows() {
		e := r.Evidence()
		want := []report.Unrecorded{}
		if e.Forward == "" {
			want = append(want, report.Unrecorded{Op: r.Name, Basis: string(e.Basis), Source: r.Source})
		}
		if got := unrecorded(&engine.Played{Rows: []*op.Op{r}}); !slices.Equal(got, want) {
			t.Errorf("%s ran, which has the evidence %+v: %+v", r.Name, e, got)
		}
		if e.Forward != "" && r.Grad != nil && e.Backward == "" {
			want = append(want, report.Unrecorded{Op: r.Name, Derivative: true, Basis: string(e.Basis), Source: r.Source})
		}
		if got := unrecorded(&engine.Played{Rows: []*op.Op{r}, Derived: []*op.Op{r}}); !slices.Equal(got, want) {
			t.Errorf("%s and its derivative ran, which has the evidence %+v: %+v", r.Name, e, got)
		}
	}
	if got := unrecorded(&engine.Played{Rows: []*op.Op{{Name: "of the engine's own"}}}); len(got) > 0 {
		t.Errorf("what is no row of the table is listed: %+v", got)
	}
}
