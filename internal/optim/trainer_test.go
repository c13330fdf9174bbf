package optim

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTrainerRates holds rates against transformers' (testdata/trainer_schedules.py), of a
// training whose steps the arguments name, or that is played so long, and finds a type that
// was not recorded.
func TestTrainerRates(t *testing.T) {
	text, err := os.ReadFile("testdata/trainer_schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		LR    float64
		Steps int64
		Cases []struct {
			Type   string
			Warmup float64
			Kwargs map[string]any
			Rates  []float64
		}
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range recorded.Cases {
		seen[c.Type] = true
		for _, total := range []int64{0, recorded.Steps} {
			t.Run(fmt.Sprint(c.Type, c.Warmup, c.Kwargs, total), func(t *testing.T) {
				r := &TrainerRates{Type: c.Type, Warmup: c.Warmup, Total: total, LR: recorded.LR, Kwargs: c.Kwargs}
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
				played := recorded.Steps
				if total > 0 {
					played = 3
				}
				rates := NewRates(OfTrainer(r), []any{&adamArgs{LR: recorded.LR, Betas: []float64{0.9, 0.999}}}, played)
				for i, want := range c.Rates {
					if got := rates.LR(0); !near(got, want) {
						t.Fatalf("step %d: %v, not %v", i, got, want)
					}
					if err := rates.Step(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
	for name := range trainerSchedules {
		if !seen[name] {
			t.Errorf("%s was not recorded", name)
		}
	}
}

// TestTrainerRateErrors: what is not computed is said.
func TestTrainerRateErrors(t *testing.T) {
	for want, r := range map[string]*TrainerRates{
		"lr_scheduler_type greedy is not computed":                  {Type: "greedy"},
		"linear with power: 2 is not computed":                      {Type: "linear", Kwargs: map[string]any{"power": 2.0}},
		"cosine with num_cycles: many is not computed":              {Type: "cosine", Kwargs: map[string]any{"num_cycles": "many"}},
		"needs min_lr or min_lr_rate":                               {Type: "cosine_with_min_lr"},
		"warmup_stable_decay needs num_decay_steps":                 {Type: "warmup_stable_decay"},
		"lr_end, 1e-07, must be below the learning rate":            {Type: "polynomial", LR: 1e-8},
		"decay_type must be linear, cosine or 1-sqrt, not straight": {Type: "warmup_stable_decay", Kwargs: map[string]any{"num_decay_steps": 2.0, "decay_type": "straight"}},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}
