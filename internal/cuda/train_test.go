//go:build cuda

package cuda

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/specs"
)

func job(t *testing.T, preset string, set ...string) *estimate.Job {
	t.Helper()
	text, err := specs.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(preset+".yaml", text, spec.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// train runs steps of a job on a device.
func train(j *estimate.Job, d runtime.Device, steps int) (*runtime.Result, error) {
	return runtime.Run(context.Background(), j.Program, j.Machine.Env, runtime.Options{
		Device: d, Config: j.Machine.Conf, Steps: steps, Seed: 1, Poison: true,
	})
}

// TestTrain trains models on the GPU and on the CPU, from the same weights and
// with the same random numbers: the losses are the same but for rounding, and the
// memory that was taken is what was predicted, to the byte.
func TestTrain(t *testing.T) {
	t.Setenv("MEMPLAN_EMULATOR_MEMORY", "4294967296")
	d := open(t)
	for _, c := range []struct {
		preset string
		set    []string
	}{
		{"mlp", []string{"params.sizes=[32,64,10]", "train.batch_size=32", "train.optimizer={Adam: {lr: 0.01}}"}},
		{"lenet", []string{"train.batch_size=4", "train.optimizer={SGD: {lr: 0.01, momentum: 0.9}}"}},
		{"gpt", []string{"params.vocab=64", "params.d=32", "params.heads=2", "params.layers=1", "params.seq=16", "params.ctx=16", "train.batch_size=2", "train.optimizer={AdamW: {lr: 0.01}}"}},
		{"vit", []string{"params.img=8", "params.patch=4", "params.d=32", "params.heads=2", "params.layers=1", "params.classes=10", "train.batch_size=2"}},
		{"llama", []string{"params.vocab=64", "params.d=32", "params.heads=2", "params.kv=1", "params.ff=64", "params.layers=1", "params.seq=16", "params.ctx=16", "train.batch_size=2"}},
		{"unet", []string{"params.base=4", "params.depth=2", "params.img=16", "train.batch_size=2"}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			const steps = 3
			j := job(t, c.preset, append([]string{"device.gpu=a100-40gb"}, c.set...)...)
			predicted, err := estimate.Run(j)
			if err != nil {
				t.Fatal(err)
			}
			want, err := train(j, cpu.New(4*tensor.GiB), steps)
			if err != nil {
				t.Fatal(err)
			}
			got, err := train(j, d, steps)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want.Steps {
				a, b := got.Steps[i].Loss, want.Steps[i].Loss
				if !(math.Abs(a-b) <= 1e-3*math.Abs(b)) {
					t.Errorf("step %d: loss %v, on the CPU %v", i, a, b)
				}
			}
			if a, b := got.Stats.AllocatedBytes.All.Peak, predicted.Free.PeakAllocated.Allocated; a != b {
				t.Errorf("peak allocated %d, predicted %d", a, b)
			}
			if a, b := got.Stats.ReservedBytes.All.Peak, predicted.Free.PeakReserved.Reserved; a != b {
				t.Errorf("peak reserved %d, predicted %d", a, b)
			}
			if len(d.held) != 0 {
				t.Errorf("%d segments were not given back", len(d.held))
			}
		})
	}
}

// TestTrainOutOfMemory: a job whose memory is too small by one segment dies with
// what the allocator says, and gives all back.
func TestTrainOutOfMemory(t *testing.T) {
	j := job(t, "lenet", "device.gpu=a100-40gb", "train.batch_size=4")
	predicted, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	d := open(t)
	d.Limit(predicted.Free.PeakReserved.Reserved)
	if _, err := train(j, d, 1); err != nil {
		t.Errorf("with what was predicted: %v", err)
	}
	d.Limit(predicted.Free.PeakReserved.Reserved - 1)
	if _, err := train(j, d, 1); !errors.As(err, new(*allocsim.OOMError)) {
		t.Errorf("with a byte less: %v", err)
	}
	if len(d.held) != 0 {
		t.Errorf("%d segments were not given back", len(d.held))
	}
}
