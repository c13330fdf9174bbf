package advise

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

var (
	all  = flag.Bool("all", false, "TestPresets walks every preset, GPU and precision; others try all they have")
	half = flag.Bool("half", false, "TestPresets walks every preset and precision, each on three of the six GPUs")
	seed = flag.Int64("seed", 1, "of the sample that TestPresets takes without -all")
)

func preset(t testing.TB, name string) *estimate.Recipe {
	text, err := specs.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return &estimate.Recipe{Path: "preset:" + name, Text: text}
}

var gpus = []string{"rtx-3060", "t4", "rtx-4090", "a100-40gb", "h100-80gb", "v100-32gb"}

// For presets, GPUs and precisions, the largest batch fits and none of the
// eight beyond it does. What the search says is tried again here, one by one, and a
// search that derives jobs says the same as one that plays them.
// With -half the GPUs of a preset are others in the other precision; without either a
// random sample stands for all of them.
func TestPresets(t *testing.T) {
	type combination struct{ preset, precision, gpu string }
	var cases []combination
	for _, name := range specs.Names() {
		if name == "megatron" { // whose types and microbatches are arguments of its trainer
			continue
		}
		for _, precision := range []string{"fp32", "amp-bf16"} {
			for _, gpu := range gpus {
				cases = append(cases, combination{name, precision, gpu})
			}
		}
	}
	if *half {
		var some []combination
		for i, c := range cases {
			if (i+i/len(gpus))%2 == 0 {
				some = append(some, c)
			}
		}
		cases = some
	} else if !*all {
		const n = 3
		t.Logf("%d of %d combinations; seed %d; -args -seed N takes others, -args -all takes all", n, len(cases), *seed)
		rand.New(rand.NewSource(*seed)).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		cases = cases[:n]
	}
	for _, c := range cases {
		t.Run(c.preset+"/"+c.precision+"/"+c.gpu, func(t *testing.T) {
			t.Parallel()
			r := preset(t, c.preset)
			keys := []estimate.Key{{Path: "device.gpu", Value: c.gpu}, {Path: "train.precision", Value: c.precision}}
			j, err := r.Job(keys...)
			if refused := (*spec.Errors)(nil); errors.As(err, &refused) {
				// PyTorch refuses binary_cross_entropy under autocast, and so does memplan.
				if c.precision == "fp32" || c.preset != "dcgan" || !strings.Contains(err.Error(), "binary_cross_entropy") {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f := sameDerived(t, r, j, keys...)
			fits := func(b int64) bool {
				j, err := r.Job(append(keys, estimate.Key{Path: Batch.Key, Value: fmt.Sprint(b)})...)
				if err != nil {
					return false
				}
				fits, _, err := estimate.Fits(j)
				return err == nil && fits
			}
			if f.Largest > 0 && !fits(f.Largest) {
				t.Errorf("%d does not fit", f.Largest)
			}
			for b := f.Largest + 1; b <= f.Largest+Lookahead && !f.Bound; b++ {
				if fits(b) {
					t.Errorf("%d fits, beyond %d", b, f.Largest)
				}
			}
			if rec := f.Recommended; rec > f.Largest || rec > 0 && (rec%8 != 0 && rec != 1 && rec != 2 && rec != 4 || !fits(rec)) {
				t.Errorf("recommended %d of %d", rec, f.Largest)
			}
		})
	}
}

// maxPlays is how many jobs a search plays beside the one that it begins with: a second,
// the largest, and the next.
const maxPlays = 3

// sameDerived holds a search that derives jobs against one that begins at the same
// place and plays them, whose outcome it returns.
func sameDerived(t *testing.T, r *estimate.Recipe, j *estimate.Job, keys ...estimate.Key) *Found {
	t.Helper()
	o, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	axis := BatchFrom(o)
	f, err := Search(context.Background(), r, axis, 0.05, keys...)
	if err != nil {
		t.Fatal(err)
	}
	most := maxPlays
	if o.Job.BatchSize() == 1 { // which is not like others: the line goes through two more
		most += 2
	}
	if f.Plays > most {
		t.Errorf("%d jobs were played", f.Plays)
	}
	series := estimate.NewSeries(r, axis.Key, keys...)
	series.Failing = true
	if !lay(series, axis) {
		t.Fatal("there is no line")
	}
	series.Drop()
	played, err := newSearch(context.Background(), nil, series, axis).run(0.05)
	if err != nil {
		t.Fatal(err)
	}
	a, b := *f, *played
	a.Plays, b.Plays = 0, 0
	if a.Largest == 0 { // which is known of the line, for both
		a.Tries, b.Tries = 0, 0
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("derived %+v, played %+v", a, b)
	}
	return f
}

// A search that has had its work ends with what it knows: values that fit.
func TestSearchEnds(t *testing.T) {
	r := &estimate.Recipe{Path: "test.yaml", Budget: limit.New(context.Background(), limit.Limits{Work: 1 << 40}), Text: []byte(`memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers:
    - {zeros: ["${B // 7 + 1}", 270000], name: t}
    - {Linear: 700, inputs: x}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 30}
device: {gpu: t4}
`)}
	defer r.Budget.Close()
	full, err := Search(context.Background(), r, Batch, 0.05)
	if err != nil || full.Cut || full.Largest == 0 {
		t.Fatalf("%+v, %v", full, err)
	}
	series := estimate.NewSeries(r, Batch.Key)
	s := newSearch(context.Background(), r.Budget, series, Batch)
	s.ends = s.budget.Work() // after the first value that fits
	f, err := s.run(0.05)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Cut || f.Largest < 1 || f.Largest > full.Largest || f.Recommended < 1 || f.Recommended > f.Largest || f.Tries >= full.Tries {
		t.Errorf("the search that ended early found %+v, the other %+v", f, full)
	}
}

// Where jobs do not lie on a line, a search plays them, of which there are fewer where a job
// that was run tells about where fitting ends.
func TestNotDerived(t *testing.T) {
	r := &estimate.Recipe{Path: "test.yaml", Text: []byte(`memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers:
    - {zeros: ["${B // 7 + 1}", 270000], name: t}
    - {Linear: 700, inputs: x}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 30}
device: {gpu: t4}
`)}
	f, err := Search(context.Background(), r, BatchFrom(base(t, r).Outcome), 0.05)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Search(context.Background(), r, Batch, 0.05)
	if err != nil || f.Largest != g.Largest || f.Recommended != g.Recommended || f.Plays <= maxPlays || 3*f.Tries > 2*g.Tries {
		t.Errorf("%+v, played %+v (%v)", f, g, err)
	}
}

// Jobs that a line tells wrongly of, though some lie on it, are found out: by the next
// after the largest, and by all steps where the later ones are others.
func TestDerivedHolds(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers: [LAYERS]
  loss: {cross_entropy: {target: y}}
device: {gpu: t4, context: 0MiB, memory: MEMORY}
`
	const zeros = "{zeros: [SIZE, 27000], name: t}, {Linear: 70, inputs: x}"
	for _, c := range []struct {
		name, layers, size, more, memory string
		at                               int64
	}{
		{"one fits by the line", zeros, "${10 * min(B, 100)}", "", "115MiB", 2394},
		{"a line through the largest", zeros, "${B // 8 * 8}", "", "325MiB", 2917},
		{"each with each", "{Linear: 700, inputs: x, name: h}, {transpose: {dim0: 0, dim1: 1}, inputs: h, name: t}, {matmul: [h, t]}", "", "", "162MiB", 2708},
		{"every third", "{Linear: 900}, {view: [SIZE, 2700]}, {view: [-1, 900]}, {Linear: 700}", "${B // 3}", "", "46MiB", 45},
		{"even ones", "{Linear: 3000}, {tanh: , if: SIZE}, {Linear: 10}", "${B % 2 == 0}", "", "300MiB", 1000},
		{"more layers", "{Linear: 300, repeat: SIZE}, {Linear: 7000}", "${1 + 10 * (B // 1000)}", "", "262MiB", 500},
		{"later steps", "{Linear: 700}, ReLU, {Linear: 900}", "", `eval:
  every: 20
  step:
    - batch
    - {forward: {model: model}, name: out}
    - {matmul: [out, {transpose: {dim0: 0, dim1: 1}, inputs: out}], name: all}
`, "221MiB", 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer("LAYERS", strings.Replace(c.layers, "SIZE", strconv.Quote(c.size), 1), "MEMORY", c.memory).Replace(text) + c.more
			r := &estimate.Recipe{Path: "test.yaml", Text: []byte(text)}
			r.Options.Set = []string{Batch.Key + "=" + fmt.Sprint(c.at)}
			f, err := Search(context.Background(), r, BatchFrom(base(t, r).Outcome), 0.05)
			if err != nil {
				t.Fatal(err)
			}
			fits := func(b int64) bool {
				j, err := r.Job(estimate.Key{Path: Batch.Key, Value: fmt.Sprint(b)})
				if err != nil {
					return false
				}
				fits, _, err := estimate.Fits(j)
				return err == nil && fits
			}
			if !fits(f.Largest) || !fits(f.Recommended) {
				t.Errorf("%d or %d does not fit", f.Largest, f.Recommended)
			}
			for b := f.Largest + 1; b <= f.Largest+Lookahead; b++ {
				if fits(b) {
					t.Errorf("%d fits, beyond %d", b, f.Largest)
				}
			}
			if j, err := r.Job(estimate.Key{Path: Batch.Key, Value: fmt.Sprint(f.Largest + 1)}); (j == nil) != (f.Refused != "") {
				t.Errorf("refused: %q (%v)", f.Refused, err)
			}
		})
	}
}

// What a model refuses, or fails with, is said alike of jobs that are derived, and that
// one leaks, which ends the job that was run, says nothing of its size.
func TestSearchDerivedRefused(t *testing.T) {
	const refusing = `memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers:
    - {zeros: ["${64 - B}", 300], name: t}
    - {Linear: 700, inputs: x}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 30}
device: {gpu: t4}
`
	leaking := strings.Replace(strings.Replace(refusing, `["${64 - B}", 300]`, "[300]", 1), "30}", "1000, keep: out}", 1)
	for _, c := range []struct {
		recipe  *estimate.Recipe
		keys    []estimate.Key
		refused bool
	}{
		{&estimate.Recipe{Path: "test.yaml", Text: []byte(refusing)}, nil, true},
		{&estimate.Recipe{Path: "test.yaml", Text: []byte(leaking)}, nil, false},
		{preset(t, "gpt"), []estimate.Key{{Path: "params.seq", Value: "2048"}}, false},
		{preset(t, "resnet"), []estimate.Key{{Path: "train.cudnn_benchmark", Value: "true"}, {Path: "device.gpu", Value: "t4"}}, false},
	} {
		j, err := c.recipe.Job(c.keys...)
		if err != nil {
			t.Fatal(err)
		}
		o, err := estimate.Run(j)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Search(context.Background(), c.recipe, BatchFrom(o), 0.05, c.keys...)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Search(context.Background(), c.recipe, Batch, 0.05, c.keys...)
		if err != nil {
			t.Fatal(err)
		}
		f.Tries, f.Plays, g.Tries, g.Plays = 0, 0, 0, 0
		if !reflect.DeepEqual(f, g) || (g.Refused != "") != c.refused {
			t.Errorf("derived %+v, played %+v", f, g)
		}
	}
}

// However large the memory, a search takes few simulations.
func TestHugeMemory(t *testing.T) {
	names := []string{"mlp", "gpt"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		f, err := Search(context.Background(), preset(t, name), Batch, 0.05, estimate.Key{Path: "device.memory", Value: "100TiB"}, estimate.Key{Path: "device.gpu", Value: "t4"})
		if err != nil || f.Largest < 10000 || f.Tries > 50 {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestSearchParam(t *testing.T) {
	o := base(t, with(t, "gpt", "params.ctx=100000")).Outcome
	axis, err := AxisOf(o, "seq", 64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Search(context.Background(), with(t, "gpt", "params.ctx=100000"), axis, 0.05)
	if err != nil || f.Largest%64 != 0 || f.Largest < 1024 || f.Recommended > f.Largest || f.Refused != "" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := AxisOf(o, "length", 1); err == nil {
		t.Error("no error for a param that is not there")
	}
}

// A sequence is not longer than the positions that the model knows, however much
// memory there is.
func TestSearchPositions(t *testing.T) {
	for _, c := range []struct {
		preset, param string
		want          int64
		refused       string
	}{
		{"gpt", "seq", 1024, "index 1024 of a table of 1024 rows"},
		{"bert", "seq", 512, "index 512 of a table of 512 rows"},
		{"llama", "seq", 1024, "mul: shapes [1, 8, 1025, 64] and [1024, 64] do not broadcast"},
		{"seq2seq", "tgt_len", 512, "add: shapes [1, 513, 512] and [1, 512, 512] do not broadcast"},
	} {
		f, err := Search(context.Background(), preset(t, c.preset), Axis{Key: "params." + c.param, Step: 1, Max: 1 << 20}, 0.05,
			estimate.Key{Path: "train.batch_size", Value: "1"}, estimate.Key{Path: "device.gpu", Value: "h100-80gb"})
		if err != nil || f.Largest != c.want || f.Recommended != c.want || !strings.Contains(f.Refused, c.refused) {
			t.Errorf("%s: %+v, %v", c.preset, f, err)
		}
	}
}

// Where no value is one that the model takes, the first one's reason is told.
func TestSearchFails(t *testing.T) {
	_, err := Search(context.Background(), preset(t, "gpt"), Axis{Key: "params.layers", Step: 1, Max: 100}, 0.05, estimate.Key{Path: "params.seq", Value: "2048"})
	if err == nil || !strings.Contains(err.Error(), "index 2047 of a table of 1024 rows") {
		t.Error(err)
	}
}

func TestNothingFits(t *testing.T) {
	f, err := Search(context.Background(), preset(t, "gpt"), Batch, 0.05, estimate.Key{Path: "device.memory", Value: "1GiB"}, estimate.Key{Path: "device.gpu", Value: "t4"})
	if err != nil || f.Largest != 0 || f.Recommended != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	r := preset(t, "gpt")
	r.Options.Set = []string{"device.gpu=t4", "device.memory=1GiB", "train.batch_size=64"}
	g, err := Search(context.Background(), r, BatchFrom(base(t, r).Outcome), 0.05)
	if err != nil || g.Largest != 0 || g.Plays != 1 {
		t.Errorf("%+v, %v; want a batch of 1 alone to be played", g, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Search(ctx, preset(t, "mlp"), Batch, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Curve(ctx, preset(t, "mlp"), []int64{1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWrongSpec(t *testing.T) {
	r := &estimate.Recipe{Path: "x.yaml", Text: []byte("memplan: 1\nmodel: {preset: nope}\n")}
	if _, err := Search(context.Background(), r, Batch, 0); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Error(err)
	}
}

func TestCurve(t *testing.T) {
	if got := fmt.Sprint(CurveSizes(24, 4)); got != "[4 8 16 24 32]" {
		t.Error(got)
	}
	if got := fmt.Sprint(CurveSizes(24, 1)); got != "[1 2 4 8 16 24 32]" {
		t.Error(got)
	}
	p, err := Curve(context.Background(), preset(t, "mlp"), []int64{1, 64})
	if err != nil || len(p) != 2 || p[1].BatchSize != 64 || p[1].AllocatedBytes <= p[0].AllocatedBytes {
		t.Errorf("%+v, %v", p, err)
	}
}

// GRPOTrainer takes batches alone whose completions are a multiple of num_generations.
func TestBatchesOfGenerations(t *testing.T) {
	text := "memplan: 1\nmodel: {preset: hf/gpt2, with: {n_embd: 64, n_head: 2, n_layer: 1, vocab_size: 200000, n_positions: 64, seq: 32}}\n" +
		"peft: {lora: {r: 4, target_modules: [c_attn]}}\ndevice: {memory: 2GiB}\n" +
		"trainer: {grpo: {per_device_train_batch_size: 6, num_generations: 6, gradient_accumulation_steps: 4, max_completion_length: 8}}\n"
	r := &estimate.Recipe{Path: "grpo.yaml", Text: []byte(text)}
	axis, err := AxisOf(base(t, r).Outcome, "batch", 2)
	if err != nil || axis.Step != 6 {
		t.Fatalf("%+v, %v", axis, err)
	}
	f, err := Search(context.Background(), r, axis, 0.05)
	if err != nil || f.Largest < 6 || f.Largest%6 != 0 || f.Recommended%6 != 0 || f.Refused != "" {
		t.Errorf("%+v, %v", f, err)
	}
}
