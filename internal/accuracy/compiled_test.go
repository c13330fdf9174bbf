package accuracy

import (
	"slices"
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
			c.Events["step1"] = slices.DeleteFunc(c.Events["step1"], constants(c.Events["step1"]))
			if d := trace.Difference(c.Events, p.events, false, p.autocast); d != "" {
				t.Error(d)
			}
		})
	}
}

// constants reports which events are of the few bytes that folding of constants
// computes while a graph is compiled.
func constants(list []trace.RecordedEvent) func(trace.RecordedEvent) bool {
	gone := map[int]bool{}
	for i := range list[:max(0, len(list)-1)] {
		if e, f := list[i], list[i+1]; e.Bytes > 0 && e.Bytes <= 8 && f.Bytes == 0 && f.ID == -e.ID {
			gone[int(e.ID)], gone[-int(e.ID)] = true, true
		}
	}
	return func(e trace.RecordedEvent) bool { return gone[int(e.ID)] }
}
