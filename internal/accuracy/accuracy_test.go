package accuracy

import (
	"path/filepath"
	"testing"
)

func TestTruth(t *testing.T) {
	recs, err := Load(filepath.Join("..", "..", "testdata", "truth"))
	if err != nil {
		t.Fatal(err)
	}
	equal, n := 0, 0
	for _, r := range recs {
		c, err := Compare(r)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			n++
			continue
		}
		if c.Skipped != "" {
			continue
		}
		n++
		if c.Equal {
			equal++
		} else {
			t.Logf("%s: %s", c.Name, c.Difference)
		}
	}
	t.Logf("%d of %d equal", equal, n)
}
