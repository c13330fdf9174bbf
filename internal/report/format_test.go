package report

import (
	"slices"
	"testing"
)

// TestFormatTables: rows are complete, and where each stands does not depend on
// which was added first.
func TestFormatTables(t *testing.T) {
	names := map[string][]string{
		"reports": Formats.Names(), "comparisons": DiffFormats.Names(), "runs": RunFormats.Names(),
	}
	for what, list := range names {
		if len(list) < 2 || list[0] != "text" {
			t.Errorf("formats of %s: %v", what, list)
		}
	}
	for i, f := range Formats.All() {
		if f.Rank != i || f.Doc == "" || f.Write == nil {
			t.Errorf("%+v is the %dth", f, i)
		}
	}
	var back FormatTable[*Report, Options]
	for _, f := range slices.Backward(Formats.All()) {
		back.Add(*f)
	}
	if !slices.Equal(back.Names(), Formats.Names()) || back.Default() != Formats.Default() {
		t.Errorf("%v, added from the last to the first %v", Formats.Names(), back.Names())
	}
	for _, twice := range []Format{{Name: "text", Rank: 99}, {Name: "other", Rank: 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is added beside others like it", twice)
				}
			}()
			back.Add(twice)
		}()
	}
}
