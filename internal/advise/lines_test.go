package advise

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

func TestSpecLines(t *testing.T) {
	r := &estimate.Recipe{Path: "my.yaml", Text: []byte("memplan: 1\nmodel: {preset: mlp}\ntrain:\n  batch_size: 64\n  optimizer: {AdamW: {lr: 1.0e-3}}\n")}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	keys := []estimate.Key{key("train.batch_size", 32), key("train.grad_accumulation", 2), key("offload.activations", true), key("lora.r", 8), {Path: "train.optimizer", Value: "{AdamW: {fused: true}}"}}
	got := strings.Join(SpecLines(r, j.Spec, keys), "\n")
	const want = `my.yaml:4: batch_size: 64 -> batch_size: 32
my.yaml:4: under train, add grad_accumulation: 2
my.yaml: add offload: {activations: true}
my.yaml: add lora: {r: 8}
my.yaml:5: optimizer: {AdamW: {lr: 1.0e-3}} -> optimizer: {AdamW: {fused: true}}`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The rows of the catalogue are complete, and their sections exist.
func TestCatalogue(t *testing.T) {
	figures, err := os.ReadFile("../../docs/techniques.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.ID] {
			t.Errorf("%s stands there twice", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || c.Group == "" || c.Cost == "" || c.Source == "" || c.Options == nil {
			t.Errorf("%s is not complete", c.ID)
		}
		if !strings.Contains(string(figures), "## "+c.Technique+"\n") {
			t.Errorf("%s: docs/techniques.md has no section %q", c.ID, c.Technique)
		}
		if Lookup(c.ID) == nil || !slices.Contains(Names(), c.ID) {
			t.Errorf("%s is not found by its name", c.ID)
		}
	}
}

// TestNamesOfAdvice asks advice for models whose blocks have the names of layers:
// only layers are normalized by their batches, and only those are linear.
func TestNamesOfAdvice(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: {shape: [8, 16, 16]}, y: {shape: [], dtype: int64}}
  blocks:
    batch_norm_free:
      buffers: {running_mean: {shape: [8]}}
      layers: [{Conv2d: {out_channels: 8, kernel_size: 1}}, LAYER]
    linear_attention: {layers: [{Conv2d: {out_channels: 8, kernel_size: 1}}, ReLU]}
  layers: [{block: batch_norm_free}, {block: linear_attention}, {block: batch_norm_free}, Flatten, {narrow: [1, 0, 10]}]
  loss: {CrossEntropyLoss: {target: y}}
train: {batch_size: 16}
`
	for _, c := range []struct {
		layer          string
		batch, running bool
	}{
		{"ReLU", false, false}, {"BatchNorm2d", true, true}, {"SyncBatchNorm", true, true}, {"{BatchNorm2d: {track_running_stats: false}}", true, false},
		{"{batch_norm: {running_mean: running_mean, running_var: running_mean, training: true}}", false, true},
	} {
		b := base(t, &estimate.Recipe{Path: "test.yaml", Text: []byte(strings.ReplaceAll(text, "LAYER", c.layer))})
		if o := option(t, b, "accumulate:2"); strings.Contains(o.Text, "batch normalization") != c.batch {
			t.Errorf("blocks with %s: %s", c.layer, o.Text)
		}
		if o := option(t, b, "checkpoint:all"); strings.Contains(o.Text, "running statistics") != c.running {
			t.Errorf("blocks with %s: %s", c.layer, o.Text)
		}
		if got := Lookup("lora").Options(b); len(got) > 0 {
			t.Errorf("adapters where no layer is linear: %s", got[0].Text)
		}
	}
}

// Changes of a job that another program's file describes name the lines of that file.
func TestFileLines(t *testing.T) {
	const text = "memplan: 1\nmodel: {preset: mlp}\ntrain:\n  batch_size: 8\n  grad_accumulation: 1\n  clip_grad_norm: 1.0\n"
	at := func(flag string, line int, text string) spec.Origin {
		return spec.Origin{Flag: flag, File: "a.yml", Span: spec.Span{Pos: spec.Pos{Line: line, Col: 1}}, Text: text}
	}
	r := &estimate.Recipe{Path: "a.yml", Text: []byte(text), Options: spec.Options{
		Label: "a.yml (as a spec)", Origins: []spec.Origin{{}, {}, at("", 1, "x: 1"), at("", 3, "micro: 8 # samples"), at("", 1, "x: 1"), at("--set clip=1", -1, "")},
		Said: []string{"train.batch_size", "train.clip_grad_norm"},
		Keys: map[string]string{"train.batch_size": "micro", "train.grad_accumulation": "steps", "train.clip_grad_norm": "clip"},
	}}
	s, err := spec.Parse(r.Path, r.Text, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(SpecLines(r, s, []estimate.Key{{Path: "train.batch_size", Value: "1"}, {Path: "train.grad_accumulation", Value: "8"}, {Path: "train.clip_grad_norm", Value: "2"}, {Path: "train.loop", Value: "flat"}}), "\n")
	want := "a.yml:3: micro: 8 # samples -> micro: 1\na.yml: add steps: 8\n--set clip=2 in place of what the command line says\n--set train.loop=flat"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFixLengths: where lengths differ, a proposal fits in runs with all of them, which are
// simulated once.
func TestFixLengths(t *testing.T) {
	r := &estimate.Recipe{Path: "my.yaml", ReadFile: func(string) ([]byte, error) { return []byte("100\n201\n302\n403\n"), nil }, Text: []byte(`memplan: 1
model: {inputs: {x: ["${seq}", 256], y: {shape: [], dtype: int64}}, layers: [{Linear: 2048}, GELU, {Linear: 2048}, GELU, {Linear: 16}, {mean: {dim: 1}}], loss: {cross_entropy: {target: y}}}
params: {seq: {lengths: l.txt, steps: 20}}
train: {batch_size: 64, optimizer: AdamW}
device: {gpu: rtx-3060, memory: 1200MiB}
`)}
	b := base(t, r)
	if b.Outcome.Fits() {
		t.Fatal("the job fits")
	}
	f, err := Fix(t.Context(), r, b.Outcome, All(), Limits{Proposals: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Proposals) == 0 {
		t.Fatal("nothing helps")
	}
	for _, p := range f.Proposals {
		if p.Outcome.Varied == nil || !p.Outcome.Fits() {
			t.Errorf("%v: %+v", p.Keys, p.Outcome.Varied)
		}
		v := p.Outcome.Varied
		if err := estimate.Complete(p.Outcome); err != nil || p.Outcome.Varied != v {
			t.Errorf("%v: the runs were simulated again: %v", p.Keys, err)
		}
	}
}
