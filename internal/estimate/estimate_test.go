package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/specs"
)

// estimateText estimates a spec.
func estimateText(t *testing.T, text string, set ...string) (*Outcome, *report.Report) {
	t.Helper()
	s, err := spec.Parse("test.yaml", []byte(text), spec.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJob(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	return o, o.Report()
}

// ownStep reports whether a spec writes its step itself, which may not go with
// other modes and optimizers.
func ownStep(text string) bool { return strings.Contains(text, "\nstep:") }

// TestAtPeak checks on every preset, in several settings, that the breakdown
// sums exactly to the peak, and that layers and categories agree.
func TestAtPeak(t *testing.T) {
	needs.Raced(t, needs.Alone)
	settings := [][]string{
		nil,
		{"train.precision=bf16"},
		{"train.optimizer=AdamW", "train.zero_grad={at: never}"},
		{"train.optimizer={Adam: {fused: true, amsgrad: true}}", "train.loop=flat", "data.input=static"},
		{"mode=no_grad"},
		{"device.alloc_conf=expandable_segments:True,roundup_power2_divisions:4"},
	}
	if testing.Short() {
		settings = settings[:2]
	}
	for _, name := range specs.Names() {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, set := range settings {
			if i > 1 && ownStep(string(text)) {
				continue
			}
			_, r := estimateText(t, string(text), append([]string{"train.batch_size=3"}, set...)...)
			var sum, layers tensor.Bytes
			for _, s := range r.AtPeak.Shares() {
				if s.Bytes < 0 {
					t.Errorf("%s %v: %s is %d", name, set, s.Name, int64(s.Bytes))
				}
				sum += s.Bytes
			}
			for _, l := range r.Layers {
				if l.TotalBytes != l.ParametersBytes+l.GradientsBytes+l.ActivationsBytes+l.OtherBytes {
					t.Errorf("%s %v: layer %q does not sum up", name, set, l.Layer)
				}
				layers += l.TotalBytes
			}
			if sum != r.Peak.AllocatedBytes || sum == 0 {
				t.Errorf("%s %v: the breakdown sums to %d, the peak is %d", name, set, int64(sum), int64(r.Peak.AllocatedBytes))
			}
			if want := r.Peak.AllocatedBytes - r.AtPeak.RoundingBytes; layers != want || want != r.Peak.RequestedBytes {
				t.Errorf("%s %v: layers sum to %d, categories to %d, requested are %d", name, set, int64(layers), int64(want), int64(r.Peak.RequestedBytes))
			}
			if r.AtPeak.ParametersBytes < r.Totals.ParametersBytes {
				t.Errorf("%s %v: %d bytes of parameters at the peak, %d in all", name, set, int64(r.AtPeak.ParametersBytes), int64(r.Totals.ParametersBytes))
			}
		}
	}
}

const linear = `memplan: 1
name: linear
model:
  inputs: {x: [1024], y: {shape: [], dtype: int64}}
  layers: [{Linear: {out_features: 1024, bias: false}}]
  loss: {cross_entropy: {target: y}}
train: {batch_size: 4, optimizer: {AdamW: {lr: 0.001}}}
device: {gpu: a100-40gb}
`

// TestTotals holds the sums of a model small enough to count by hand.
func TestTotals(t *testing.T) {
	_, r := estimateText(t, linear)
	const weight = 1024 * 1024 * 4
	want := report.Totals{
		ParametersBytes: weight, GradientsBytes: weight,
		OptimizerStateBytes:   2 * weight,     // two moments; the step count is on the CPU
		SavedActivationsBytes: 4*1024*4 + 4,   // log-probabilities, and the loss's total weight
		BatchBytes:            4*1024*4 + 4*8, // x and y
	}
	if r.Totals != want {
		t.Errorf("totals %+v, want %+v", r.Totals, want)
	}
	if r.Model.Parameters != 1024*1024 || r.Model.TrainableParameters != r.Model.Parameters {
		t.Errorf("model %+v", r.Model)
	}
}

// TestVerdict moves the device's memory around the job's need. Fits, tight and
// out of memory follow in this order, and the figures agree with each other.
func TestVerdict(t *testing.T) {
	_, r := estimateText(t, linear)
	if !r.Verdict.Fits || r.Verdict.Tight || r.Verdict.Result != "FITS" || r.Verdict.OOM != nil {
		t.Fatalf("40 GB do not fit: %+v", r.Verdict)
	}
	if r.Verdict.HeadroomBytes != r.Device.UsableBytes-r.Peak.ReservedBytes {
		t.Errorf("headroom %v", r.Verdict.HeadroomBytes)
	}
	if r.Peak.DeviceBytes != r.Peak.ReservedBytes+r.Device.ContextBytes {
		t.Errorf("device bytes %v", r.Peak.DeviceBytes)
	}
	need := r.Peak.ReservedBytes
	exact := func(n tensor.Bytes) []string {
		return []string{"device.memory=" + fmt.Sprint(int64(n+100*tensor.MiB)), "device.context=60MiB", "device.other_processes=40MiB"}
	}
	if _, r := estimateText(t, linear, exact(need)...); !r.Verdict.Fits || r.Verdict.HeadroomBytes != 0 {
		t.Errorf("with what it reserves exactly: %+v", r.Verdict)
	}
	_, r = estimateText(t, linear, exact(8*tensor.MiB)...)
	if v := r.Verdict; v.Fits || v.OOM == nil || v.Result != "OOM" || !strings.Contains(v.OOM.Message, "CUDA out of memory. Tried to allocate") {
		t.Errorf("with 8 MiB: %+v", v)
	}
	if r.Peak.ReservedBytes != need {
		t.Errorf("the peak without a limit depends on the device: %v and %v", r.Peak.ReservedBytes, need)
	}
	_, r = estimateText(t, linear, "device.memory_fraction=0.0005")
	if v := r.Verdict; v.Fits || !strings.Contains(v.Reason, "the memory fraction allows 20.2") {
		t.Errorf("with a fraction of 0.0005: %+v", v)
	}
}

// TestMachineErrors checks that mistakes of the device section have their place.
func TestMachineErrors(t *testing.T) {
	for _, c := range []struct{ device, want string }{
		{"{gpu: a200}", `t.yaml:2:15: unknown gpu "a200"`},
		{"{alloc_conf: \"max_split_size_mb:128,foo:1\"}", `t.yaml:2:45: alloc_conf: `},
		{"{alloc_conf: 'garbage_collection_threshold:2'}", `t.yaml:2:52: alloc_conf: `},
		{"{memory_fraction: 1.5}", `t.yaml:2:27: memory_fraction must be between 0 and 1, not 1.5`},
		{"{memory: 3XB}", `t.yaml:2:18: `},
	} {
		s, err := spec.Parse("t.yaml", []byte("memplan: 1\ndevice: "+c.device+"\nmodel: {preset: mlp}\n"), spec.Options{})
		if err == nil {
			_, err = NewJob(s, nil)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.device, err, c.want)
		}
	}
	s, err := spec.Parse("t.yaml", []byte("memplan: 1\ntorch: 2.5\nmodel: {preset: mlp}\n"), spec.Options{})
	if err == nil {
		_, err = NewJob(s, nil)
	}
	if want := "t.yaml:2:8: PyTorch 2.5 is not modelled; allowed are 2.6 to 2.15"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("torch 2.5: %v", err)
	}
}

func TestPattern(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "head": "head", "layers.3": "layers.*", "layers.12.0.conv1": "layers.*.*.conv1", "conv2d": "conv2d",
	} {
		if got := pattern(in); got != want {
			t.Errorf("pattern(%q) = %q, want %q", in, got, want)
		}
	}
}
