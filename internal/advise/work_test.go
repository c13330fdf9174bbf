package advise

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

// bert is the job of Hugging Face's guide "Efficient Training on a Single GPU".
func bert() *estimate.Recipe {
	return &estimate.Recipe{
		Path: "bert-large.yaml", Text: []byte(`memplan: 1
model: {hf: config.json, task: seq-cls, with: {seq: 512, attn: eager}}
train: {batch_size: 4, optimizer: {AdamW: {foreach: false}}}
device: {gpu: v100-16gb}
`),
		ReadFile: func(string) ([]byte, error) {
			return []byte(`{"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}`), nil
		},
	}
}

// base runs a recipe, which must be one that can be.
func base(t testing.TB, r *estimate.Recipe) *Base {
	t.Helper()
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	o, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	return newBase(r, o)
}

// option finds a change with a value among those of a job.
func option(t testing.TB, b *Base, id string) *Option {
	t.Helper()
	for _, g := range b.options(All()) {
		for _, o := range g {
			if o.ID() == id {
				return o
			}
		}
	}
	t.Fatalf("%s does not apply", id)
	return nil
}

// The model of a step's time is held against what the guide measured on a V100:
// seconds for 512 samples, of which each run changed something. Ratios to the
// first run are compared, as slowdowns are all that is told.
func TestMeasuredTimes(t *testing.T) {
	b := base(t, bert())
	before := b.seconds(nil)
	t.Logf("a step of 4 samples takes %.3f s; measured were %.3f s", before, 57.82/128)
	for _, run := range []struct {
		options []string
		seconds float64
	}{
		{[]string{"accumulate:4"}, 66.03},
		{[]string{"accumulate:4", "checkpoint:all"}, 85.47},
		{[]string{"amp:fp16"}, 27.46},
		{[]string{"accumulate:4", "checkpoint:all", "amp:fp16"}, 50.76},
		{[]string{"adafactor"}, 64.31},
		{[]string{"8-bit"}, 55.95},
	} {
		var options []*Option
		for _, id := range run.options {
			options = append(options, option(t, b, id))
		}
		got, want := b.seconds(options)/before, run.seconds/57.82
		t.Logf("%v: %.2f, measured %.2f", run.options, got, want)
		if r := got / want; r < 0.7 || r > 1.3 {
			t.Errorf("%v: %.2f times the time, measured %.2f", run.options, got, want)
		}
	}
}

// Work of a perceptron, written out: 64 samples through 512 to 256 to 10.
func TestWork(t *testing.T) {
	r := preset(t, "mlp")
	r.Options.Set = []string{"params.sizes=[512, 256, 10]", "train={batch_size: 64, optimizer: {Adam: {fused: true}}}"}
	w := base(t, r).Work
	params := float64(512*256 + 256 + 256*10 + 10)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"flops", w.Flops, 2 * 64 * (512*256 + 256*10)},
		{"half", w.Half, 0},
		{"parameters", w.Parameters, params},
		{"optimizer", w.Optimizer, 4 * (3*params + 2*2*params)},
		{"passes", w.Passes, 3},
	} {
		if math.Abs(c.got-c.want) > 0.001*c.want+64 { // the step counters are state, too
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// Multiplications and additions as torchvision's documentation counts them, in
// pairs: 1.81 billion for ResNet-18, 7.61 for VGG-11, 0.71 for AlexNet.
func TestFlops(t *testing.T) {
	for name, pairs := range map[string]float64{"resnet": 1.81e9, "vgg": 7.61e9, "alexnet": 0.71e9} {
		r := preset(t, name)
		r.Options.Flags = []spec.Flag{{Flag: "--batch-size 2", Path: "train.batch_size", Value: "2"}}
		if w := base(t, r).Work; math.Abs(w.Flops/4/pairs-1) > 0.02 {
			t.Errorf("%s: %.3g pairs a sample, want %.3g", name, w.Flops/4, pairs)
		}
	}
}
