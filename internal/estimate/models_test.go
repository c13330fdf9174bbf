package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/spec"
)

// TestModels checks that each model of the table has as many parameters as it says, which is what
// the library counts; in short, one of each type. The library fails with some.
func TestModels(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range hub.Models() {
		if testing.Short() && seen[m.Type] {
			continue
		}
		seen[m.Type] = true
		text := fmt.Sprintf("memplan: 1\nmodel: {hf: %s}\nmode: inference\n", m.Names[0])
		if m.Task != "" {
			text = fmt.Sprintf("memplan: 1\nmodel: {hf: %s, task: %s}\nmode: inference\n", m.Names[0], m.Task)
		}
		s, err := spec.Parse("test.yaml", []byte(text), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := NewJob(s, nil)
		if err != nil && strings.Contains(err.Error(), "transformers 5.12 fails") {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", m.Names[0], err)
			continue
		}
		p, err := Play(j)
		if err != nil {
			t.Errorf("%s: %v", m.Names[0], err)
		} else if p.Totals.Parameters+fixed(j, m) != m.Parameters {
			t.Errorf("%s: %d parameters, not %d", m.Names[0], p.Totals.Parameters, m.Parameters)
		}
	}
}

// fixed are the parameters that never train, which presets have as buffers: positions of Whisper's
// encoder.
func fixed(j *Job, m *hub.Model) int64 {
	if m.Type != "whisper" {
		return 0
	}
	n, _ := j.Param("max_source_positions")
	d, _ := j.Param("d_model")
	return n * d
}
