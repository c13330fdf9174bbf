package accuracy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/trace"
)

// job is the spec of a recording and what it runs on; where a case is of testdata/truth-hf
// or testdata/truth-trainer, it is not in the case.
type job struct {
	spec    string
	files   func(name string) ([]byte, error)
	trainer bool
}

// Library makes a case of a recording of testdata/truth-hf or testdata/truth-trainer, to
// be run on another release, and returns what was run.
func Library(path, torch string) (*FuzzCase, json.RawMessage, error) {
	var r struct {
		Config struct{ Arch string }
	}
	var raw struct{ Config json.RawMessage }
	if err := readJSON(path, &raw); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(raw.Config, &r.Config); err != nil {
		return nil, nil, err
	}
	suite, name := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".json.gz")
	f := &FuzzCase{Name: name, Arch: r.Config.Arch, Torch: torch, Of: suite + "/" + name, Pretended: true}
	return f, raw.Config, f.find(filepath.Dir(filepath.Dir(path)))
}

// find reads the job of a case from the recording that it is of, in the folder testdata.
func (f *FuzzCase) find(testdata string) error {
	path := filepath.Join(testdata, filepath.FromSlash(f.Of)+".json.gz")
	if strings.HasPrefix(f.Of, "truth-hf/") {
		r := new(HFRecording)
		err := readJSON(path, r)
		f.job = &job{spec: r.Spec(), files: func(string) ([]byte, error) { return r.Config.HF, nil }}
		return err
	}
	r := new(TrainerRecording)
	if err := readJSON(path, r); err != nil {
		return err
	}
	text, err := json.Marshal(r.Config.HF)
	f.job = &job{spec: r.Spec(), files: func(string) ([]byte, error) { return text, nil }, trainer: true}
	return err
}

// ends counts the recorded events up to the end of the set-up and of each step.
func ends(r trace.Recorded, steps int) (out []int) {
	n := 0
	for k := range steps + 1 {
		name := "setup"
		if k > 0 {
			name = fmt.Sprintf("step%d", k)
		}
		n += len(r[name])
		out = append(out, n)
	}
	return out
}

// whole is a recording as one list.
func whole(r trace.Recorded, steps int) trace.Recorded {
	all := slices.Clone(r["setup"])
	for k := range steps {
		all = append(all, r[fmt.Sprintf("step%d", k+1)]...)
	}
	return trace.Recorded{"setup": all}
}

// cut gives events the steps in which they were recorded: where a trainer's step ends and
// its batch begins is the recording's. What comes after the last step is left out.
func cut(events []trace.Event, ends []int) []trace.Event {
	events = slices.Clone(events)
	n, step := 0, 0
	for i := range events {
		for step < len(ends) && n >= ends[step] {
			step++
		}
		if step == len(ends) {
			return events[:i]
		}
		events[i].Step = int32(step)
		if k := events[i].Kind; k == trace.Alloc || k == trace.Free {
			n++
		}
	}
	return events
}

// joined are events as those of one step.
func joined(events []trace.Event) []trace.Event {
	events = slices.Clone(events)
	for i := range events {
		events[i].Step = 0
	}
	return events
}
