package accuracy

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/needs"
)

// TestMegatron compares the steps of Megatron's loop with recordings: allocations and frees,
// but for the numbers in which the optimizer counts.
func TestMegatron(t *testing.T) {
	recs, err := LoadTrainer(needs.File(t, "truth-megatron"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		t.Run(r.Name, func(t *testing.T) {
			p, err := predict(r.Name, r.Spec(), r.Env(), len(r.Steps), nil)
			if err != nil {
				t.Fatal(err)
			}
			recorded, predicted := stepsOf(r), stepsPredicted(p.events, len(r.Steps))
			first := 1
			if slices.ContainsFunc([]string{"rope", "num_experts", "pipeline_model_parallel_size"}, func(s string) bool { return strings.Contains(r.Config.Text, s) }) {
				first = 2 // the first forward pass computes a table or a mask, or what dispatchers hold from then on
			} else { // the buffer mpu, which is there from the start in what is predicted
				i := 0
				for i < min(len(recorded[1]), len(predicted[1])) && recorded[1][i] == predicted[1][i] {
					i++
				}
				if want := "+" + strconv.FormatInt(bufferOfMegatron(r.Config.Text), 10); i == len(recorded[1]) || recorded[1][i] != want {
					t.Fatalf("step 1: event %d is not the buffer, %s", i, want)
				}
				recorded[1] = slices.Delete(recorded[1], i, i+1)
			}
			for k := first; k <= len(r.Steps); k++ {
				if !slices.Equal(recorded[k], predicted[k]) {
					i := 0
					for i < min(len(recorded[k]), len(predicted[k])) && recorded[k][i] == predicted[k][i] {
						i++
					}
					t.Errorf("step %d: from event %d of %d: recorded %v, predicted %v", k, i, len(recorded[k]), recorded[k][max(i-10, 0):min(i+20, len(recorded[k]))], predicted[k][max(i-10, 0):min(i+20, len(predicted[k]))])
				}
			}
			res, err := allocsim.Replay(p.events, allocsim.ReplayOptions{Config: p.conf})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range res.Steps {
				if s.Step == 0 || s.Step > len(r.Steps) {
					continue
				}
				want := r.Steps[s.Step-1]
				t.Logf("step %d: %d, recorded %d", s.Step, int64(s.PeakAllocated.Allocated), int64(want.PeakAllocated))
				if got := s.PeakAllocated.Allocated; got != want.PeakAllocated {
					t.Errorf("step %d: peak %d bytes allocated, recorded %d", s.Step, int64(got), int64(want.PeakAllocated))
				}
			}
		})
	}
}

// bufferOfMegatron is how many bytes the buffer mpu of a recording has: the scores of two samples
// of 128 tokens with four heads, which are more than a gathered sequence.
func bufferOfMegatron(text string) int64 {
	bytes := int64(2 * 4 * 128 * 128)
	if strings.Contains(text, "tensor_model_parallel_size: 2") {
		bytes /= 2
	}
	if strings.Contains(text, "bf16: true") || strings.Contains(text, "fp16: true") {
		return 2 * bytes
	}
	return 4 * bytes
}
