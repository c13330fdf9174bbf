package graph

import (
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// A spec that is written out without its trainer has the params of the loop and of the model
// in one list. Those of one name are those that one is given by the other.
func TestLoopParams(t *testing.T) {
	shared := []string{"task", "use_cache", "flattened", "shifts_labels", "smooths_shifted"}
	names := func(file string) []string {
		text, err := specs.Preset(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(file, text, spec.Options{Loop: true})
		if s == nil {
			t.Fatal(err)
		}
		return s.ParamNames()
	}
	of := map[bool]map[string]string{true: {}, false: {}} // of transformers or not: models with a param of this name
	for _, m := range specs.Names() {
		for _, p := range names(m) {
			of[false][p] = m
		}
	}
	for _, m := range specs.HFTypes() {
		for _, p := range names("hf/" + m) {
			of[true][p] = "hf/" + m
		}
	}
	for loop, transformers := range map[string]bool{"hf": true, "sft": true, "dpo": true, "grpo": true, "trl": true, "litgpt": false, "lightning": false, "torchtitan": false, "megatron": false} {
		for _, p := range names("trainers/" + loop) {
			if m := of[transformers][p]; m != "" && !slices.Contains(shared, p) {
				t.Errorf("trainers/%s and %s both have a param %s", loop, m, p)
			}
		}
	}
}
