package cuda

import (
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/specs"
)

// TestPresets plans a step of every preset: a GPU's kernels take all calls, and nothing is left
// to host memory.
func TestPresets(t *testing.T) {
	jobs := map[string]*estimate.Job{}
	for _, preset := range specs.Names() {
		text, err := specs.Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		if jobs[preset], err = (&estimate.Recipe{Path: preset, Text: text}).Job(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range specs.HFTypes() {
		if testing.Short() {
			break
		}
		text := []byte("memplan: 1\nmodel: {preset: hf/" + m + "}\n")
		if j, err := (&estimate.Recipe{Path: m, Text: text}).Job(); err == nil { // others need a configuration
			jobs["hf/"+m] = j
		}
	}
	for preset, j := range jobs {
		onGPU, err := runtime.Probe(j.Program, j.Machine.Env, &Device{is: gpu{capability: 80, sms: 108}})
		if err != nil {
			t.Errorf("%s: %v", preset, err)
			continue
		}
		if len(onGPU.HostOperators) > 0 {
			t.Errorf("%s: computed in host memory are %q", preset, onGPU.HostOperators)
		}
	}
}
