package accuracy

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/testfiles"
)

var results = func() func(t *testing.T) *Results {
	var r *Results
	return func(t *testing.T) *Results {
		t.Helper()
		if testing.Short() {
			t.Skip("-short: the whole suite runs without it")
		}
		if r == nil {
			var err error
			if r, err = Run(testfiles.Path(t)); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
}()

// TestSample stands for the suites where they are too long: of every n-th recording,
// no more differ than the committed figures let expect.
func TestSample(t *testing.T) {
	if !testing.Short() {
		t.Skip("a sample of what the other tests compare")
	}
	cases, err := Sample(testfiles.Path(t), 25)
	if err != nil {
		t.Fatal(err)
	}
	equal, compared := 0, 0
	for _, c := range cases {
		if c.Skipped != "" {
			continue
		}
		if compared++; c.Exact() {
			equal++
		}
	}
	logUnequal(t, cases)
	if compared < 100 || float64(equal) < 0.97*float64(compared) {
		t.Errorf("%d of %d recordings are equal", equal, compared)
	}
}

// logUnequal names the cases that differ.
func logUnequal(t *testing.T, cases []*Case) {
	for _, c := range cases {
		if d := c.Unequal(); d != "" {
			t.Logf("%s: %s", c.Name, d)
		}
	}
}

// TestTruth holds the predictions of recorded training runs to what memplan
// promises: overall, and in each family.
func TestTruth(t *testing.T) {
	r := results(t)
	logUnequal(t, r.Truth)
	families := 0
	for _, y := range r.Tallies() {
		_, isFamily := strings.CutPrefix(y.Name, "truth/")
		if y.Cases == 0 || y.Name != "truth" && !isFamily {
			continue
		}
		share := 0.90
		if isFamily {
			families++
			share = 0.75
		}
		if float64(y.Equal) < share*float64(y.Cases) {
			t.Errorf("%s: %d of %d event lists are equal", y.Name, y.Equal, y.Cases)
		}
		if y.AllocatedWorst > 0.5 {
			t.Errorf("%s: a peak of allocated memory is off by %.3f %%", y.Name, y.AllocatedWorst)
		}
		if y.ReservedWorst > 2 {
			t.Errorf("%s: a peak of reserved memory is off by %.3f %%", y.Name, y.ReservedWorst)
		}
		if y.Name == "truth" {
			if float64(y.AllocatedEqual) < 0.95*float64(y.Steps) {
				t.Errorf("peaks of allocated memory are equal in %d of %d steps", y.AllocatedEqual, y.Steps)
			}
			if float64(y.ReservedEqual) < 0.85*float64(y.Steps) {
				t.Errorf("peaks of reserved memory are equal in %d of %d steps", y.ReservedEqual, y.Steps)
			}
			if y.Cases < 100 {
				t.Errorf("only %d cases are in scope", y.Cases)
			}
		}
	}
	if families < 6 {
		t.Errorf("only %d families are in scope", families)
	}
}

// TestHF holds the predictions of Hugging Face models to what memplan promises.
func TestHF(t *testing.T) {
	r := results(t)
	logUnequal(t, r.HF)
	families := 0
	for _, y := range r.Tallies() {
		if _, isFamily := strings.CutPrefix(y.Name, "hf/"); isFamily {
			families++
		}
		if y.Name != "hf" {
			continue
		}
		if y.Cases < 50 || float64(y.Equal) < 0.9*float64(y.Cases) {
			t.Errorf("%d of %d event lists are equal", y.Equal, y.Cases)
		}
		if float64(y.AllocatedEqual) < 0.95*float64(y.Steps) || y.AllocatedWorst > 0.5 {
			t.Errorf("peaks of allocated memory are equal in %d of %d steps, the worst is off by %.3f %%", y.AllocatedEqual, y.Steps, y.AllocatedWorst)
		}
	}
	if families < 12 {
		t.Errorf("found %d families, want 12 or more", families)
	}
}

// TestFuzz holds random programs against what PyTorch did with their scripts.
func TestFuzz(t *testing.T) {
	r := results(t)
	logUnequal(t, r.Fuzz)
	equal := 0
	for _, c := range r.Fuzz {
		if c.Exact() {
			equal++
		}
	}
	if len(r.Fuzz) < 300 || float64(equal) < 0.95*float64(len(r.Fuzz)) {
		t.Errorf("%d of %d programs are equal", equal, len(r.Fuzz))
	}
}

// TestReplay replays recorded training steps: no peak may differ.
func TestReplay(t *testing.T) {
	r := results(t)
	for _, c := range r.Replay {
		if d := c.Unequal(); d != "" {
			t.Errorf("%s: %s", c.Name, d)
		}
	}
	if len(r.Replay) != 11 {
		t.Errorf("found %d recordings, want 11", len(r.Replay))
	}
}

// TestGolden replays recorded traces of allocations.
func TestGolden(t *testing.T) {
	r := results(t)
	for _, c := range r.Golden {
		if !c.Equal {
			t.Errorf("%s: %s", c.Name, c.Difference)
		}
	}
	if len(r.Golden) != 44 {
		t.Errorf("found %d traces, want 44", len(r.Golden))
	}
}

// TestCommitted checks that nothing is worse than the committed figures, and
// that they and the page made from them are up to date.
func TestCommitted(t *testing.T) {
	r := results(t)
	text, err := os.ReadFile(testfiles.Path(t, "accuracy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var was []Tally
	if err := json.Unmarshal(text, &was); err != nil {
		t.Fatal(err)
	}
	for _, w := range Worse(was, r.Tallies()) {
		t.Error(w)
	}
	if !slices.Equal(was, r.Tallies()) {
		t.Error("testdata/accuracy.json is stale: run go run ./tools/accuracy -update")
	}
	page, err := os.ReadFile("../../docs/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != string(page) {
		t.Error("docs/accuracy.md is stale: run go run ./tools/accuracy -update")
	}
}

// TestEvidence checks that the list of recordings of each operator is up to date, and
// that most operators that specs can name are recorded.
func TestEvidence(t *testing.T) {
	found := results(t).Evidence()
	listed, err := os.ReadFile("../op/evidence.txt")
	if err != nil {
		t.Fatal(err)
	}
	if op.WriteEvidence(found) != string(listed) {
		t.Errorf("%s is stale: run go run ./tools/accuracy -update", op.EvidenceFile)
	}
	named, recorded := 0, 0
	for _, n := range op.Names() {
		switch r := op.Lookup(n).Row; r.Judge(found[r]).Basis {
		case op.Refused:
			continue
		case op.Recorded:
			recorded++
		default:
			t.Logf("%s is executed by no recording", n)
		}
		named++
	}
	if 10*recorded < 9*named {
		t.Errorf("%d of %d operators that specs can name are recorded", recorded, named)
	}
}

// TestWorse checks the gate: every figure that drops is named.
func TestWorse(t *testing.T) {
	was := []Tally{{Name: "a", Cases: 9, Equal: 8, Steps: 20, AllocatedEqual: 19, ReservedEqual: 18, ReservedIn2: 20, AllocatedWorst: 0.1, ReservedWorst: 0.2}, {Name: "b"}}
	if w := Worse(was, was); len(w) != 0 {
		t.Errorf("the same is worse: %q", w)
	}
	now := []Tally{{Name: "a", Cases: 8, Equal: 7, Steps: 20, AllocatedEqual: 18, ReservedEqual: 17, ReservedIn2: 19, AllocatedWorst: 0.2, ReservedWorst: 0.3}}
	if w := Worse(was, now); len(w) != 8 {
		t.Errorf("%d figures are worse, want 8: %q", len(w), w)
	}
}
