package estimate

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// TestExplicit checks that a spec printed without its sugar means the same:
// event for event, and that printing it again changes nothing.
func TestExplicit(t *testing.T) {
	needs.Time(t, needs.Alone)
	texts := map[string]string{
		"a string like an expression": `memplan: 1
params: {act: "${'${x} \u2028'}"}
model: {inputs: {x: {shape: [4]}}, loss: [mean], layers: [{Linear: 4, if: "${act != 'relu'}"}]}
`}
	for _, name := range specs.Names() {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
		if !ownStep(string(text)) {
			texts["with "+name] = "memplan: 1\nmodel: {preset: " + name + "}\n"
		}
	}
	files, err := filepath.Glob(needs.File(t, "ok", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(text)
	}
	sets := [][]string{
		nil,
		{"train.zero_grad={at: before_backward, set_to_none: false}", "train.empty_cache={every: 2, at: step_start}"},
		{"train.zero_grad={at: after_step}", "train.empty_cache={at: before_backward}", "mode=train"},
		{"mode=inference"},
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		for i, set := range sets {
			if i > 0 && (filepath.Ext(name) != "" || ownStep(text)) {
				continue // its own step may not go with these
			}
			s, err := spec.Parse(name, []byte(text), spec.Options{Set: set})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			j, err := NewJob(s, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plain, err := s.Explicit(j.Definer, j.Loop)
			if s.Model != nil && (s.Model.Load != nil || s.Model.DType.Set && j.Loop != nil || strings.Contains(text, "target_modules: all-linear") || name == "peft_adalora_smoothing.yaml" || s.PEFT.Prompts() != nil) || s.Trainer != nil && s.Trainer.GRPO != nil {
				if err == nil || !strings.Contains(err.Error(), "has no form without ") {
					t.Errorf("%s: error %v, though the model is read from a checkpoint or converted, or its type says what is targeted or stands around it, or the trainer asks for logits of completions or smooths labels", name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			a, err := Run(j)
			if err != nil {
				t.Fatal(err)
			}
			s, err = spec.Parse(name, plain, spec.Options{})
			if err == nil {
				j, err = NewJob(s, nil)
			}
			if err != nil {
				t.Errorf("%s %v: printed as\n%s\n%v", name, set, plain, err)
				continue
			}
			b, err := Run(j)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Played.Trace.Events, b.Played.Trace.Events) {
				t.Errorf("%s %v: means something else when printed as\n%s", name, set, plain)
			}
			if again, err := s.Explicit(j.Definer, j.Loop); err != nil || string(again) != string(plain) {
				t.Errorf("%s %v: printed again as\n%s\n%v", name, set, again, err)
			}
		}
	}
}
