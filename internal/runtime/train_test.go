package runtime

import (
	"context"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
)

// TestTrain trains models on the CPU, with every block poisoned when it is
// handed out and when it is freed: the loss falls, and memory is what was
// predicted, to the byte.
func TestTrain(t *testing.T) {
	for _, c := range []struct {
		preset string
		steps  int
		falls  float64 // to which part of the first loss
		set    []string
	}{
		{"mlp", 20, 0.1, []string{"params.sizes=[32,64,10]", "train.batch_size=32", "train.optimizer={Adam: {lr: 0.01}}"}},
		{"lenet", 25, 0.3, []string{"train.batch_size=16", "train.optimizer={Adam: {lr: 0.005}}"}},
		{"resnet", 6, 0.5, []string{"params.depth=18", "params.img=32", "params.classes=10", "train.batch_size=8", "train.optimizer={AdamW: {lr: 0.001}}"}},
		{"gpt", 25, 0.7, []string{"params.vocab=128", "params.d=32", "params.heads=2", "params.layers=2", "params.seq=32", "params.ctx=32", "train.batch_size=4", "train.optimizer={AdamW: {lr: 0.01}}"}},
		{"vit", 20, 0.5, []string{"params.img=16", "params.patch=4", "params.d=32", "params.heads=2", "params.layers=2", "params.classes=10", "train.batch_size=8", "train.optimizer={AdamW: {lr: 0.005}}"}},
		{"bert", 25, 0.6, []string{"params.vocab=100", "params.d=32", "params.heads=2", "params.layers=2", "params.ff=64", "params.maxlen=16", "params.seq=16", "train.batch_size=8", "train.optimizer={AdamW: {lr: 0.002}}"}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			j := job(t, c.preset, append([]string{"device.gpu=a100-40gb"}, c.set...)...)
			predicted, err := estimate.Run(j)
			if err != nil {
				t.Fatal(err)
			}
			device := cpu.New(8 * tensor.GiB)
			r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{
				Device: device, Config: j.Machine.Conf, Steps: c.steps, Seed: 1, Poison: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := device.Close(); err != nil {
				t.Error(err)
			}
			first, last := r.Steps[0].Loss, r.Steps[len(r.Steps)-1].Loss
			t.Logf("loss %.3f to %.3f", first, last)
			if !(last < first*c.falls) {
				t.Errorf("the loss falls from %v to %v only", first, last)
			}
			if a, b := r.Stats.AllocatedBytes.All.Peak, predicted.Free.PeakAllocated.Allocated; a != b {
				t.Errorf("peak allocated %d, predicted %d", a, b)
			}
			if a, b := r.Stats.ReservedBytes.All.Peak, predicted.Free.PeakReserved.Reserved; a != b {
				t.Errorf("peak reserved %d, predicted %d", a, b)
			}
		})
	}
}

// TestManySteps: of the steps after those whose events are compared, none are kept but
// those of the last one.
func TestManySteps(t *testing.T) {
	j := job(t, "mlp", "device.gpu=a100-40gb", "params.sizes=[4,4,2]", "train.batch_size=2")
	last := engine.MaxSteps + 3
	device := cpu.New(tensor.GiB)
	r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: last})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != last || r.Steps[last-1].Step != last {
		t.Errorf("%d steps were done, not %d", len(r.Steps), last)
	}
	kept := map[int]int{}
	for _, e := range r.Played.Trace.Events {
		kept[int(e.Step)]++
	}
	if n := kept[engine.MaxSteps]; n == 0 || kept[last] != n || len(kept) != engine.MaxSteps+2 {
		t.Errorf("%d steps have events: step %d %d, step %d %d", len(kept), engine.MaxSteps, n, last, kept[last])
	}
}
