package accuracy

import (
	"path/filepath"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// peaksEqual counts the cases of which all peaks are the recorded ones.
func peaksEqual(cases []*Case) (n int) {
	for _, c := range cases {
		same := len(c.Steps) > 0
		for _, s := range c.Steps {
			same = same && s.Allocated == s.RecordedAllocated
		}
		if same {
			n++
		}
	}
	return n
}

// holdReleases holds peaks of live tensors in later releases against the predicted ones.
func holdReleases(t *testing.T, r *Results) {
	cases := r.Releases
	if n := peaksEqual(cases); len(cases) < 2200 || float64(n) < 0.98*float64(len(cases)) {
		t.Errorf("the peaks of %d of %d cases are equal, want 98 %% of at least 2200", n, len(cases))
	}
}

// TestReleasesSample stands for it where it is too long.
func TestReleasesSample(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(needs.File(t, releasesSuite), "*.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var sample []*Case
	for _, f := range files {
		cases, err := ReadFuzz(f)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(cases); i += 20 {
			sample = append(sample, cases[i].Compare())
		}
	}
	if n := peaksEqual(sample); len(sample) < 40 || float64(n) < 0.95*float64(len(sample)) {
		t.Errorf("the peaks of %d of %d cases are equal", n, len(sample))
	}
}
