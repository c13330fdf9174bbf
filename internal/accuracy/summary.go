package accuracy

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Tally counts how predictions compare with recordings.
type Tally struct {
	Name    string `json:"name"`    // a suite, or suite/family
	Cases   int    `json:"cases"`   // compared
	Skipped int    `json:"skipped"` // recorded, with something that memplan does not model yet
	Equal   int    `json:"equal"`   // event lists

	Steps          int     `json:"steps"`
	AllocatedEqual int     `json:"allocated_equal"` // steps whose peak is equal to the byte
	AllocatedIn1   int     `json:"allocated_within_1_percent"`
	ReservedEqual  int     `json:"reserved_equal"`
	AllocatedWorst float64 `json:"allocated_worst_percent"` // the largest error of a step's peak
	ReservedWorst  float64 `json:"reserved_worst_percent"`
	ReservedIn2    int     `json:"reserved_within_2_percent"`

	PeaksOnly bool `json:"peaks_only,omitempty"` // no events and no reserved memory were recorded, and none are counted
	Live      bool `json:"live,omitempty"`       // no reserved memory was recorded
}

// add counts one case.
func (t *Tally) add(c *Case) {
	if c.Skipped != "" {
		t.Skipped++
		return
	}
	t.Cases++
	t.PeaksOnly, t.Live = c.PeaksOnly, c.Live
	if c.Equal && !c.PeaksOnly {
		t.Equal++
	}
	for _, s := range c.Steps {
		t.Steps++
		a, r := Percent(s.Allocated, s.RecordedAllocated), Percent(s.Reserved, s.RecordedReserved)
		if s.Allocated == s.RecordedAllocated {
			t.AllocatedEqual++
		}
		if math.Abs(a) <= 1 {
			t.AllocatedIn1++
		}
		t.AllocatedWorst = max(t.AllocatedWorst, math.Abs(a))
		if c.PeaksOnly || c.Live {
			continue
		}
		if s.Reserved == s.RecordedReserved {
			t.ReservedEqual++
		}
		if math.Abs(r) <= 2 {
			t.ReservedIn2++
		}
		t.ReservedWorst = max(t.ReservedWorst, math.Abs(r))
	}
}

// Percent is the error of a prediction in percent of what was recorded.
func Percent(predicted, recorded tensor.Bytes) float64 {
	if predicted == recorded {
		return 0
	}
	return 100 * (float64(predicted) - float64(recorded)) / float64(max(recorded, 1))
}

// Results are all cases of all suites.
type Results struct {
	Truth, HF, Trainer, Fake, Fuzz, Releases, GPU, Replay, Golden []*Case

	Measured []*Measured // peaks on real GPUs
}

// Run compares everything under a testdata folder.
func Run(dir string) (*Results, error) {
	r := &Results{}
	recs, err := Load(filepath.Join(dir, "truth"))
	if err != nil {
		return nil, err
	}
	for _, rec := range recs {
		r.Truth = append(r.Truth, Compare(rec))
	}
	hf, err := LoadHF(filepath.Join(dir, "truth-hf"))
	if err != nil {
		return nil, err
	}
	for _, rec := range hf {
		r.HF = append(r.HF, rec.Compare())
	}
	trainer, err := LoadTrainer(filepath.Join(dir, "truth-trainer"))
	if err != nil {
		return nil, err
	}
	for _, rec := range trainer {
		r.Trainer = append(r.Trainer, rec.Compare())
	}
	fake, err := LoadFake(filepath.Join(dir, "truth-fake"))
	if err != nil {
		return nil, err
	}
	for _, rec := range fake {
		r.Fake = append(r.Fake, rec.Compare())
	}
	if r.Fuzz, err = compareLists(filepath.Join(dir, "fuzz")); err != nil {
		return nil, err
	}
	if r.Releases, err = compareLists(filepath.Join(dir, releasesSuite)); err != nil {
		return nil, err
	}
	if r.GPU, err = compareLists(filepath.Join(dir, "measured/*")); err != nil {
		return nil, err
	}
	if r.Replay, err = compareReplay(filepath.Join(dir, "truth-replay")); err != nil {
		return nil, err
	}
	if r.Golden, err = compareGolden(filepath.Join(dir, "golden")); err != nil {
		return nil, err
	}
	r.Measured, err = compareMeasured(filepath.Join(dir, "measured"))
	return r, err
}

