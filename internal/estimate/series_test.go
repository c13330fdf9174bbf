package estimate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// recipeOf is the recipe of a text with keys that are set.
func recipeOf(text string, set ...string) *Recipe {
	r := &Recipe{Path: "test.yaml", Text: []byte(text)}
	r.Options.Set = set
	return r
}

// batchOf runs the job of a recipe with a batch, or with its own.
func batchOf(t *testing.T, r *Recipe, k int64) *Outcome {
	t.Helper()
	var keys []Key
	if k > 0 {
		keys = append(keys, Key{"train.batch_size", fmt.Sprint(k)})
	}
	j, err := r.Job(keys...)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Jobs on a line through two that were played are those that would be played: event
// for event, with their loops, and in what a search asks of them.
func TestLine(t *testing.T) {
	jobs := map[string]*Recipe{
		"eval":     recipeOf(everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 300, optimizer: AdamW}\neval: {every: 50, batch_size: 2000, batches: 2, keep: out}\n"),
		"leak":     recipeOf(everyStep + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}}\ntrain: {batch_size: 300, optimizer: AdamW}\n"),
		"two":      recipeOf(strings.ReplaceAll(everyStep+everyOpt+"train: {batch_size: 100, optimizer: AdamW}\n", "every: N", "every: 20")),
		"fraction": recipeOf(everyStep + "train: {batch_size: 100}\ndevice: {memory_fraction: 0.2}\n"),
		"steps":    recipeOf(everyStep + "train: {batch_size: 100, steps: 1}\n"),
		"oneseq": recipeOf("memplan: 1\nmodel: {preset: hf/llama, with: {seq: 64, attn: flash_attention_2, hidden_size: 64, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 4, intermediate_size: 128, vocab_size: 320}}\n" +
			"trainer: {hf: {per_device_train_batch_size: 4, bf16: true}, flattening: true}\n"),
		"flash3": recipeOf("memplan: 1\nmodel: {preset: hf/llama, with: {seq: 50, attn: flash_attention_3, hidden_size: 64, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 128, vocab_size: 320}}\n" +
			"train: {batch_size: 4, precision: bf16, optimizer: AdamW}\ndevice: {gpu: h100}\n"),
		"one sequence": recipeOf("memplan: 1\nmodel: {preset: hf/llama, with: {seq: 50, attn: flash_attention_3, hidden_size: 64, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 128, vocab_size: 320}}\n" +
			"trainer: {hf: {per_device_train_batch_size: 4, bf16: true}, flattening: true}\ndevice: {gpu: h100}\n"),
	}
	for _, name := range specs.Names() {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		jobs[name] = &Recipe{Path: "preset:" + name, Text: text}
	}
	for name, r := range jobs {
		if testing.Short() && len(name)%3 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := batchOf(t, r, 0)
			at := o.Job.BatchSize()
			s := NewSeries(r, "train.batch_size")
			if ok, err := s.Lay(o, at, 4*at); !ok {
				t.Fatalf("there is no line (%v)", err)
			}
			played := NewSeries(r, "train.batch_size")
			for _, k := range []int64{2, 3, max(at/2, 2), at + 1, 3*at - 1, 5 * at, 40*at + 1} {
				j, err := played.Job(k)
				if err != nil {
					t.Fatal(err)
				}
				want, err := Play(j)
				if err != nil {
					t.Fatal(err)
				}
				got, ok := s.line.play(k, new(room))
				if !ok || !like(got.Trace.Events, want.Trace.Events) {
					t.Errorf("batch %d: other events", k)
					continue
				}
				same := func(a, b trace.Loop) bool {
					return a.Begin == b.Begin && a.End == b.End && a.Turns == b.Turns && a.Steps == b.Steps && len(a.Names) == len(b.Names)
				}
				if !slices.EqualFunc(got.Loops, want.Loops, same) || (got.Growth > 0) != (want.Growth > 0) {
					t.Errorf("batch %d: other loops", k)
				}
				a, err := s.Probe(k)
				if err != nil {
					t.Fatal(err)
				}
				b, err := played.Probe(k)
				if err != nil || a != b {
					t.Errorf("batch %d: %+v, played %+v (%v)", k, a, b, err)
				}
			}
			if n := s.Played(); n > 3 || n > 2 && at > 1 { // the second where its first steps do not tell the others, the third where the first is not like others
				t.Errorf("%d jobs were played", n)
			}
		})
	}
}

// What is no line is seen: between two jobs, or where another is played.
func TestNoLine(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers:
    - {zeros: ["${B // N + 1}", 270000], name: t}
    - {Linear: 700, inputs: x}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 30}
