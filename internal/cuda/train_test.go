//go:build cuda

package cuda

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/cuda/driver"
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
	r, _, err := trained(j, d, steps)
	return r, err
}

// trained also returns all weights in the end.
func trained(j *estimate.Job, d runtime.Device, steps int) (r *runtime.Result, weights []float64, err error) {
	r, err = runtime.Run(context.Background(), j.Program, j.Machine.Env, runtime.Options{
		Device: d, Config: j.Machine.Conf, Steps: steps, Seed: 1, Poison: true,
		OnEnd: func(w *runtime.Weights) error {
			for _, name := range w.Names() {
				v, err := w.Read(name)
				if err != nil {
					return err
				}
				weights = append(weights, v...)
			}
			return nil
		},
	})
	return r, weights, err
}

// TestTrain trains models on the GPU and on the CPU, from the same weights and
// with the same random numbers: losses and weights are the same but for rounding, and the
// memory that was taken is what was predicted, to the byte. No batch norm has less
// than 8 elements to normalize (see TestGradients), and the ResNet has one block in each
// stage: with two, the CPU's own weights are off by 2e-3 of those in float64 after three steps.
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
		{"llama", []string{"params.vocab=64", "params.d=32", "params.heads=2", "params.kv=1", "params.ff=64", "params.layers=1", "params.seq=16", "params.ctx=16", "train.batch_size=2", "train.clip_grad_norm=0.1"}},
		{"bert", []string{"params.vocab=100", "params.d=32", "params.heads=2", "params.layers=2", "params.ff=64", "params.maxlen=16", "params.seq=16", "train.batch_size=4", "train.optimizer={AdamW: {lr: 0.002}}"}},
		{"resnet", []string{"params.depth=18", "params.stages=[1, 1, 1, 1]", "params.img=32", "params.classes=10", "train.batch_size=8", "train.optimizer={SGD: {lr: 0.01, momentum: 0.9}}"}},
		{"vgg", []string{"params.img=32", "params.classes=10", "model.modules.avgpool={AdaptiveAvgPool2d: 1}", "model.modules.classifier={Sequential: [{Linear: 64}, ReLU, {Dropout: 0.5}, {Linear: 10}]}", "train.batch_size=2"}},
		{"unet", []string{"params.base=4", "params.depth=2", "params.img=16", "train.batch_size=2"}},
		{"dlrm", []string{"params.tables=[100,50]", "params.d=8", "params.bottom=[16]", "params.top=[16]", "train.batch_size=8"}},
		{"lstm", []string{"params.vocab=50", "params.d=8", "params.hidden=12", "params.seq=6", "params.dropout=0.2", "params.bi=true", "train.batch_size=4"}},
		{"dcgan", []string{"params.ngf=4", "params.ndf=4", "params.nz=4", "train.batch_size=4"}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			steps := 3
			if c.preset == "vgg" { // a step of its 9 million parameters takes as long as those of all others
				steps = 2
			}
			j := job(t, c.preset, append([]string{"device.gpu=a100-40gb"}, c.set...)...)
			predicted, err := estimate.Run(j)
			if err != nil {
				t.Fatal(err)
			}
			want, weights, err := trained(j, cpu.New(4*tensor.GiB), steps)
			if err != nil {
				t.Fatal(err)
			}
			got, gotWeights, err := trained(j, d, steps)
			if err != nil {
				t.Fatal(err)
			}
			if on := got.HostOperators; len(on) > 0 {
				t.Errorf("computed in host memory are %q", on)
			}
			if len(gotWeights) != len(weights) || len(weights) == 0 {
				t.Fatalf("%d weights, on the CPU %d", len(gotWeights), len(weights))
			}
			difference, norm := errorOf(gotWeights, weights)
			// Adam makes steps of gradients that are nothing but rounding, as those of the
			// keys' biases are: 4e-4 in gpt, where others have 4e-5 at most.
			if !(difference <= 1e-3*norm) {
				t.Errorf("weights differ by %.2g of %.2g", difference, norm)
			}
			worst, bound := 0.0, 1e-5 // of a sum; 2e-6 was seen
			for i := range want.Steps {
				a, b := got.Steps[i].Loss, want.Steps[i].Loss
				if !(math.Abs(a-b) <= bound*math.Abs(b)) {
					t.Errorf("step %d: loss %v, on the CPU %v", i, a, b)
				}
				worst = max(worst, math.Abs(a-b)/math.Abs(b))
			}
			t.Logf("losses differ by %.1e at most, weights by %.1e", worst, difference/norm)
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

// TestTrainHalf trains in types of 16 bits, on GPUs whose tensor cores know float16
// alone, and bfloat16 too: losses are those of the CPU, which computes in float32
// and rounds, but for the rounding of such a type.
func TestTrainHalf(t *testing.T) {
	for _, capability := range []string{"7", "8"} {
		t.Setenv("MEMPLAN_EMULATOR_CAPABILITY", capability)
		d := open(t)
		for _, precision := range []string{"bf16", "fp16", "amp-bf16"} {
			j := job(t, "gpt", "device.gpu=a100-40gb", "params.vocab=64", "params.d=32", "params.heads=2", "params.layers=1", "params.seq=16", "params.ctx=16",
				"train.batch_size=2", "train.optimizer={SGD: {lr: 0.1}}", "train.clip_grad_norm=0.5", "train.precision="+precision)
			want, err := train(j, cpu.New(tensor.GiB), 3)
			if err != nil {
				t.Fatal(err)
			}
			got, err := train(j, d, 3)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want.Steps {
				if a, b := got.Steps[i].Loss, want.Steps[i].Loss; !(math.Abs(a-b) <= 0x1p-7*math.Abs(b)) {
					t.Errorf("capability %s, %s, step %d: loss %v, on the CPU %v", capability, precision, i, a, b)
				}
			}
		}
	}
}

// TestTrainOutOfMemory: a job whose memory is too small by one segment fails with
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

// TestTrainBroken breaks the GPU in a run, with expandable segments and without: at
// a launch, or from some call of the driver on. What ends the run is that failure,
// told once, and nothing hangs.
func TestTrainBroken(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		j := job(t, "lenet", "device.gpu=a100-40gb", "device.alloc_conf="+conf, "train.batch_size=4", "train.clip_grad_norm=0.1")
		for _, c := range []struct {
			setting            string
			first, last, steps int
			codes              []error
		}{
			{"FAIL_LAUNCH", 1, 150, 13, []error{cu.IllegalAddress, driver.Result(700)}},
			{"VANISH", 1, 300, 17, []error{cu.Unknown, driver.Result(999)}},
		} {
			broken := func(err error) bool {
				return slices.ContainsFunc(c.codes, func(code error) bool { return errors.Is(err, code) })
			}
			for n := c.first; n <= c.last; n += c.steps {
				t.Setenv("MEMPLAN_EMULATOR_"+c.setting, strconv.Itoa(n))
				t.Cleanup(func() { _ = load() }) // forgets it
				if _, why := Available(); why != nil && !broken(why) {
					absent(t, why)
				}
				d, err := Open(0)
				if err != nil {
					if !broken(err) {
						t.Errorf("%s %d: Open: %v", c.setting, n, err)
					}
					continue
				}
				onEmulator(t, d)
				if _, err = train(j, d, 3); !broken(err) {
					t.Errorf("%s %d: %v", c.setting, n, err)
				} else if said := err.Error(); strings.Count(said, "the GPU failed") > 1 {
					t.Errorf("%s %d: said more than once: %s", c.setting, n, said)
				}
				if err := d.Close(); err != nil && !broken(err) {
					t.Errorf("%s %d: Close: %v", c.setting, n, err)
				}
			}
			t.Setenv("MEMPLAN_EMULATOR_"+c.setting, "0")
		}
	}
}
