package device

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

func TestParseArch(t *testing.T) {
	for in, want := range map[string]int{
		"sm_80": 80, "SM80": 80, "80": 80, "8.0": 80, " 8.9 ": 89, "sm_90a": 90, "10.0": 100, "sm_120f": 120, "sm_61": 61,
	} {
		if got, err := ParseArch(in); err != nil || got != want {
			t.Errorf("ParseArch(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "8", "sm_", "sm_81", "8.00", "80.", ".80", "8.0.0", "-80", "volta", "9999999999999999999"} {
		if got, err := ParseArch(in); err == nil || !strings.Contains(err.Error(), "allowed are sm_60, sm_61, sm_70") {
			t.Errorf("ParseArch(%q) = %d, %v", in, got, err)
		}
	}
}

// TestCustom checks that a GPU described by hand is like the row of the same
// numbers, but for the context, which was not measured.
func TestCustom(t *testing.T) {
	g := Custom("mine", 40*tensor.GiB, 80, 108)
	row, err := Lookup("a100-40gb")
	if err != nil {
		t.Fatal(err)
	}
	if g.Display != "mine" || g.Total.Value != 40*tensor.GiB || g.ThreadsPerSM() != row.ThreadsPerSM() {
		t.Errorf("%+v", g)
	}
	if f := g.Context; !f.Assumed || f.Low > row.Context.Low || f.High < row.Context.High || g.Usable() != g.Total.Value-f.Value {
		t.Errorf("context %+v", f)
	}
}
