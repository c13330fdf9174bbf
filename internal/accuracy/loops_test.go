package accuracy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// What the libraries count in has a number for each of 4 samples at most. All such tensors of
// litgpt and torchmetrics, and the batch of pretrain, are less than 48 blocks of 512 bytes.
const (
	counters = 32
	counted  = 48 * 512
)

// TestLoops compares the loops of other libraries with recordings: the allocations and
// frees, of litgpt and torchtitan those of each step, and the peaks. The small tensors in which the
// libraries count are left out.
func TestLoops(t *testing.T) {
	recs, err := LoadTrainer(needs.File(t, "truth-loops"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		t.Run(r.Name, func(t *testing.T) {
			p, err := predict(r.Name, r.Spec(), r.Env(), len(r.Steps), nil)
			if err != nil {
				t.Fatal(err)
			}
			ofLitGPT, quantized := strings.HasPrefix(r.Name, "litgpt"), strings.Contains(r.Name, "qlora")
			ofTorchtitan := strings.HasPrefix(r.Name, "torchtitan")
			recorded, predicted := stepsOf(r), stepsPredicted(p.events, len(r.Steps))
			if ofTorchtitan { // the order in which autocast's cache is freed is that of addresses
				for k := range recorded {
					freesSorted(recorded[k])
					freesSorted(predicted[k])
				}
			}
			if !ofLitGPT && !ofTorchtitan { // a step begins when its batch is on the GPU, and the last one ends after training
				all, want := slices.Concat(recorded...), slices.Concat(predicted...)
				all = all[:min(len(all), len(want))]
				freesSorted(all)
				freesSorted(want)
				for i := range want {
					if i >= len(all) || all[i] != want[i] {
						t.Fatalf("event %d: predicted %s, recorded %v", i, want[i], all[i:min(i+1, len(all))])
					}
				}
			}
			for k := 1; k <= len(r.Steps) && (ofLitGPT || ofTorchtitan); k++ {
				// bitsandbytes 0.50 frees what it dequantizes elsewhere; pretrain cuts its batch from a
				// larger one.
				if !quantized && !strings.Contains(r.Name, "pretrain") && !slices.Equal(recorded[k], predicted[k]) {
					t.Errorf("step %d: %d events are recorded, %d predicted, or others", k, len(recorded[k]), len(predicted[k]))
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
				want := r.Steps[s.Step-1].PeakAllocated
				var within tensor.Bytes
				switch {
				case quantized:
					within = want / 200
				case ofLitGPT:
					within = counted
				}
				if e := s.PeakAllocated.Allocated - want; max(e, -e) > within {
					t.Errorf("step %d: peak %d bytes allocated, recorded %d: %+d", s.Step, int64(s.PeakAllocated.Allocated), int64(want), int64(e))
				}
				// The buffer that torchtitan computes again is in another segment if it is alone on the GPU.
				if got, want := s.PeakReserved.Reserved, r.Steps[s.Step-1].PeakReserved; ofTorchtitan && !strings.Contains(r.Name, "offload") && got != want {
					t.Errorf("step %d: peak %d bytes reserved, recorded %d", s.Step, int64(got), int64(want))
				}
			}
		})
	}
}

// stepsOf are the events of the set-up and of each recorded step, as the sizes of what is allocated and freed.
func stepsOf(r *TrainerRecording) [][]string {
	size := map[int32]int64{}
	var out [][]string
	for k := range len(r.Steps) + 1 {
		name, step := "setup", []string{}
		if k > 0 {
			name = fmt.Sprintf("step%d", k)
		}
		for _, e := range r.Events[name] {
			if e.ID > 0 {
				size[int32(e.ID)] = int64(e.Bytes)
				step = added(step, "+", int64(e.Bytes))
			} else {
				step = added(step, "-", size[int32(-e.ID)])
			}
		}
		out = append(out, step)
	}
	return out
}

// stepsPredicted are those that are predicted.
func stepsPredicted(events []trace.Event, steps int) [][]string {
	size := map[int32]int64{}
	out := make([][]string, steps+1)
	for _, e := range events {
		switch k := int(e.Step); e.Kind {
		case trace.Alloc:
			if size[e.ID] = int64(e.Bytes); k <= steps {
				out[k] = added(out[k], "+", size[e.ID])
			}
		case trace.Free:
			if k <= steps {
				out[k] = added(out[k], "-", size[e.ID])
			}
		}
	}
	return out
}

func added(to []string, what string, bytes int64) []string {
	if bytes <= counters {
		return to
	}
	return append(to, fmt.Sprint(what, bytes))
}

// freesSorted sorts frees that follow each other.
func freesSorted(events []string) {
	for i := 0; i < len(events); {
		n := i
		for n < len(events) && events[n][0] == '-' {
			n++
		}
		slices.Sort(events[i:n])
		i = n + 1
	}
}