// releasesSuite has programs that later releases ran on a pretended GPU.
const releasesSuite = "releases"

// gpuSuite has programs that real GPUs ran.
const gpuSuite = "gpu"

// compareLists compares the cases of all files of a folder, whose names are the families.
func compareLists(dir string) ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		return nil, err
	}
	var out []*Case
	for _, f := range files {
		cases, err := ReadFuzz(f)
		if err != nil {
			return nil, err
		}
		for _, fc := range cases {
			c := fc.Compare()
			c.Family = strings.TrimSuffix(filepath.Base(f), ".json.gz")
			out = append(out, c)
		}
	}
	return out, nil
}

// Sample compares every n-th recording of the suites truth, truth-hf, truth-trainer and fuzz.
func Sample(dir string, n int) ([]*Case, error) {
	files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	var out []*Case
	for i, f := range files {
		suite := filepath.Base(filepath.Dir(f))
		if suite != "fuzz" && i%n != 0 {
			continue
		}
		switch suite {
		case "truth":
			r, err := LoadFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, Compare(r))
		case "truth-hf":
			r := new(HFRecording)
			if err := readJSON(f, r); err != nil {
				return nil, err
			}
			out = append(out, r.Compare())
		case "truth-trainer":
			r := new(TrainerRecording)
			if err := readJSON(f, r); err != nil {
				return nil, err
			}
			out = append(out, r.Compare())
		case "fuzz":
			cases, err := ReadFuzz(f)
			if err != nil {
				return nil, err
			}
			for k := 0; k < len(cases); k += n {
				out = append(out, cases[k].Compare())
			}
		}
	}
	return out, nil
}

// Suite is a list of cases with its name.
type Suite struct {
	Name  string
	Cases []*Case
}

// Suites lists the results in the order in which they are printed.
func (r *Results) Suites() []Suite {
	return []Suite{{"truth", r.Truth}, {"hf", r.HF}, {"trainer", r.Trainer}, {"fake", r.Fake}, {"fuzz", r.Fuzz}, {releasesSuite, r.Releases}, {gpuSuite, r.GPU}, {"replay", r.Replay}, {"golden", r.Golden}}
}

// Tallies sums up the results: each suite, then its families if it has several.
func (r *Results) Tallies() []Tally {
	var out []Tally
	for _, s := range r.Suites() {
		if len(s.Cases) == 0 { // none were recorded
			continue
		}
		total, families := Tally{Name: s.Name}, map[string]*Tally{}
		for _, c := range s.Cases {
			name := s.Name + "/" + c.Family
			if families[name] == nil {
				families[name] = &Tally{Name: name}
			}
			total.add(c)
			families[name].add(c)
		}
		out = append(out, total)
		if len(families) == 1 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(families)) {
			out = append(out, *families[name])
		}
	}
	return out
}

// Worse lists what got worse from one summary to another: nothing may.
func Worse(committed, now []Tally) []string {
	byName := map[string]*Tally{}
	for i := range now {
		byName[now[i].Name] = &now[i]
	}
	var out []string
	for _, c := range committed {
		n := byName[c.Name]
		if n == nil {
			out = append(out, c.Name+": gone")
			continue
		}
		for _, x := range []struct {
			what     string
			was, now int
		}{
			{"cases", c.Cases, n.Cases}, {"equal event lists", c.Equal, n.Equal}, {"equal peaks of allocated memory", c.AllocatedEqual, n.AllocatedEqual},
			{"peaks of allocated memory within 1 %", c.AllocatedIn1, n.AllocatedIn1},
			{"equal peaks of reserved memory", c.ReservedEqual, n.ReservedEqual}, {"peaks of reserved memory within 2 %", c.ReservedIn2, n.ReservedIn2},
		} {
			if x.now < x.was {
				out = append(out, fmt.Sprintf("%s: %d %s, were %d", c.Name, x.now, x.what, x.was))
			}
		}
		for _, x := range []struct {
			what     string
			was, now float64
		}{{"allocated", c.AllocatedWorst, n.AllocatedWorst}, {"reserved", c.ReservedWorst, n.ReservedWorst}} {
			if x.now > x.was+1e-9 {
				out = append(out, fmt.Sprintf("%s: a peak of %s memory is off by %.3f %%, at most %.3f %% before", c.Name, x.what, x.now, x.was))
			}
		}
	}
	return out
}
