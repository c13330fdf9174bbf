package graph_test

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
)

// The attention that torchtitan asks for on newer GPUs is not planned, and the result says so.
func TestTorchtitanAttention(t *testing.T) {
	for arch, want := range map[int]bool{90: false, 100: true, 120: true} {
		s, err := spec.Parse("a.yaml", []byte("memplan: 1\nmodel: {preset: torchtitan}\ntrainer: {torchtitan: {}}\n"), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o := options()
		o.Env.Arch = arch
		r, err := graph.Build(s, o)
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, n := range r.NotModelled {
			said = said || strings.Contains(n.Text, "cuDNN's attention")
		}
		if said != want {
			t.Errorf("sm_%d: the result says that cuDNN's attention is not planned: %v", arch, said)
		}
	}
}

// A loop that takes tokens and targets by their order uses both.
func TestInputsOfLoops(t *testing.T) {
	const model = "memplan: 1\nmodel: {inputs: {ids: {shape: [8], dtype: int64}, y: {shape: [8], dtype: int64}}, layers: [{Embedding: [50, 8]}, {Linear: 50}]}\n"
	for text, want := range map[string]int{
		"trainer: {torchtitan: {activation_checkpoint: {mode: none}}}\n":                                                                 0,
		"trainer: {litgpt: {command: finetune_full}}\n":                                                                                  0,
		"step: [zero_grad, {forward: {model: model}, name: out}, {mean: , inputs: out, name: loss}, {backward: loss}, optimizer_step]\n": 1,
	} {
		s, err := spec.Parse("a.yaml", []byte(model+text), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := graph.Build(s, options())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Warnings); n != want {
			t.Errorf("%s: %d warnings, not %d: %v", text, n, want, r.Warnings)
		}
	}
}
