package accuracy

import (
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/trace"
)

// compiledCase is a job whose model torch.compile compiled on a virtual GPU, where
// Inductor's kernels did nothing: what its code allocates is the code's own.
type compiledCase struct {
	FuzzCase
	Log string `json:"log"` // what TORCH_LOGS=output_code printed, without the kernels
}

// TestCompiled replays the code that Inductor wrote, and compares event by event.
func TestCompiled(t *testing.T) {
	var cases []*compiledCase
	if err := readJSON(needs.File(t, "compiled/cases.json.gz"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			env, err := c.Env()
			if err != nil {
				t.Fatal(err)
			}
			p, err := predict(c.Name, c.Spec, env, len(c.Steps), func(string) ([]byte, error) { return []byte(c.Log), nil })
			if err != nil {
				t.Fatal(err)
			}
			c.Events["step1"] = withoutConstants(c.Events["step1"])
			if d := trace.Difference(c.Events, withoutNumbers(p.events), false, p.autocast); d != "" {
				t.Error(d)
			}
		})
	}
}

// withoutNumbers does the same with what is predicted of the first step, where a step
// makes and frees numbers itself, as a GradScaler does.
func withoutNumbers(events []trace.Event) []trace.Event {
	var before, first, after []trace.Event
	var list []trace.RecordedEvent
	for _, e := range events {
		switch {
		case trace.StepOf(&e, false) < 1:
			before = append(before, e)
		case trace.StepOf(&e, false) > 1:
			after = append(after, e)
		case e.Kind == trace.Alloc:
			first, list = append(first, e), append(list, trace.RecordedEvent{ID: int64(e.ID), Bytes: e.Bytes})
		case e.Kind == trace.Free:
			first, list = append(first, e), append(list, trace.RecordedEvent{ID: -int64(e.ID)})
		}
	}
	out, kept := before, withoutConstants(list)
	for i, k := 0, 0; i < len(list) && k < len(kept); i++ {
		if list[i] == kept[k] {
			out = append(out, first[i])
			k++
		}
	}
	return append(out, after...)
}

// withoutConstants leaves out what folding of constants computes while a graph is
// compiled: numbers of a few bytes, one after the other, which are all freed before
// anything else happens.
func withoutConstants(list []trace.RecordedEvent) []trace.RecordedEvent {
	var out []trace.RecordedEvent
	for i := 0; i < len(list); {
		live, end := map[int64]bool{}, i
		for k, e := range list[i:] {
			if e.Bytes > 8 || e.Bytes == 0 && !live[-e.ID] {
				break
			}
			if e.Bytes > 0 {
				live[e.ID] = true
			} else if delete(live, -e.ID); len(live) == 0 {
				end = i + k + 1
			}
		}
		if end == i {
			out = append(out, list[i])
			end++
		}
		i = end
	}
	return out
}
