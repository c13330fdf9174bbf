package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/data/digits"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
)

// train runs a spec in a folder, and returns its last evaluation.
func train(t *testing.T, folder, text string) report.RunEvaluation {
	t.Helper()
	path := filepath.Join(folder, "spec.yaml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	s := &Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Env: os.LookupEnv}
	if code := Main([]string{"run", path, "--backend", "cpu", "--format", "json", "--root", folder}, s); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var r struct {
		Evaluations []report.RunEvaluation `json:"evaluations"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Evaluations) == 0 {
		t.Fatalf("no evaluations (%v): %s", err, out.String())
	}
	return r.Evaluations[len(r.Evaluations)-1]
}

// TestLearns trains a small part of what docs/run.md does: LeNet-5 tells drawn digits apart
// that it has not seen, and a GPT knows a text by heart.
func TestLearns(t *testing.T) {
	needs.Time(t, "trains; TestTrain of internal/runtime does so at the same time as something else")
	folder := t.TempDir()
	const n, most = 960, 720 // to train on
	images, labels := digits.Draw(n, 1)
	size := digits.Side * digits.Side
	for name, file := range map[string][]byte{
		"x.idx": digits.IDX(images[:most*size], most, digits.Side, digits.Side), "y.idx": digits.IDX(labels[:most], most),
		"tx.idx": digits.IDX(images[most*size:], n-most, digits.Side, digits.Side), "ty.idx": digits.IDX(labels[most:], n-most),
		"text.txt": []byte("Shall I compare thee to a summer's day? Thou art more lovely and more temperate:\n"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), file, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	e := train(t, folder, `memplan: 1
model: {preset: lenet}
train: {batch_size: 24, steps: 90, optimizer: {Adam: {lr: 0.003}}}
data: {source: {x: x.idx, y: y.idx}, validation: {x: tx.idx, y: ty.idx}}
eval: {every: 90, batch_size: 60, batches: 4}
`)
	t.Logf("LeNet-5: accuracy %v", *e.Accuracy)
	if e.Samples != n-most || *e.Accuracy < 0.9 {
		t.Errorf("LeNet-5 is right about %v of %d images", *e.Accuracy, e.Samples)
	}
	e = train(t, folder, `memplan: 1
model: {preset: gpt, with: {vocab: 128, d: 32, heads: 2, layers: 1, ctx: 16, seq: 16, dropout: 0.0}}
train: {batch_size: 5, steps: 150, optimizer: {AdamW: {lr: 0.01}}}
data: {source: text.txt}
eval: {every: 150, batches: 1}
`)
	t.Logf("GPT: perplexity %v", *e.Perplexity)
	if *e.Perplexity > 1.3 || *e.Accuracy < 0.95 {
		t.Errorf("the text is not known: perplexity %v, accuracy %v", *e.Perplexity, *e.Accuracy)
	}
}