`
	for _, c := range []struct {
		n, width    string
		line, holds bool
	}{{"1", "270000", true, true}, {"7", "270000", true, false}, {"270", "270000", true, false}, {"7", "270001", false, false}} {
		r := recipeOf(strings.NewReplacer("N", c.n, "270000", c.width).Replace(text))
		s := NewSeries(r, "train.batch_size")
		if got, err := s.Lay(batchOf(t, r, 0), 30, 300); got != c.line || err != nil {
			t.Errorf("in steps of %s: a line: %v (%v)", c.n, got, err)
		}
		if c.line && s.Holds(301) != c.holds {
			t.Errorf("in steps of %s: 301 lies on the line: %v", c.n, !c.holds)
		}
	}
}

// parabolic compares each sample of a batch with all others.
const parabolic = `memplan: 1
model:
  inputs: {x: [300], y: {shape: [], dtype: int64}}
  layers:
    - {Linear: 700, inputs: x, name: h}
    - {transpose: {dim0: 0, dim1: 1}, inputs: h, name: transpose}
    - {matmul: [h, transpose]}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 30}
`

// Where a job does not lie on the line, a parabola may go through all three: jobs on
// it are those that would be played.
func TestBend(t *testing.T) {
	square := NewSeries(recipeOf(parabolic), "train.batch_size") // which two jobs tell
	if ok, err := square.Lay(batchOf(t, square.recipe, 0), 30, 300); !ok || square.Played() != 1 || !square.Holds(500) {
		t.Fatalf("squares are not told (%v), %d played", err, square.Played())
	}
	r := recipeOf(strings.Replace(parabolic, "[h, transpose]}", "[h, transpose], name: all}\n    - {cat: {tensors: [all, h], dim: 1}}", 1))
	o := batchOf(t, r, 0)
	bent := NewSeries(r, "train.batch_size") // by sizes that would be negative
	if ok, err := bent.Lay(o, 30, 300); !ok || bent.Played() != 2 || !bent.Holds(500) {
		t.Fatalf("there is no parabola at once (%v), %d played", err, bent.Played())
	}
	s := NewSeries(r, "train.batch_size")
	s.job, s.steps = o.Job, heldSteps
	p, err := s.sample(300)
	if err != nil || !s.through([]int64{30, 300}, []*engine.Played{o.Played, p}) {
		t.Fatalf("there is no line (%v)", err)
	}
	if s.Bend() {
		t.Error("a parabola without a job beside the line")
	}
	if s.Holds(500) || !s.Bend() {
		t.Fatal("there is no parabola")
	}
	for _, k := range []int64{2, 31, 64, 301, 1000} {
		if !s.Holds(k) {
			t.Errorf("batch %d: other events", k)
		}
	}
	if s.Bend() {
		t.Error("a curve through four jobs")
	}
}

// A job of one sample differs in more than sizes where a dimension of size 1 is not
// like others: the line goes through two other jobs. Where something runs in every n-th
// step, these are played up to there, too.
func TestLineFromOne(t *testing.T) {
	text, err := specs.Preset("vit")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text   string
		second int64
		played int
	}{
		{"", 2, 2},
		{"", 9, 2},
		{"eval: {every: 4}\n", 9, 2},
	} {
		r := recipeOf(string(text)+c.text, "train.batch_size=1", "params.layers=2")
		s := NewSeries(r, "train.batch_size")
		if ok, err := s.Lay(batchOf(t, r, 0), 1, c.second); !ok || s.Played() != c.played {
			t.Fatalf("%sthrough %d: a line: %v (%v), %d played", c.text, c.second, ok, err, s.Played())
		}
		for _, k := range []int64{2, 3, 9, 20} {
			if !s.Holds(k) {
				t.Errorf("%sthrough %d, batch %d: other events", c.text, c.second, k)
			}
		}
	}
}

// A line through the job of one sample may tell of no other: one through two others takes
// its place.
func TestBendFromOne(t *testing.T) {
	text, err := specs.Preset("llama")
	if err != nil {
		t.Fatal(err)
	}
	r := recipeOf(string(text), "train.batch_size=1", "params.layers=2")
	s := NewSeries(r, "train.batch_size")
	if ok, err := s.Lay(batchOf(t, r, 0), 1, 35); !ok || !slices.Contains(s.at, 1) {
		t.Fatalf("there is no line through 1 (%v): %d", err, s.at)
	}
	if s.Holds(40) || !s.Bend() || slices.Contains(s.at, 1) {
		t.Fatalf("the line goes through %d", s.at)
	}
	for _, k := range []int64{2, 41, 100} {
		if !s.Holds(k) {
			t.Errorf("batch %d: other events", k)
		}
	}
}

// Where cuDNN searches for plans, a batch that is as large as another may share its
// plans: there is no line.
func TestNoLineOfPlans(t *testing.T) {
	for benchmark, line := range map[string]bool{"false": true, "true": false} {
		r := recipeOf("memplan: 1\nmodel: {preset: resnet, with: {img: 32, classes: 10, stages: [1, 1, 1, 1]}}\n"+
			"train: {batch_size: 16}\neval: {every: 40, batch_size: 64, batches: 2}\n", "train.cudnn_benchmark="+benchmark)
		s := NewSeries(r, "train.batch_size")
		if got, err := s.Lay(batchOf(t, r, 0), 16, 100); got != line || err != nil || !line && s.Played() > 0 {
			t.Errorf("cudnn_benchmark %s: a line: %v (%v), %d played", benchmark, got, err, s.Played())
		}
	}
}

// Workspaces of convolutions are taken out of what was played as if it were played
// without them.
func TestUnworked(t *testing.T) {
	const eval = "eval: {every: 40, batch_size: 64, batches: 2}\n"
	resnet := "memplan: 1\nmodel: {preset: resnet, with: {img: 32, classes: 10, stages: [1, 1, 1, 1]}}\ntrain: {batch_size: 16}\n"
	searched := strings.Replace(resnet, "16}", "16, cudnn_benchmark: true}", 1)
	for _, text := range []string{resnet, resnet + eval, searched, searched + eval} {
		for _, mode := range []string{workspaceModel, "3MiB"} {
			o := batchOf(t, recipeOf(text, "device.gpu=a100-40gb", "device.cudnn_workspace="+mode), 0)
			env := o.Job.Machine.Env
			env.CudnnWorkspace = cudnn.Workspace{}
			steps := o.Played.Steps
			if o.Played.LeftOut > 0 {
				steps = 0
			}
			want, err := engine.Play(o.Job.Program, env, nil, steps)
			if err != nil {
				t.Fatal(err)
			}
			got := o.unworked()
			if !like(got.Trace.Events, want.Trace.Events) || len(o.Played.Workspaces.Events) == 0 {
				t.Errorf("%s: other events than played", mode)
			}
			edges := func(p *engine.Played) (out []int) {
				for _, l := range p.Loops {
					out = append(out, l.Begin, l.End, int(l.Turns))
				}
				return out
			}
			if !slices.Equal(edges(got), edges(want)) {
				t.Errorf("%s: loops %v, played %v", mode, edges(got), edges(want))
			}
		}
	}
}

// What is tried dies in its first step as if no other was asked for.
func TestTryOnce(t *testing.T) {
	text := everyStep + "  - optimizer_step\n  - zero_grad\ntrain: {batch_size: 900, optimizer: AdamW}\n"
	for memory, steps := range map[string]int32{"503MiB": 1, "20GiB": 3} {
		j, err := recipeOf(text, "device.gpu=t4", "device.context=500MiB", "device.memory="+memory).Job()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Try(j)
		if err != nil {
			t.Fatal(err)
		}
		events := o.Played.Trace.Events
		if last := events[len(events)-1].Step; last != steps || o.Fits() != (steps > 1) {
			t.Errorf("%s: %d steps were played; fits: %v", memory, last, o.Fits())
		}
	}
}

// The first step tells of a job whether it lies on the line where each runs the same
// statements, and the second takes by the key's value what the first takes.
func TestHeldSteps(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		held int // 0: all
	}{
		"alike":     {everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 300, optimizer: AdamW}\n", 1},
		"eval":      {everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 300}\neval: {every: 2, batch_size: 20, batches: 2}\n", 0},
		"every 2nd": {strings.ReplaceAll(everyStep+everyOpt+"train: {batch_size: 100}\n", "every: N", "every: 2"), 0},
		"kept":      {everyStep + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}}\ntrain: {batch_size: 300}\n", 2},
	} {
		r := recipeOf(c.text)
		o := batchOf(t, r, 0)
		at := o.Job.Program.Batch
		s := NewSeries(r, "train.batch_size")
		if ok, err := s.Lay(o, at, 3*at); !ok {
			t.Fatalf("%s: there is no line (%v)", name, err)
		}
		if s.held != c.held {
			t.Errorf("%s: %d steps tell of a job, want %d", name, s.held, c.held)
		}
		if !s.Holds(2*at + 1) {
			t.Errorf("%s: a job does not lie on the line", name)
		}
		for i := range s.line.events {
			if e := &s.line.events[i]; e.Step == 2 && s.line.sizes[i].Slope != 0 {
				s.line.sizes[i].Slope++
				break
			}
		}
		if s.line.told() {
			t.Errorf("%s: the first step tells of what the second takes otherwise", name)
		}
	}
}

// Jobs share a program if only its inputs depend on the batch size; not if it gives sizes
// as numbers.
func TestSharing(t *testing.T) {
	for name, shares := range map[string]bool{"resnet": true, "mlp_mixer": true, "gpt": false, "swin": false} {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		r := &Recipe{Path: "preset:" + name, Text: text}
		o := batchOf(t, r, 0)
		at := o.Job.Program.Batch
		s := NewSeries(r, "train.batch_size")
		s.Sharing = true
		if ok, err := s.Lay(o, at, 3*at+1); !ok || s.Sharing != shares {
			t.Errorf("%s: a line: %v, shared: %v (%v)", name, ok, s.Sharing, err)
		}
		for _, k := range []int64{3*at + 1, 2 * at, 2*at + 1} {
			if !s.Holds(k) {
				t.Errorf("%s: %d does not lie on the line", name, k)
			}
		}
	}
}
